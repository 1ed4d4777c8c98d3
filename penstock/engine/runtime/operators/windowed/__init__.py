"""Operators of windows: on a grid, on records, on columns, and joins by window."""
