"""Where names of PyFlink are: those removed or moved since PyFlink 1, with what to use instead, and modules of those that are here.

Does not know any class. Source: pyflink.datastream of Flink 1.x and 2.x.
"""

from collections.abc import Mapping
from typing import Final

_TIME: Final = (
    "Event time is always on: give a source its WatermarkStrategy, and use windows and timers of "
    "the time that you want."
)
_KRYO: Final = "Nothing here needs Java serializers: leave the call out."
_RETENTION: Final = "ExternalizedCheckpointRetention and set_externalized_checkpoint_retention."

OF_STATE_BACKENDS: Final = dict.fromkeys(
    ("MemoryStateBackend", "FsStateBackend", "RocksDBStateBackend"),
    "PyFlink 2 does not have it either: use HashMapStateBackend or EmbeddedRocksDBStateBackend, or "
    "set state.backend.type to hashmap or rocksdb in the configuration; checkpoints go to "
    "execution.checkpointing.dir.",
)
OF_THE_PACKAGE: Final = {
    **OF_STATE_BACKENDS,
    "TimeCharacteristic": f"PyFlink 2 does not have it either. {_TIME}",
    "ExternalizedCheckpointCleanup": f"As in PyFlink 2, use {_RETENTION}",
}
OF_THE_ENVIRONMENT: Final = {
    **dict.fromkeys(("set_stream_time_characteristic", "get_stream_time_characteristic"), _TIME),
    **dict.fromkeys(
        (
            "add_default_kryo_serializer",
            "register_type_with_kryo_serializer",
            "register_type",
        ),
        _KRYO,
    ),
    "read_text_file": "Use env.from_source(FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build(), "
    "WatermarkStrategy.no_watermarks(), 'lines').",
}
OF_A_STREAM: Final = {
    **dict.fromkeys(
        ("window", "count_window"),
        "Call key_by just before, or window_all for a window over all records. Only key_by makes "
        "a KeyedStream; map, filter and assign_timestamps_and_watermarks return a stream without "
        "keys.",
    ),
    **dict.fromkeys(
        ("sum", "min", "max", "min_by", "max_by", "reduce"), "Call key_by just before."
    ),
    "time_window": "Use window(TumblingEventTimeWindows.of(size)) or another assigner of penstock.datastream.window, after key_by.",
}
OF_CHECKPOINT_CONFIG: Final = {
    **dict.fromkeys(
        (
            "enable_externalized_checkpoints",
            "set_externalized_checkpoint_cleanup",
            "get_externalized_checkpoint_cleanup",
        ),
        f"Use {_RETENTION}",
    ),
}

_OWN_SOURCE: Final = (
    "Write a subclass of penstock.datastream.connectors.Source around a Python client of the "
    "service, or let Spark read it and use env.from_spark."
)
_OWN_SINK: Final = (
    "Write a subclass of penstock.datastream.connectors.Sink around a Python client of the "
    "service, or use to_spark and let Spark write it."
)
_EACH_CLUSTER: Final = (
    "Read each cluster with a KafkaSource of penstock.datastream.connectors.kafka, topics that "
    "come later by set_topic_pattern, and unite the streams."
)


def _advised(names: Mapping[str, str]) -> Mapping[str, str]:
    """What to use instead of each name. `names`: by this sentence, separated by spaces."""
    return {name: advice for advice, text in names.items() for name in text.split()}


OF_KAFKA: Final = _advised({
    "Flink's connector for Flink 2 does not have it either: use KafkaSource.": (
        "FlinkKafkaConsumer FlinkKafkaConsumerBase"
    ),
    "Flink's connector for Flink 2 does not have it either: use KafkaSink.": (
        "FlinkKafkaProducer FlinkKafkaProducerBase"
    ),
    "It was for FlinkKafkaProducer. KafkaSink takes a DeliveryGuarantee.": "Semantic",
})
ABSENT_CONNECTORS: Final = {
    "cassandra": _advised({
        _OWN_SINK: "CassandraCommitter CassandraFailureHandler CassandraSink ClusterBuilder "
        "ConsistencyLevel MapperOptions",
    }),
    "kinesis": _advised({
        _OWN_SOURCE: "FlinkKinesisConsumer KinesisDeserializationSchema KinesisShardAssigner "
        "WatermarkTracker",
        _OWN_SINK: "KinesisFirehoseSink KinesisFirehoseSinkBuilder KinesisStreamsSink "
        "KinesisStreamsSinkBuilder PartitionKeyGenerator",
    }),
    "dynamic_kafka": _advised({
        "KafkaSourceBuilder.set_value_only_deserializer takes a DeserializationSchema.": (
            "KafkaRecordDeserializationSchema"
        ),
        _EACH_CLUSTER: "DynamicKafkaSource DynamicKafkaSourceBuilder KafkaMetadataService "
        "KafkaStreamSetSubscriber KafkaStreamSubscriber SingleClusterTopicMetadataService "
        "StreamPatternSubscriber",
    }),
}
"""Modules of connectors that Penstock does not have: their names, with what to use instead."""


