"""RabbitMQ as a source and as a sink. Needs pika (`penstock[rabbitmq]`) where a job is made and where it runs.

Source: pyflink.datastream.connectors.rabbitmq.
"""

from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.publishing import (
    ReturnedMessage,
    RMQMessageProperties,
    RMQSinkPublishOptions,
)
from penstock.connectors.rabbitmq.sink import RMQSink
from penstock.connectors.rabbitmq.source import RMQSource

__all__ = [
    "RMQConnectionConfig",
    "RMQMessageProperties",
    "RMQSink",
    "RMQSinkPublishOptions",
    "RMQSource",
    "ReturnedMessage",
]
