"""Messages of any broker as batches of records."""

import numpy as np

from penstock.common import Row, RowKind
from penstock.common.serialization import DeserializationSchema, Several
from penstock.connectors.api.messaging.records import around, batch_of, batch_with_names
from penstock.engine.runtime.records.dead_letters import Malformed


class Numbers(DeserializationSchema):
    """Arrays, which have no truth when they are compared. Nothing of an empty message."""

    def deserialize(self, data):
        return np.frombuffer(data, np.uint8) if data else None


def test_records_may_be_anything_that_is_not_none():
    batch = batch_of([b"ab", b"", b"c"], np.array([1, 2, 3], np.int64), Numbers(), str)
    assert [record.tolist() for record in batch.values] == [[97, 98], [99]]
    assert batch.timestamps.tolist() == [1, 3]


def test_none_of_no_messages_is_a_record():
    assert batch_of([b"", b""], None, Numbers(), str) is None


class Changes(DeserializationSchema):
    """A Row for each letter, `a` gone and anything else come; only `a`: a Row by itself; nothing: None."""

    def deserialize(self, data):
        found = [Row(letter=letter) for letter in data.decode("ascii")]
        for row in found:
            row.set_row_kind(RowKind.DELETE if row["letter"] == "a" else RowKind.INSERT)
        if len(found) > 1:
            return Several([*found, None])
        return found[0] if found else None


def test_each_of_several_values_has_the_name_and_its_own_kind():
    stamps = np.array([1, 2, 3, 4], np.int64)
    batch = batch_with_names(
        ("topic", "value"), "tuvw", [b"ab", b"", b"a", b"\xff"], stamps, Changes(), str
    )
    *rows, bad = batch.values
    assert [(row["topic"], row["value"]["letter"], row.get_row_kind()) for row in rows] == [
        ("t", "a", RowKind.DELETE),
        ("t", "b", RowKind.INSERT),
        ("v", "a", RowKind.DELETE),
    ]
    assert isinstance(bad, Malformed)
    assert bad.raw == ("w", b"\xff")
    assert str(bad.failure).startswith("3 cannot be deserialized by Changes: UnicodeDecodeError")
    assert batch.timestamps.tolist() == [1, 1, 3, 4]


def test_nothing_is_put_around_nothing():
    assert batch_with_names(("topic", "value"), "t", [b""], None, Changes(), str) is None
    assert around(Several([None]), lambda value: value) == Several([None])
