"""Pulsar has no connector here."""

from penstock.common.absent import OWN_SINK, OWN_SOURCE, absent

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            ("PulsarSource", "PulsarSourceBuilder", "StartCursor", "StopCursor", "RangeGenerator"),
            OWN_SOURCE,
        ),
        **dict.fromkeys(
            ("PulsarSink", "PulsarSinkBuilder", "MessageDelayer", "TopicRoutingMode"), OWN_SINK
        ),
    },
)