def _places(package: str, names: Mapping[str, str]) -> Mapping[str, str]:
    """The module of each name. `names`: by module of the package, separated by spaces."""
    return {name: package + module for module, text in names.items() for name in text.split()}


_CONNECTORS = {
    "jdbc": "JdbcSink JdbcConnectionOptions JdbcExecutionOptions",
    "kafka": ("KafkaSource FlinkKafkaConsumer FlinkKafkaProducer Semantic"),
    "dynamic_kafka": " ".join(ABSENT_CONNECTORS["dynamic_kafka"]),
    "pulsar": ("PulsarSource PulsarSourceBuilder StartCursor StopCursor"),
    "rabbitmq": "RMQSource RMQSink RMQConnectionConfig",
    "file_system": (
        "BucketAssigner FileEnumeratorProvider FileSink FileSplitAssignerProvider FileSource "
        "FileSourceBuilder OutputFileConfig RollingPolicy StreamFormat StreamingFileSink"
    ),
}
OF_CONNECTORS: Final = _places("penstock.datastream.connectors.", _CONNECTORS)
"""Names that PyFlink's package has too, with their modules. A module is imported when its name is asked for."""

_FORMATS: Final = {
    "avro": (
        "AvroBulkWriters AvroInputFormat AvroRowDeserializationSchema AvroRowSerializationSchema "
        "AvroSchema"
    ),
    "csv": (
        "CsvBulkWriters CsvReaderFormat CsvRowDeserializationSchema CsvRowSerializationSchema "
        "CsvSchema"
    ),
    "debezium": ("DebeziumJsonDeserializationSchema DebeziumJsonSerializationSchema"),
    "json": ("JsonRowDeserializationSchema JsonRowSerializationSchema"),
    "orc": "OrcBulkWriters",
    "parquet": (
        "AvroParquetReaders AvroParquetWriters ParquetBulkWriters ParquetColumnarRowInputFormat"
    ),
    "protobuf": ("ProtobufDeserializationSchema ProtobufSerializationSchema"),
    "registry": (
        "ConfluentRegistryAvroDeserializationSchema ConfluentRegistryAvroSerializationSchema "
        "ConfluentRegistryJsonDeserializationSchema ConfluentRegistryJsonSerializationSchema "
        "SchemaRegistry"
    ),
}
OF_FORMATS: Final = _places("penstock.datastream.formats.", _FORMATS)
"""The names that programs use of each module of formats, so that they need not know the module."""

_MODULES: Final = {
    "async_data_stream": "AsyncDataStream",
    "checkpoint_config": "CheckpointConfig",
    "checkpoint_storage": (
        "CheckpointStorage CustomCheckpointStorage FileSystemCheckpointStorage "
        "JobManagerCheckpointStorage"
    ),
    "checkpointing_mode": "CheckpointingMode",
    "data_stream": (
        "AllWindowedStream BroadcastConnectedStream BroadcastStream CloseableIterator "
        "ConnectedStreams DataStream DataStreamSink KeyedStream WindowedStream"
    ),
    "data_stream.joins": ("CoGroupFunction FlatJoinFunction JoinFunction ProcessJoinFunction"),
    "error_policy": ("DEAD_LETTER_TYPE DeadLetter ErrorPolicy FiredTimer FiredWindow"),
    "exchange_mode": "StreamExchangeMode",
    "execution_mode": "RuntimeExecutionMode",
    "externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
    "functions": (
        "AggregateFunction AllWindowFunction AsyncFunction AsyncFunctionDescriptor "
        "AsyncRetryPredicate AsyncRetryStrategy CoFlatMapFunction CoMapFunction CoProcessFunction "
        "FilterFunction FlatMapFunction KeyedCoProcessFunction KeyedProcessFunction KeySelector "
        "MapFunction Partitioner ProcessAllWindowFunction ProcessFunction ProcessWindowFunction "
        "ReduceFunction RuntimeContext SinkFunction SourceFunction WindowFunction"
    ),
    "functions.broadcast": "BroadcastProcessFunction KeyedBroadcastProcessFunction",
    "output_tag": "OutputTag",
    "slot_sharing_group": "MemorySize SlotSharingGroup",
    "state_backend": (
        "CustomStateBackend EmbeddedRocksDBStateBackend HashMapStateBackend PredefinedOptions "
        "StateBackend"
    ),
    "stream_execution_environment": "StreamExecutionEnvironment",
    "time_domain": "TimeDomain",
    "timerservice": "TimerService",
    "window": (
        "CountWindow GlobalWindow MergingWindowAssigner TimeWindow Trigger TriggerResult Window "
        "WindowAssigner"
    ),
}
OF_MODULES: Final = _places("penstock.datastream.", _MODULES)
"""The names of the package itself, in the same way."""
