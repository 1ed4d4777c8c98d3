"""Batches of records: rows and columns, what is copied when, what printing gives."""
