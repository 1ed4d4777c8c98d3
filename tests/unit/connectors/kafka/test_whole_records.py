"""Whole Kafka records: what a deserializer sees of them, and which headers a sink writes."""

import pickle

import numpy as np
import pytest
from confluent_kafka import Producer

from penstock.common import Row, Types
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.api.messaging.staging import ProducedRecords, StagedRecords, pack, unpack
from penstock.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.connectors.kafka.record_schema import batch_of
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.records.dead_letters import MarkedRows
from tests.tools.brokers.kafka_topics import WAIT_S, consumed, produce
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.connectors.reading_thread import Task

TEXT = SimpleStringSchema()
HEADERS = [("trace", b"1"), ("trace", b"\x00\xff"), ("none", None), ("empty", b""), ("é", b"x")]
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
AT_LEAST, EXACTLY = DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE


@pytest.fixture
def topic(broker):
    """Two partitions; the second one has a record with everything, one with nothing and a tombstone."""
    broker.create("whole", 2)
    produce(broker, "whole", ("before", 5))
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce("whole", b"v", b"k", 1, timestamp=1234, headers=HEADERS)
    producer.produce("whole", b"", None, 1, timestamp=1235)
    producer.produce("whole", None, b"gone", 1, timestamp=1236)
    assert producer.flush(WAIT_S) == 0
    return "whole"


def refuse(record):
    return record.offset if record.partition == 0 else 1 // (record.offset - 1)


def source(broker, topic, schema):
    builder = KafkaSource.builder().set_bootstrap_servers(broker.servers).set_topics(topic)
    builder.set_bounded(KafkaOffsetsInitializer.latest()).set_deserializer(schema)
    return pickle.loads(pickle.dumps(builder.build()))


def read(broker, topic, schema):
    return Task(source(broker, topic, schema)).read_to_end()


def whole(record):
    return record


def partition_one(record):
    return record.offset if record.partition == 1 else None


def test_a_function_sees_all_of_a_record(broker, topic):
    found = sorted(read(broker, topic, KafkaRecordDeserializationSchema.of(whole)))
    kind = "CreateTime"
    epochs = {record.leader_epoch for record in found}
    assert epochs <= {0, None}
    assert [record._replace(leader_epoch=None) for record in found] == [
        KafkaRecord(topic, 0, 0, 5, kind, None, (), None, b"before"),
        KafkaRecord(topic, 1, 0, 1234, kind, None, tuple(HEADERS), b"k", b"v"),
        KafkaRecord(topic, 1, 1, 1235, kind, None, (), None, b""),
        KafkaRecord(topic, 1, 2, 1236, kind, None, (), b"gone", None),
    ]


def test_none_is_no_value_and_event_times_are_kafkas(broker, topic):
    task = Task(source(broker, topic, KafkaRecordDeserializationSchema.of(partition_one)))
    assert task.read_to_end() == [0, 1, 2]
    batches = [batch for batch in task.batches if len(batch)]
    assert np.concatenate([batch.timestamps for batch in batches]).tolist() == [1234, 1235, 1236]


def test_the_type_of_a_function_is_declared_or_pickled():
    of = KafkaRecordDeserializationSchema.of
    assert of(whole).produced_type == Types.PICKLED_BYTE_ARRAY()
    assert of(whole, Types.LONG()).produced_type == Types.LONG()


def test_a_row_has_key_value_and_the_metadata_that_are_named(broker, topic):
    names = ("topic", "partition", "offset", "timestamp", "timestamp-type", "headers")
    schema = KafkaRecordDeserializationSchema.row(TEXT, *names, key=TEXT)
    place = ("CreateTime", HEADERS)
    assert sorted(read(broker, topic, schema), key=lambda row: (row[3], row[4])) == [
        Row(None, "before", topic, 0, 0, 5, "CreateTime", []),
        Row("k", "v", topic, 1, 0, 1234, *place),
        Row(None, "", topic, 1, 1, 1235, "CreateTime", []),
        Row("gone", None, topic, 1, 2, 1236, "CreateTime", []),
    ]
    assert schema.produced_type == Types.ROW_NAMED(
        ["key", "value", *names],
        [
            *(Types.STRING(), Types.STRING(), Types.STRING(), Types.INT(), Types.LONG()),
            *(Types.LONG(), Types.STRING(), Types.LIST(Types.TUPLE([Types.STRING(), BYTES]))),
        ],
    )


def test_values_are_made_whole_whatever_a_program_reads(broker):
    schema = KafkaRecordDeserializationSchema.row(TEXT)
    assert schema.reading(["value"]) is schema
    assert not source(broker, "whole", schema).parses_fields


def test_a_row_of_the_value_alone(broker, topic):
    schema = KafkaRecordDeserializationSchema.row(TEXT)
    found = read(broker, topic, schema)
    assert sorted(str(row[0]) for row in found) == ["", "None", "before", "v"]


