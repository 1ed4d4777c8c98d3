"""Brokers for jobs that read and write messages."""

from tests.tools.brokers.fixtures import (
    amqp,
    apache_kafka,
    broker,
    leave_no_kafka_client,
    own_amqp,
    own_kafka,
    queue,
    running_pulsar_broker,
)

__all__ = [
    "amqp",
    "apache_kafka",
    "broker",
    "leave_no_kafka_client",
    "own_amqp",
    "own_kafka",
    "queue",
    "running_pulsar_broker",
]
