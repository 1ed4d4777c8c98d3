"""Expressions over columns: `col("price") * 2`, `count().alias("n")`. The engine stands in the
runtime.
"""

from penstock.runtime.records.columns import (
    Column,
    avg,
    col,
    count,
    first,
    last,
    lit,
    max_,
    min_,
    sum_,
)

__all__ = ["Column", "avg", "col", "count", "first", "last", "lit", "max_", "min_", "sum_"]