def test_a_record_that_is_refused_is_put_aside_with_its_place(broker, topic):
    messages = consumed(broker.servers, topic, (1,))
    batch = batch_of(messages, KafkaRecordDeserializationSchema.of(refuse))
    assert isinstance(batch, MarkedRows)
    first, bad, last = batch.values
    assert (first, last) == (-1, 1)
    said = str(bad.failure)
    assert f"Kafka record {topic}[1] at offset 1 cannot be deserialized" in said
    assert "ZeroDivisionError" in said
    assert pickle.loads(pickle.dumps(bad.raw)).value == b""


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (
            lambda: KafkaRecordDeserializationSchema.row(TEXT, "ofset"),
            ConfigurationError,
            "no metadata 'ofset'. It has topic, partition, headers, leader-epoch, offset",
        ),
        (
            lambda: KafkaRecordDeserializationSchema.row(TEXT, "offset", "offset"),
            ConfigurationError,
            "'offset' is named twice",
        ),
        (
            lambda: KafkaRecordDeserializationSchema.row(str),
            TypeError,
            "expected a DeserializationSchema for the value",
        ),
        (
            lambda: KafkaRecordDeserializationSchema.row(TEXT, key=str),
            TypeError,
            "expected a DeserializationSchema for the key",
        ),
        (
            lambda: KafkaRecordDeserializationSchema.of(3),
            TypeError,
            "expected a function, got 3",
        ),
        (
            lambda: KafkaSource.builder().set_deserializer(TEXT),
            TypeError,
            "call set_value_only_deserializer",
        ),
    ],
)
def test_what_is_no_schema_is_refused(make, error, said):
    with pytest.raises(error) as refused:
        make()
    assert said in str(refused.value)


# ------------------------------------------------------------------ headers of a sink


def headers_of(value):
    return [("length", str(len(value)).encode()), ("none", None)] if value else {}


def sink(broker, guarantee, provider=headers_of):
    record = KafkaRecordSerializationSchema.builder().set_topic("out")
    record.set_value_serialization_schema(TEXT).set_header_provider(provider)
    builder = KafkaSink.builder().set_bootstrap_servers(broker.servers)
    builder.set_record_serializer(record.build()).set_delivery_guarantee(guarantee)
    return builder.set_transactional_id_prefix("tests").build()


@pytest.mark.parametrize("guarantee", [AT_LEAST, EXACTLY])
def test_a_sink_writes_headers(broker, guarantee):
    broker.create("out")
    made = pickle.loads(pickle.dumps(sink(broker, guarantee)))
    writer = made.create_writer(writer_context())
    writer.write(RowBatch(["ab", "", "c"]), 0)
    prepared = writer.prepare_commit()
    writer.close()
    if guarantee is EXACTLY:
        committer = made.create_committer()
        assert committer.commit(prepared) is None
        committer.close()
    assert [message.headers() for message in consumed(broker.servers, "out")] == [
        [("length", b"2"), ("none", None)],
        None,
        [("length", b"1"), ("none", None)],
    ]


@pytest.mark.parametrize("bad", [("a", "text"), ("a",), (b"a", b"b"), "ab"])
def test_headers_that_are_none_are_an_error_with_the_value(broker, bad):
    made = sink(broker, AT_LEAST, lambda value: [bad])
    writer = made.create_writer(writer_context())
    with pytest.raises(TypeError, match="header provider returned .* for 'x'; expected pairs"):
        writer.write(RowBatch(["x"]), 0)
    writer.close()


def test_a_header_provider_is_a_function_and_set_once():
    builder = KafkaRecordSerializationSchema.builder()
    with pytest.raises(TypeError, match="expected a function, got 1"):
        builder.set_header_provider(1)
    builder.set_header_provider(headers_of)
    with pytest.raises(ConfigurationError, match="Set it once"):
        builder.set_header_provider(headers_of)


def test_staged_headers_come_back_as_they_were_and_count():
    plain = ProducedRecords(["a"], [b"k"], [b"v"], None)
    with_headers = ProducedRecords(["b", "b"], None, [b"w", None], None, [HEADERS, ()])
    (found,) = unpack(pack([plain, with_headers]))
    assert [list(one) for one in found.headers] == [[], HEADERS, []]
    (former,) = unpack(pack([plain]))
    assert former.headers is None
    names = len("trace") * 2 + len("none") + len("empty") + len("é".encode())
    assert with_headers.sizes() == [1 + names + 1 + 2 + 0 + 1, 0]
    staged = StagedRecords(1000, "make them smaller")
    with pytest.raises(ValueError, match="make them smaller"):
        staged.add(ProducedRecords(["a"], None, [b""], None, [[("big", bytes(1000))]]))
