"""Keyed and operator state: its contract, its backends, and how it is written and read."""
