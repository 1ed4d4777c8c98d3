"""RabbitMQ as a source and as a sink. Needs pika (`penstock[rabbitmq]`) where a job is made and where it runs.

Source: pyflink.datastream.connectors.rabbitmq.
"""

from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.sink import (
    ReturnedMessage,
    RMQMessageProperties,
    RMQSink,
    RMQSinkPublishOptions,
)
from penstock.connectors.rabbitmq.source import RMQSource

__all__ = [
    "RMQConnectionConfig",
    "RMQMessageProperties",
    "RMQSink",
    "RMQSinkPublishOptions",
    "RMQSource",
    "ReturnedMessage",
]
