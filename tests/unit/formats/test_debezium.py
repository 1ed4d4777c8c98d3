"""Debezium's changes as Rows with kinds. The messages have the form of Debezium's documentation (tutorial of its MySQL connector)."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, RowKind, Types
from penstock.common.serialization import Several, SimpleStringSchema
from penstock.connectors.api.messaging.records import batch_of
from penstock.connectors.kafka import KafkaRecord, KafkaRecordDeserializationSchema
from penstock.datastream.formats import (
    DebeziumJsonDeserializationSchema,
    DebeziumJsonSerializationSchema,
)

CUSTOMER = Types.ROW_NAMED(["id", "name", "weight"], [Types.INT(), Types.STRING(), Types.DOUBLE()])
ANNE = {"id": 1004, "name": "Anne", "weight": 5.5}
MARIE = {"id": 1004, "name": "Anne Marie", "weight": None}
INSERT, BEFORE, AFTER, DELETE = RowKind


def row(kind, fields):
    found = Row.of_kind(kind, *fields.values())
    found.set_field_names(list(fields))
    return found


def message(op, before=None, after=None):
    source = {"name": "dbserver1", "table": "customers", "pos": 484, "snapshot": "false"}
    change = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1486500577691}
    return json.dumps({**change, "transaction": None}).encode()


def wrapped(data):
    return json.dumps({"schema": {"type": "struct"}, "payload": json.loads(data)}).encode()


def kinds(rows):
    return [found.get_row_kind() for found in rows]


CHANGES = [
    (message("c", after=ANNE), [row(INSERT, ANNE)]),
    (message("r", after=ANNE), [row(INSERT, ANNE)]),
    (message("u", ANNE, MARIE), [row(BEFORE, ANNE), row(AFTER, MARIE)]),
    (message("d", MARIE), [row(DELETE, MARIE)]),
]


@pytest.mark.parametrize(("data", "expected"), CHANGES)
@pytest.mark.parametrize("includes", [False, True])
def test_a_change_is_one_row_and_an_update_two(data, expected, includes):
    schema = DebeziumJsonDeserializationSchema(CUSTOMER, schema_include=includes)
    schema = pickle.loads(pickle.dumps(schema))
    found = schema.deserialize(wrapped(data) if includes else data)
    assert found == expected
    assert kinds(found) == kinds(expected)
    assert schema.produced_type == CUSTOMER


@pytest.mark.parametrize("data", [b"", None])
def test_a_tombstone_is_no_record(data):
    assert DebeziumJsonDeserializationSchema(CUSTOMER).deserialize(data) is None


BAD = [
    (message("u", None, MARIE), "'op' 'u' has no row in 'before'.*REPLICA IDENTITY FULL"),
    (message("d"), "'op' 'd' has no row in 'before'.*REPLICA IDENTITY FULL"),
    (message("u", ANNE), "'op' 'u' has no row in 'after'"),
    (message("c"), "'op' 'c' has no row in 'after'"),
    (message("t"), "'op' is 't'; expected 'c', 'r', 'u' or 'd'"),
    (wrapped(message("c", after=ANNE)), "'op' is None.*set schema_include"),
    (b'{"op":', "cannot be read as JSON"),
    (b"[1]", "cannot be read as JSON"),
    (message("c", after={"id": "x"}), "cannot be read as JSON"),
]


@pytest.mark.parametrize(("data", "said"), BAD)
def test_what_is_no_change_is_an_error_that_shows_it(data, said):
    with pytest.raises(ValueError, match=said) as failed:
        DebeziumJsonDeserializationSchema(CUSTOMER).deserialize(data)
    assert repr(data[:40])[2:-1] in str(failed.value)


def test_a_change_without_payload_says_what_to_leave_out():
    schema = DebeziumJsonDeserializationSchema(CUSTOMER, schema_include=True)
    with pytest.raises(ValueError, match="no 'payload'.*leave schema_include out"):
        schema.deserialize(message("c", after=ANNE))


@pytest.mark.parametrize(("data", "said"), BAD[:-1])
def test_errors_may_be_ignored(data, said):
    schema = DebeziumJsonDeserializationSchema(CUSTOMER, ignore_parse_errors=True)
    assert schema.deserialize(data) is None


def test_a_field_that_cannot_be_read_is_none_where_errors_are_ignored():
    schema = DebeziumJsonDeserializationSchema(CUSTOMER, ignore_parse_errors=True)
    (found,) = schema.deserialize(message("c", after={"id": "x", "name": "y"}))
    assert found == row(INSERT, {"id": None, "name": "y", "weight": None})


def test_only_a_row_type_will_do():
    with pytest.raises(TypeError, match="expected a row type"):
        DebeziumJsonDeserializationSchema(Types.INT())


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(RowKind)),
            st.tuples(st.integers(-(2**31), 2**31 - 1), st.text(), st.floats(allow_nan=False)),
        ),
        max_size=5,
    )
)
def test_what_is_written_is_read_again_with_updates_as_deletes_and_inserts(changes):
    writes, reads = (
        DebeziumJsonSerializationSchema(CUSTOMER),
        DebeziumJsonDeserializationSchema(CUSTOMER),
    )
    rows = [row(kind, dict(zip(ANNE, fields, strict=True))) for kind, fields in changes]
    rows = [found for found in rows if abs(found[2]) != float("inf")]
    found = [one for change in rows for one in reads.deserialize(writes.serialize(change))]
    assert [one.as_dict() for one in found] == [one.as_dict() for one in rows]
    as_read = {BEFORE: DELETE, AFTER: INSERT}
    assert kinds(found) == [as_read.get(kind, kind) for kind in kinds(rows)]


def test_the_form_is_debeziums():
    writes = DebeziumJsonSerializationSchema(CUSTOMER)
    deleted = json.loads(writes.serialize(row(DELETE, ANNE)))
    assert deleted == {"before": ANNE, "after": None, "op": "d"}
    assert json.loads(writes.serialize(row(AFTER, MARIE)))["op"] == "c"


# ------------------------------------------------------------------ several values of a message


def test_each_value_of_a_message_is_a_record_with_its_messages_time():
    schema = DebeziumJsonDeserializationSchema(CUSTOMER)
    messages = [data for data, _ in CHANGES] + [None]
    batch = batch_of(messages, np.arange(5), schema, str)
    expected = [found for _, rows in CHANGES for found in rows]
    assert batch.values == expected
    assert kinds(batch.values) == kinds(expected)
    assert batch.timestamps.tolist() == [0, 1, 2, 2, 3]


class Words(SimpleStringSchema):
    def deserialize(self, data):
        return Several(data.decode().split())


def test_a_message_may_have_no_value_at_all():
    assert batch_of([b"", b" "], np.arange(2), Words(), str) is None
    batch = batch_of([b"a b", b"", b"c"], None, Words(), str)
    assert (batch.values, batch.timestamps) == (["a", "b", "c"], None)


def test_metadata_of_kafka_stand_beside_each_row_of_a_change():
    schema = KafkaRecordDeserializationSchema.row(
        DebeziumJsonDeserializationSchema(CUSTOMER), "offset", key=SimpleStringSchema()
    )
    data = message("u", ANNE, MARIE)
    record = KafkaRecord("t", 0, 7, None, None, None, (), b"k", data)
    found = schema.deserialize(record)
    assert found == [
        Row.of_kind(BEFORE, "k", row(BEFORE, ANNE), 7),
        Row.of_kind(AFTER, "k", row(AFTER, MARIE), 7),
    ]
