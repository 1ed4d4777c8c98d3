"""Flink's runtime as a Python library on the Spark cluster that you already have."""

__version__ = "0.1.0"
