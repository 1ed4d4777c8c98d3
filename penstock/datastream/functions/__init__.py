"""What user programs extend or are handed: functions, and what they see while they run.

Source: pyflink.datastream.functions.
"""

from penstock.common.absent import absent
from penstock.datastream.functions.base import (
    AggregateFunction,
    AllWindowFunction,
    AsyncFunction,
    AsyncFunctionDescriptor,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    NullByteKeySelector,
    Partitioner,
    PassThroughAllWindowFunction,
    PassThroughWindowFunction,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    SinkFunction,
    SourceFunction,
    WindowFunction,
)
from penstock.datastream.functions.broadcast import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.engine.runtime.context import KeyedStateStore, RuntimeContext
from penstock.engine.runtime.operators.async_retry import (
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "PassThroughAllWindowFunction",
    "PassThroughWindowFunction",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimeDomain",
    "TimerService",
    "WindowFunction",
]

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            (
                "InternalIterableAllWindowFunction",
                "InternalIterableProcessAllWindowFunction",
                "InternalIterableProcessWindowFunction",
                "InternalIterableWindowFunction",
                "InternalProcessAllWindowContext",
                "InternalProcessWindowContext",
                "InternalSingleValueAllWindowFunction",
                "InternalSingleValueProcessAllWindowFunction",
                "InternalSingleValueProcessWindowFunction",
                "InternalSingleValueWindowFunction",
                "InternalWindowFunction",
                "FunctionWrapper",
                "ReduceFunctionWrapper",
            ),
            "It is internal to PyFlink; programs extend the functions of this module instead.",
        ),
        "JavaFunctionWrapper": "It wraps a Java function; extend the Python function of the same kind.",
    },
    ("penstock.datastream.state", "penstock.metrics"),
)
