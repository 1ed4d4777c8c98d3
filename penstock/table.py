"""Stands where PyFlink has its Table API: its Row, which DataStream programs import from there too, and for all else what to
use instead. Knows no Spark. Source: pyflink.table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.common.absent import absent
from penstock.common.types import Row, RowKind

__all__ = ["Row", "RowKind"]

_INSTEAD: Final = (
    "Use Spark's SQL and DataFrames: env.from_spark(frame) makes a stream of one, "
    "stream.to_spark('view') a DataFrame of a stream, and StreamExecutionEnvironment has sources for what a Table would read."
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
    """Whoever imports one has Python look through `__path__`, and is told here."""

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError(f"pyflink.table has no counterpart in Penstock. {_INSTEAD}")


__path__ = _Submodules()
__getattr__ = absent("penstock.table", dict.fromkeys(_NAMES, _INSTEAD))
