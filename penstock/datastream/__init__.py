"""The DataStream API: pyflink.datastream, module by module, with column streams added.

A name's module is imported when the name is asked for. Programs and TaskManagers so import what they use.
"""

from typing import TYPE_CHECKING

from penstock.common.absent import absent, listing
from penstock.connectors.former_names import OF_MODULES, OF_THE_PACKAGE

if TYPE_CHECKING:
    from penstock.datastream import checkpoint_storage as checkpoint_storage
    from penstock.datastream.async_data_stream import AsyncDataStream as AsyncDataStream
    from penstock.datastream.checkpoint_config import CheckpointConfig as CheckpointConfig
    from penstock.datastream.checkpoint_storage import CheckpointStorage as CheckpointStorage
    from penstock.datastream.checkpoint_storage import (
        CustomCheckpointStorage as CustomCheckpointStorage,
    )
    from penstock.datastream.checkpoint_storage import (
        FileSystemCheckpointStorage as FileSystemCheckpointStorage,
    )
    from penstock.datastream.checkpoint_storage import (
        JobManagerCheckpointStorage as JobManagerCheckpointStorage,
    )
    from penstock.datastream.checkpointing_mode import CheckpointingMode as CheckpointingMode
    from penstock.datastream.data_stream import AllWindowedStream as AllWindowedStream
    from penstock.datastream.data_stream import BroadcastConnectedStream as BroadcastConnectedStream
    from penstock.datastream.data_stream import BroadcastStream as BroadcastStream
    from penstock.datastream.data_stream import CloseableIterator as CloseableIterator
    from penstock.datastream.data_stream import ConnectedStreams as ConnectedStreams
    from penstock.datastream.data_stream import DataStream as DataStream
    from penstock.datastream.data_stream import DataStreamSink as DataStreamSink
    from penstock.datastream.data_stream import KeyedStream as KeyedStream
    from penstock.datastream.data_stream import WindowedStream as WindowedStream
    from penstock.datastream.data_stream.joins import CoGroupFunction as CoGroupFunction
    from penstock.datastream.data_stream.joins import FlatJoinFunction as FlatJoinFunction
    from penstock.datastream.data_stream.joins import JoinFunction as JoinFunction
    from penstock.datastream.data_stream.joins import ProcessJoinFunction as ProcessJoinFunction
    from penstock.datastream.error_policy import DEAD_LETTER_TYPE as DEAD_LETTER_TYPE
    from penstock.datastream.error_policy import DeadLetter as DeadLetter
    from penstock.datastream.error_policy import ErrorPolicy as ErrorPolicy
    from penstock.datastream.error_policy import FiredTimer as FiredTimer
    from penstock.datastream.error_policy import FiredWindow as FiredWindow
    from penstock.datastream.exchange_mode import StreamExchangeMode as StreamExchangeMode
    from penstock.datastream.execution_mode import RuntimeExecutionMode as RuntimeExecutionMode
    from penstock.datastream.externalized_checkpoint_retention import (
        ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
    )
    from penstock.datastream.functions import AggregateFunction as AggregateFunction
    from penstock.datastream.functions import AllWindowFunction as AllWindowFunction
    from penstock.datastream.functions import AsyncFunction as AsyncFunction
    from penstock.datastream.functions import AsyncFunctionDescriptor as AsyncFunctionDescriptor
    from penstock.datastream.functions import AsyncRetryPredicate as AsyncRetryPredicate
    from penstock.datastream.functions import AsyncRetryStrategy as AsyncRetryStrategy
    from penstock.datastream.functions import CoFlatMapFunction as CoFlatMapFunction
    from penstock.datastream.functions import CoMapFunction as CoMapFunction
    from penstock.datastream.functions import CoProcessFunction as CoProcessFunction
    from penstock.datastream.functions import FilterFunction as FilterFunction
    from penstock.datastream.functions import FlatMapFunction as FlatMapFunction
    from penstock.datastream.functions import KeyedCoProcessFunction as KeyedCoProcessFunction
    from penstock.datastream.functions import KeyedProcessFunction as KeyedProcessFunction
    from penstock.datastream.functions import KeySelector as KeySelector
    from penstock.datastream.functions import MapFunction as MapFunction
    from penstock.datastream.functions import Partitioner as Partitioner
    from penstock.datastream.functions import ProcessAllWindowFunction as ProcessAllWindowFunction
    from penstock.datastream.functions import ProcessFunction as ProcessFunction
    from penstock.datastream.functions import ProcessWindowFunction as ProcessWindowFunction
    from penstock.datastream.functions import ReduceFunction as ReduceFunction
    from penstock.datastream.functions import RuntimeContext as RuntimeContext
    from penstock.datastream.functions import SinkFunction as SinkFunction
    from penstock.datastream.functions import SourceFunction as SourceFunction
    from penstock.datastream.functions import WindowFunction as WindowFunction
    from penstock.datastream.functions.broadcast import (
        BroadcastProcessFunction as BroadcastProcessFunction,
    )
    from penstock.datastream.functions.broadcast import (
        KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
    )
    from penstock.datastream.output_tag import OutputTag as OutputTag
    from penstock.datastream.slot_sharing_group import MemorySize as MemorySize
    from penstock.datastream.slot_sharing_group import SlotSharingGroup as SlotSharingGroup
    from penstock.datastream.state_backend import CustomStateBackend as CustomStateBackend
    from penstock.datastream.state_backend import (
        EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
    )
    from penstock.datastream.state_backend import HashMapStateBackend as HashMapStateBackend
    from penstock.datastream.state_backend import PredefinedOptions as PredefinedOptions
    from penstock.datastream.state_backend import StateBackend as StateBackend
    from penstock.datastream.stream_execution_environment import (
        StreamExecutionEnvironment as StreamExecutionEnvironment,
    )
    from penstock.datastream.time_domain import TimeDomain as TimeDomain
    from penstock.datastream.timerservice import TimerService as TimerService
    from penstock.datastream.window import CountWindow as CountWindow
    from penstock.datastream.window import GlobalWindow as GlobalWindow
    from penstock.datastream.window import MergingWindowAssigner as MergingWindowAssigner
    from penstock.datastream.window import TimeWindow as TimeWindow
    from penstock.datastream.window import Trigger as Trigger
    from penstock.datastream.window import TriggerResult as TriggerResult
    from penstock.datastream.window import Window as Window
    from penstock.datastream.window import WindowAssigner as WindowAssigner

__getattr__ = absent(__name__, OF_THE_PACKAGE, elsewhere=OF_MODULES, is_package=True)
__dir__ = listing(globals(), OF_MODULES)
