"""Texts for people: of errors, of values that may be huge, of types, of amounts; and what no text may show."""
