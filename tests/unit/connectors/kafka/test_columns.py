"""KafkaSink makes the same records of columns as of the rows that the columns stand for, and asks for columns only where they suffice."""

import json

import numpy as np
import pytest

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.serialization import RowFieldExtractorSchema, SimpleStringSchema
from penstock.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from penstock.datastream import OutputTag
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.runtime.codecs.convert import to_columns
from penstock.engine.runtime.elements import NO_TIMESTAMP, RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.testing import CollectingSink
from tests.tools.brokers.kafka_topics import bounded, consumed, produce, sink_builder, texts
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment

ONCE, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE
KIND = Types.ROW_NAMED(
    ["id", "name", "tags"], [Types.LONG(), Types.STRING(), Types.LIST(Types.STRING())]
)
TEXTS = Types.ROW_NAMED(["id", "name", "tags"], [Types.LONG(), Types.STRING(), Types.STRING()])
ROWS = [Row(id=1, name="ä\n", tags=["x", None]), Row(id=None, name=None, tags=None)]
BAD = OutputTag("bad")


def writes(kind=KIND):
    return JsonRowSerializationSchema.builder().with_type_info(kind).build()


def built(**more):
    builder = KafkaRecordSerializationSchema.builder()
    for name, given in ({"topic": "a", "value_serialization_schema": writes()} | more).items():
        getattr(builder, f"set_{name}")(given)
    sink = KafkaSink.builder().set_bootstrap_servers("localhost:1")
    return sink.set_record_serializer(builder.build()).build()


@pytest.mark.parametrize("guarantee", [AT_LEAST, ONCE])
def test_columns_become_the_records_of_their_rows(broker, guarantee):
    broker.create("a")
    sink = sink_builder(broker.servers, "a", guarantee, value=writes()).build()
    batch = RowBatch(ROWS, np.array([5, NO_TIMESTAMP]))
    writer = sink.create_writer(writer_context(input_type=KIND))
    for one in (batch, to_columns(batch, KIND)):
        writer.write(one, 0)
    committables = writer.prepare_commit()
    if guarantee is ONCE:
        committer = sink.create_committer()
        committer.commit(committables)
        committer.close()
    writer.close()
    found = [(one.value(), one.timestamp()[1]) for one in consumed(broker.servers, "a")]
    assert [value for value, _ in found] == 2 * [
        '{"id":1,"name":"ä\\n","tags":["x",null]}'.encode(),
        b'{"id":null,"name":null,"tags":null}',
    ]
    assert [at_ms for _, at_ms in found[::2]] == [5, 5]


def test_columns_are_wanted_where_nothing_else_looks_at_records():
    assert built().accepts is Accepts.ANY


@pytest.mark.parametrize(
    "more",
    [
        {"key_serialization_schema": RowFieldExtractorSchema(0)},
        {"header_provider": lambda row: {"id": b"x"}},
        {"value_serialization_schema": SimpleStringSchema()},
    ],
    ids=["key", "headers", "text"],
)
def test_rows_are_wanted_where_somebody_looks_at_them(more):
    assert built(**more).accepts is Accepts.ROWS


def test_rows_are_wanted_by_a_topic_selector(broker):
    sink = sink_builder(broker.servers, lambda row: row.name, AT_LEAST, value=writes()).build()
    assert sink.accepts is Accepts.ROWS


@pytest.mark.parametrize("maps", [False, True], ids=["columns", "rows"])
def test_a_record_that_the_serializer_refuses_is_put_aside(broker, maps):
    """The stream has texts where the serializer wants maps, so that `None` alone is written. Of a few records a map makes rows."""
    broker.create("in")
    broker.create("out")
    values = [{"id": 1, "name": "a"}, {"id": 2, "name": "b", "tags": "x"}, {"id": 3}]
    produce(broker, "in", *map(json.dumps, values))
    env = restarting_environment(Watcher())
    reads = JsonRowDeserializationSchema.builder().type_info(TEXTS).build()
    source = bounded(broker.servers, "in", schema=reads).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in")
    if maps:
        rows = rows.map(lambda row: Row(id=row.id, name=row.name, tags=row.tags), TEXTS)
    kind = Types.ROW_NAMED(
        ["id", "name", "tags"],
        [Types.LONG(), Types.STRING(), Types.MAP(Types.STRING(), Types.LONG())],
    )
    sink = rows.sink_to(sink_builder(broker.servers, "out", AT_LEAST, value=writes(kind)).build())
    letters = CollectingSink()
    sink.on_error(BAD).get_side_output(BAD).sink_to(letters)
    env.execute("columns")
    assert sorted(texts(broker.servers, "out")) == [
        '{"id":1,"name":"a","tags":null}',
        '{"id":3,"name":null,"tags":null}',
    ]
    (letter,) = letters.values
    assert letter.record == Row(id=2, name="b", tags="x")
