"""Operators: what the chain of a task is made of, one class per kind of transformation."""

from penstock.runtime.operators.asynchronous.wait import AsyncSettings, AsyncWaitOperator
from penstock.runtime.operators.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from penstock.runtime.operators.columns import (
    ColumnFilterOperator,
    MapBatchesOperator,
    SelectOperator,
    ToSchemaOperator,
)
from penstock.runtime.operators.global_commit import GatheringSink, WriterOperator
from penstock.runtime.operators.interval_join import (
    Interval,
    IntervalJoinOperator,
    ProcessJoinContext,
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
from penstock.runtime.operators.stateful_reduce import StatefulReduceOperator
from penstock.runtime.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    FunctionOperator,
    MapOperator,
)
from penstock.runtime.operators.timestamps import TimestampsAndWatermarksOperator
from penstock.runtime.operators.two_input import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoFlatMapOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from penstock.runtime.operators.windowed.columns import ColumnWindowOperator
from penstock.runtime.operators.windowed.functions import (
    AggregateContents,
    FoldedWindow,
    ListContents,
    ReduceContents,
    WindowContext,
)
from penstock.runtime.operators.windowed.join import (
    CoGroupWindowFunction,
    JoinWindowFunction,
    TaggedUnion,
)
from penstock.runtime.operators.windowed.window_operator import (
    window_join_operator,
    window_operator,
)

__all__ = [
    "AggregateContents",
    "AggregateKind",
    "AsyncSettings",
    "AsyncWaitOperator",
    "BroadcastProcessOperator",
    "CoFlatMapOperator",
    "CoGroupWindowFunction",
    "CoMapOperator",
    "CoProcessOperator",
    "CollectOperator",
    "ColumnFilterOperator",
    "ColumnWindowOperator",
    "FilterOperator",
    "FlatMapOperator",
    "FoldedWindow",
    "FunctionOperator",
    "GatheringSink",
    "Interval",
    "IntervalJoinOperator",
    "JoinWindowFunction",
    "KeyedAggregateOperator",
    "KeyedBroadcastProcessOperator",
    "KeyedCoFlatMapOperator",
    "KeyedCoMapOperator",
    "KeyedCoProcessOperator",
    "KeyedFilterOperator",
    "KeyedFlatMapOperator",
    "KeyedMapOperator",
    "KeyedOperator",
    "KeyedProcessContext",
    "KeyedProcessOperator",
    "ListContents",
    "MapBatchesOperator",
    "MapOperator",
    "PrintOperator",
    "ProcessContext",
    "ProcessJoinContext",
    "ProcessOperator",
    "ReduceContents",
    "ReduceOperator",
    "SelectOperator",
    "SinkOperator",
    "StatefulReduceOperator",
    "TaggedUnion",
    "TimerService",
    "TimestampsAndWatermarksOperator",
    "ToSchemaOperator",
    "WindowContext",
    "WriterOperator",
    "window_join_operator",
    "window_operator",
]
