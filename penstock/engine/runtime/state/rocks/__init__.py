"""Keyed state in RocksDB, on the TaskManager's disk: for state that is larger than memory.

Needs the package `rocksdict`, which is imported where a database is opened and nowhere else.
"""
