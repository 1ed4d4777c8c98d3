"""Expressions over columns, such as `col("price") * 2` or `count().alias("n")`. The runtime evaluates them."""

from penstock.engine.runtime.records.columns import (
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
