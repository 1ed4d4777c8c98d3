"""Operators: what the chain of a task is made of, one class per kind of transformation."""

from penstock.engine.runtime.operators.async_wait import AsyncSettings, AsyncWaitOperator
from penstock.engine.runtime.operators.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from penstock.engine.runtime.operators.columns import (
    ColumnFilterOperator,
    MapBatchesOperator,
    SelectOperator,
    ToSchemaOperator,
)
from penstock.engine.runtime.operators.interval_join import (
    Interval,
    IntervalJoinOperator,
    ProcessJoinContext,
)
from penstock.engine.runtime.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedOperator,
)
from penstock.engine.runtime.operators.process import (
    KeyedProcessContext,
    KeyedProcessOperator,
    ProcessContext,
    ProcessOperator,
    TimerService,
)
from penstock.engine.runtime.operators.reduce import (
    AggregateKind,
    KeyedAggregateOperator,
    ReduceOperator,
)
from penstock.engine.runtime.operators.sinks import (
    CollectOperator,
    GatheringSink,
    PrintOperator,
    SinkOperator,
    WriterOperator,
)
from penstock.engine.runtime.operators.stateful_reduce import StatefulReduceOperator
from penstock.engine.runtime.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    FunctionOperator,
    MapOperator,
)
from penstock.engine.runtime.operators.timestamps import TimestampsAndWatermarksOperator
from penstock.engine.runtime.operators.two_input import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoFlatMapOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from penstock.engine.runtime.operators.windowed.columns import ColumnWindowOperator
from penstock.engine.runtime.operators.windowed.functions import (
    AggregateContents,
    FoldedWindow,
    ListContents,
    ReduceContents,
    WindowContext,
)
from penstock.engine.runtime.operators.windowed.window_operator import (
    CoGroupWindowFunction,
    JoinWindowFunction,
    TaggedUnion,
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
