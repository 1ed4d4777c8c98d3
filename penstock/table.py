"""A stand-in for PyFlink's Table API. Source: pyflink.table.

It has Row and RowKind, which DataStream programs import from there too. Other names raise an error that says what to
use instead. Does not know Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.common.absent import absent
from penstock.common.types import Row, RowKind

__all__ = ["Row", "RowKind"]

_INSTEAD: Final = (
    "Use Spark's SQL and DataFrames: env.from_spark(frame) makes a stream from a DataFrame, "
    "stream.to_spark('view') makes a DataFrame from a stream, and StreamExecutionEnvironment has "
    "sources for the inputs of a Table."
)
_NAMES: Final = (
    "AggregateFunction", "BatchTableEnvironment", "ChangelogMode", "CsvTableSink", "CsvTableSource", "DataTypes",
    "EnvironmentSettings", "ExplainDetail", "FormatDescriptor", "FunctionContext", "GroupWindowedTable", "GroupedTable",
    "ListView", "MapView", "Model", "ModelDescriptor", "Module", "ModuleEntry", "OverWindowedTable", "ResultKind",
    "ScalarFunction", "Schema", "SqlDialect", "StatementSet", "StreamTableEnvironment", "Table", "TableAggregateFunction",
    "TableConfig", "TableDescriptor", "TableEnvironment", "TableFunction", "TableResult", "TableSchema", "TableSink",
    "TableSource", "UserDefinedType", "WindowGroupedTable", "WriteMode",
)  # fmt: skip


class _Submodules:
    """A `__path__` that raises: Python reads it when a program imports a submodule."""

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError(f"pyflink.table has no counterpart in Penstock. {_INSTEAD}")


__path__ = _Submodules()
__getattr__ = absent("penstock.table", dict.fromkeys(_NAMES, _INSTEAD))
