"""Kafka has no connector here yet."""

from penstock.common.absent import OWN_SOURCE, absent

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            (
                "DynamicKafkaSource",
                "DynamicKafkaSourceBuilder",
                "KafkaMetadataService",
                "KafkaRecordDeserializationSchema",
                "KafkaStreamSetSubscriber",
                "KafkaStreamSubscriber",
                "SingleClusterTopicMetadataService",
                "StreamPatternSubscriber",
            ),
            OWN_SOURCE,
        ),
    },
)
