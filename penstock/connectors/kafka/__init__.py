"""Kafka as a source and as a sink. Needs confluent-kafka (`penstock[kafka]`) where a job runs.

Source: pyflink.datastream.connectors.kafka.
"""

from penstock.common.absent import absent
from penstock.connectors.former_names import OF_KAFKA
from penstock.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from penstock.connectors.kafka.record_schema import KafkaRecord, KafkaRecordDeserializationSchema
from penstock.connectors.kafka.serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from penstock.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from penstock.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
]

__getattr__ = absent(
    "penstock.datastream.connectors.kafka",
    OF_KAFKA,
    (
        "penstock.common",
        "penstock.datastream.connectors",
        "penstock.connectors.api.base",
        "penstock.datastream.functions",
    ),
)
