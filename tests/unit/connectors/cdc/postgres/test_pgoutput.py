"""The decoder of pgoutput, against bytes that are put together as PostgreSQL's documentation says."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.cdc.postgres.pgoutput import (
    EPOCH_US,
    Begin,
    Commit,
    Delete,
    Insert,
    Other,
    Relation,
    RelationColumn,
    Toast,
    Truncate,
    Update,
    decode,
)
from penstock.engine.model.errors import ExternalError

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VALUES = st.lists(st.one_of(TEXTS, st.none(), st.just(Toast.UNCHANGED)), max_size=20)


def row(values):
    """TupleData: Int16 columns; for each n, u, or t with Int32 length and bytes."""
    parts = [struct.pack("!H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value is Toast.UNCHANGED:
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack("!i", len(value.encode())) + value.encode())
    return b"".join(parts)


def oid(number):
    return struct.pack("!I", number)


def test_begin_and_commit_have_their_places_times_and_the_transaction():
    assert decode(b"B" + struct.pack("!qqI", 7, 1_000_000, 4_000_000_000)) == Begin(
        7, EPOCH_US + 1_000_000, 4_000_000_000
    )
    assert decode(b"C\0" + struct.pack("!qqq", 7, 9, 5)) == Commit(7, 9, EPOCH_US + 5)


def test_a_relation_has_columns_with_types_and_says_which_are_of_the_identity():
    data = b"R" + oid(16400) + b"public\0orders\0d" + struct.pack("!H", 2)
    data += b"\x01id\0" + struct.pack("!Ii", 20, -1)
    data += b"\x00price\0" + struct.pack("!Ii", 1700, 655366)
    columns = (
        RelationColumn("id", 20, -1, True),
        RelationColumn("price", 1700, 655366, False),
    )
    assert decode(data) == Relation(16400, "public", "orders", "d", columns)


def test_an_empty_schema_stands_for_pg_catalog():
    data = b"R" + oid(1) + b"\0pg_thing\0f" + struct.pack("!H", 0)
    assert decode(data) == Relation(1, "pg_catalog", "pg_thing", "f", ())


@given(VALUES)
def test_an_insert_has_the_new_row(values):
    assert decode(b"I" + oid(3) + b"N" + row(values)) == Insert(3, values)


@given(VALUES, VALUES)
def test_an_update_has_the_old_row_or_key_if_it_was_sent(old, new):
    assert decode(b"U" + oid(3) + b"N" + row(new)) == Update(3, None, False, new)
    assert decode(b"U" + oid(3) + b"K" + row(old) + b"N" + row(new)) == Update(3, old, False, new)
    assert decode(b"U" + oid(3) + b"O" + row(old) + b"N" + row(new)) == Update(3, old, True, new)


@given(VALUES)
def test_a_delete_has_the_old_row_or_its_key(old):
    assert decode(b"D" + oid(3) + b"K" + row(old)) == Delete(3, old, False)
    assert decode(b"D" + oid(3) + b"O" + row(old)) == Delete(3, old, True)


def test_a_truncate_names_its_tables_whatever_its_options():
    for options in range(4):
        data = b"T" + struct.pack("!IBII", 2, options, 16400, 16401)
        assert decode(data) == Truncate((16400, 16401))


@pytest.mark.parametrize(
    "data",
    [
        b"O" + struct.pack("!q", 1) + b"upstream\0",
        b"Y" + oid(16500) + b"public\0mood\0",
        b"M\x01" + struct.pack("!q", 1) + b"audit\0" + struct.pack("!i", 2) + b"hi",
    ],
)
def test_origins_types_and_messages_of_applications_change_nothing(data):
    assert decode(data) == Other(chr(data[0]))


@pytest.mark.parametrize("data", [b"", b"Z", b"S\0\0\0\1\1"])
def test_what_the_protocol_does_not_have_is_refused(data):
    with pytest.raises(ExternalError, match="kind"):
        decode(data)


@given(st.data())
def test_a_message_that_is_cut_off_is_refused(data):
    whole = b"U" + oid(3) + b"O" + row(["a", None, "long text"]) + b"N" + row(["b", "c", "d"])
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(ExternalError, match="cannot be decoded"):
        decode(whole[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"I" + oid(3) + b"X" + row([]),
        b"U" + oid(3) + b"X" + row([]),
        b"D" + oid(3) + b"N" + row([]),
        b"I" + oid(3) + b"N" + struct.pack("!H", 1) + b"b",
        b"I" + oid(3) + b"N" + struct.pack("!H", 1) + b"t" + struct.pack("!i", -5),
    ],
)
def test_a_message_with_parts_that_do_not_belong_there_is_refused(data):
    with pytest.raises(ExternalError, match="cannot be decoded"):
        decode(data)
