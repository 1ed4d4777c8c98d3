"""Flink's runtime as a Python library on the Spark cluster that you already have."""

import logging

# A library leaves it to the program where its log goes.
logging.getLogger("penstock").addHandler(logging.NullHandler())  # ruff: ignore[non-empty-init-module] # nowhere else is it sure to run

__version__ = "0.1.0"
