"""The DataStream API: pyflink.datastream, module by module, with column streams added.

A name's module is imported when the name is asked for. Programs and TaskManagers so import what they use.
"""

from typing import TYPE_CHECKING

from penstock.common.absent import absent, listing
from penstock.connectors.former_names import OF_MODULES, OF_THE_PACKAGE

if TYPE_CHECKING:
    from penstock.datastream import checkpoint_storage
    from penstock.datastream.async_data_stream import AsyncDataStream
    from penstock.datastream.checkpoint_config import CheckpointConfig
    from penstock.datastream.checkpoint_storage import (
        CheckpointStorage,
        CustomCheckpointStorage,
        FileSystemCheckpointStorage,
        JobManagerCheckpointStorage,
    )
    from penstock.datastream.checkpointing_mode import CheckpointingMode
    from penstock.datastream.data_stream import (
        AllWindowedStream,
        BroadcastConnectedStream,
        BroadcastStream,
        CloseableIterator,
        ConnectedStreams,
        DataStream,
        DataStreamSink,
        KeyedStream,
        WindowedStream,
    )
    from penstock.datastream.data_stream.joins import (
        CoGroupFunction,
        FlatJoinFunction,
        JoinFunction,
        ProcessJoinFunction,
    )
    from penstock.datastream.error_policy import (
        DEAD_LETTER_TYPE,
        DeadLetter,
        ErrorPolicy,
        FiredTimer,
        FiredWindow,
    )
    from penstock.datastream.exchange_mode import StreamExchangeMode
    from penstock.datastream.execution_mode import RuntimeExecutionMode
    from penstock.datastream.externalized_checkpoint_retention import (
        ExternalizedCheckpointRetention,
    )
    from penstock.datastream.functions import (
        AggregateFunction,
        AllWindowFunction,
        AsyncFunction,
        AsyncFunctionDescriptor,
        AsyncRetryPredicate,
        AsyncRetryStrategy,
        CoFlatMapFunction,
        CoMapFunction,
        CoProcessFunction,
        FilterFunction,
        FlatMapFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        Partitioner,
        ProcessAllWindowFunction,
        ProcessFunction,
        ProcessWindowFunction,
        ReduceFunction,
        RuntimeContext,
        SinkFunction,
        SourceFunction,
        WindowFunction,
    )
    from penstock.datastream.functions.broadcast import (
        BroadcastProcessFunction,
        KeyedBroadcastProcessFunction,
    )
    from penstock.datastream.output_tag import OutputTag
    from penstock.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
    from penstock.datastream.state_backend import (
        CustomStateBackend,
        EmbeddedRocksDBStateBackend,
        HashMapStateBackend,
        PredefinedOptions,
        StateBackend,
    )
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.time_domain import TimeDomain
    from penstock.datastream.timerservice import TimerService
    from penstock.datastream.window import (
        CountWindow,
        GlobalWindow,
        MergingWindowAssigner,
        TimeWindow,
        Trigger,
        TriggerResult,
        Window,
        WindowAssigner,
    )

__all__ = [
    "DEAD_LETTER_TYPE",
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "DeadLetter",
    "EmbeddedRocksDBStateBackend",
    "ErrorPolicy",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FiredTimer",
    "FiredWindow",
    "FlatJoinFunction",
    "FlatMapFunction",
    "GlobalWindow",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "JoinFunction",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemorySize",
    "MergingWindowAssigner",
    "OutputTag",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "StateBackend",
    "StreamExchangeMode",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
    "checkpoint_storage",
]

__getattr__ = absent(__name__, OF_THE_PACKAGE, elsewhere=OF_MODULES, is_package=True)
__dir__ = listing(globals(), OF_MODULES)
