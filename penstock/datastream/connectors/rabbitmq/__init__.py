"""RabbitMQ as a source and as a sink. Needs pika (`penstock[rabbitmq]`) where a job is made and where it runs.

Source: pyflink.datastream.connectors.rabbitmq.
"""

from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.datastream.connectors.rabbitmq.publishing import (
    ReturnedMessage,
    RMQMessageProperties,
    RMQSinkPublishOptions,
)
from penstock.datastream.connectors.rabbitmq.sink import RMQSink
from penstock.datastream.connectors.rabbitmq.source import RMQSource

__all__ = [
    "RMQConnectionConfig",
    "RMQMessageProperties",
    "RMQSink",
    "RMQSinkPublishOptions",
    "RMQSource",
    "ReturnedMessage",
]
