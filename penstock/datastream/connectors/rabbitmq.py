"""RabbitMQ has no connector here."""

from penstock.common.absent import OWN_SINK, OWN_SOURCE, absent

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(("RMQSource", "RMQConnectionConfig"), OWN_SOURCE),
        "RMQSink": OWN_SINK,
    },
)
