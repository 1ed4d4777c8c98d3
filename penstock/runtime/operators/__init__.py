"""Operators: what the chain of a task is made of, one class per kind of transformation."""

from penstock.runtime.operators.columns import (
    ColumnFilterOperator,
    MapBatchesOperator,
    SelectOperator,
)
from penstock.runtime.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedOperator,
)
from penstock.runtime.operators.process import (
    KeyedProcessContext,
    KeyedProcessOperator,
    ProcessContext,
    ProcessOperator,
    TimerService,
)
from penstock.runtime.operators.reduce import AggregateKind, KeyedAggregateOperator, ReduceOperator
from penstock.runtime.operators.sinks import CollectOperator, PrintOperator, SinkOperator
from penstock.runtime.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    FunctionOperator,
    MapOperator,
)

from penstock.runtime.operators.timestamps import TimestampsAndWatermarksOperator
from penstock.runtime.operators.window import WindowOperator, make_window_operator
from penstock.runtime.operators.window_functions import (
    WindowContents,
    WindowOutput,
    WindowSpec,
    WindowStyle,
)

__all__ = [
    "AggregateKind",
    "CollectOperator",
    "ColumnFilterOperator",
    "FilterOperator",
    "FlatMapOperator",
    "FunctionOperator",
    "KeyedAggregateOperator",
    "KeyedFilterOperator",
    "KeyedFlatMapOperator",
    "KeyedMapOperator",
    "KeyedOperator",
    "KeyedProcessContext",
    "KeyedProcessOperator",
    "MapBatchesOperator",
    "MapOperator",
    "PrintOperator",
    "ProcessContext",
    "ProcessOperator",
    "ReduceOperator",
    "SelectOperator",
    "SinkOperator",
    "TimerService",
    "TimestampsAndWatermarksOperator",
    "WindowContents",
    "WindowOperator",
    "WindowOutput",
    "WindowSpec",
    "WindowStyle",
    "make_window_operator",
]
