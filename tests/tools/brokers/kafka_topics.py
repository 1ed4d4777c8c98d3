"""The other side of Kafka: writes and reads topics with a client of its own."""

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

WAIT_S = 30


def produce(broker, topic, *records, partition=0, key=None, one_by_one=False):
    """`records`: values, or (value, epoch ms)."""
    producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True})
    for record in records:
        value, stamp = record if isinstance(record, tuple) else (record, 0)
        data = value.encode() if isinstance(value, str) else value
        producer.produce(topic, data, key, partition, timestamp=stamp)
        if one_by_one:
            producer.flush()
    assert producer.flush(WAIT_S) == 0


def produce_in_transaction(broker, topic, *records, commits, partition=0):
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": "a test's"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for record in records:
        producer.produce(topic, record.encode(), None, partition)
    producer.flush()
    (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_S)


def consumed(servers, topic, partitions=(0,)):
    """Messages that are committed, partition by partition."""
    settings = {"bootstrap.servers": servers, "group.id": "a test's", "enable.partition.eof": True}
    consumer = Consumer({
        **settings,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    })
    found, ended = [], set()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while len(ended) < len(partitions):
            message = consumer.poll(WAIT_S)
            assert message is not None, "the ends of the partitions do not come"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda one: (one.partition(), one.offset()))


def texts(servers, topic, partitions=(0,)):
    return [message.value().decode() for message in consumed(servers, topic, partitions)]


def source_builder(servers, *topics, schema=None):
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(*topics)
    return builder.set_value_only_deserializer(schema or SimpleStringSchema())


def bounded(servers, *topics, schema=None):
    """From the first to the last record there is."""
    builder = source_builder(servers, *topics, schema=schema)
    return builder.set_bounded(KafkaOffsetsInitializer.latest())


def serializer(topic, **schemas):
    builder = KafkaRecordSerializationSchema.builder()
    builder = (
        builder.set_topic(topic) if isinstance(topic, str) else builder.set_topic_selector(topic)
    )
    builder.set_value_serialization_schema(schemas.get("value", SimpleStringSchema()))
    if "key" in schemas:
        builder.set_key_serialization_schema(schemas["key"])
    return builder.build()


def sink_builder(servers, topic, guarantee, **schemas):
    builder = KafkaSink.builder().set_bootstrap_servers(servers)
    builder.set_record_serializer(serializer(topic, **schemas)).set_delivery_guarantee(guarantee)
    return builder.set_transactional_id_prefix("tests").set_property("linger.ms", "0")
