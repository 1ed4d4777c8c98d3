"""Kinesis has no connector here."""

from penstock.common.absent import OWN_SINK, OWN_SOURCE, absent

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            (
                "FlinkKinesisConsumer",
                "KinesisDeserializationSchema",
                "KinesisShardAssigner",
                "WatermarkTracker",
            ),
            OWN_SOURCE,
        ),
        **dict.fromkeys(
            (
                "KinesisFirehoseSink",
                "KinesisFirehoseSinkBuilder",
                "KinesisStreamsSink",
                "KinesisStreamsSinkBuilder",
                "PartitionKeyGenerator",
            ),
            OWN_SINK,
        ),
    },
)
