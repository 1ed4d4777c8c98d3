"""A broker of Kafka for the sources that come along."""

from tests.tools.brokers.fixtures import apache_kafka, broker, leave_no_kafka_client

__all__ = ["apache_kafka", "broker", "leave_no_kafka_client"]
