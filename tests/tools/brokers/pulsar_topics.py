"""The other side of Pulsar: writes and reads topics with a client of its own."""

from contextlib import contextmanager

import pulsar

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.pulsar import PulsarSink, PulsarSource, StopCursor

WAIT_MS = 30_000


@contextmanager
def client_of(broker, **more):
    client = pulsar.Client(
        broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **more
    )
    try:
        yield client
    finally:
        client.close()


def part(topic, partition=None):
    name = f"persistent://public/default/{topic}"
    return name if partition is None else f"{name}-partition-{partition}"


def produce(broker, topic, *records, partition=None, batch=False, key=None, ordering_key=None):
    """`records`: values, or (value, event time in epoch ms). `batch`: all of them in one. Returns their message ids."""
    found = []
    with client_of(broker) as client:
        producer = client.create_producer(
            part(topic, partition),
            batching_enabled=batch,
            batching_max_messages=10_000,
            batching_max_publish_delay_ms=60_000,
            max_pending_messages=10_000,
        )
        for record in records:
            value, stamp = record if isinstance(record, tuple) else (record, None)
            data = value.encode() if isinstance(value, str) else value
            more = {"partition_key": key, "ordering_key": ordering_key, "event_timestamp": stamp}
            if batch:
                producer.send_async(data, lambda result, message_id: None, **more)
            else:
                found.append(producer.send(data, **more))
        producer.flush()
    return found


def consumed(broker, topic, partition=None):
    """All messages of one partition, in order, as a reader with no past sees them."""
    count = sum(entry.count for entry in broker.log(topic, partition).entries)
    with client_of(broker) as client:
        reader = client.create_reader(part(topic, partition), pulsar.MessageId.earliest)
        return [reader.read_next(WAIT_MS) for _ in range(count)]


def texts(broker, topic, partitions=(None,)):
    return [one.data().decode() for number in partitions for one in consumed(broker, topic, number)]


def source_builder(broker, *topics, schema=None, subscription="tests"):
    builder = PulsarSource.builder().set_service_url(broker.url).set_topics(list(topics))
    builder.set_subscription_name(subscription)
    return builder.set_deserialization_schema(schema or SimpleStringSchema())


def bounded(broker, *topics, **more):
    """From the first to the last message there is."""
    return source_builder(broker, *topics, **more).set_bounded_stop_cursor(StopCursor.latest())


def sink_builder(broker, topic, guarantee):
    builder = PulsarSink.builder().set_service_url(broker.url).set_topics(topic)
    builder.set_serialization_schema(SimpleStringSchema())
    return builder.set_delivery_guarantee(guarantee)
