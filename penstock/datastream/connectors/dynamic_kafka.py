"""Sources that follow a changing set of Kafka clusters have no counterpart here."""

from typing import Final

from penstock.common.absent import absent

_INSTEAD: Final = (
    "Read each cluster with a KafkaSource of penstock.datastream.connectors.kafka, topics that come later by "
    "set_topic_pattern, and unite the streams."
)

__getattr__ = absent(
    __name__,
    {
        "KafkaRecordDeserializationSchema": "KafkaSourceBuilder.set_value_only_deserializer takes a DeserializationSchema.",
        **dict.fromkeys(
            (
                "DynamicKafkaSource",
                "DynamicKafkaSourceBuilder",
                "KafkaMetadataService",
                "KafkaStreamSetSubscriber",
                "KafkaStreamSubscriber",
                "SingleClusterTopicMetadataService",
                "StreamPatternSubscriber",
            ),
            _INSTEAD,
        ),
    },
)
