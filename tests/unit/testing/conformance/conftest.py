"""A broker of Kafka for the sources that come along."""

from tests.tools.brokers.fixtures import broker, leave_no_kafka_client

__all__ = ["broker", "leave_no_kafka_client"]
