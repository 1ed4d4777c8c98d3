"""Kafka has no connector here yet."""

from penstock.common.absent import OWN_SINK, OWN_SOURCE, absent

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            (
                "KafkaSource",
                "KafkaSourceBuilder",
                "KafkaOffsetsInitializer",
                "KafkaOffsetResetStrategy",
                "KafkaTopicPartition",
                "FlinkKafkaConsumer",
            ),
            OWN_SOURCE,
        ),
        **dict.fromkeys(
            (
                "KafkaSink",
                "KafkaSinkBuilder",
                "KafkaRecordSerializationSchema",
                "KafkaRecordSerializationSchemaBuilder",
                "KafkaTopicSelector",
                "FlinkKafkaProducer",
                "Semantic",
            ),
            OWN_SINK,
        ),
    },
)
