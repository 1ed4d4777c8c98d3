"""Measures of functions of single records: how they run on columns and on Python objects."""
