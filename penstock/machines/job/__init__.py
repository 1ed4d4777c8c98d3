"""The master of a streaming job: its status, its books, its failures."""
