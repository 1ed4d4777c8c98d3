"""Formats of files and messages, and the readers of them. Programs import them from `penstock.datastream.formats`."""
