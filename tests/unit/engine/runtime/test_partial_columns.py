"""A batch of which some fields were parsed is the whole batch for everybody who does not ask for these fields only."""

import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Types
from penstock.engine.model.row import Row
from penstock.engine.runtime.codecs.codec import ChannelEncoder
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.partial_columns import DecodedColumns, ParsedColumns

TYPE = Types.ROW_NAMED(["a", "b", "c"], [Types.LONG(), Types.STRING(), Types.LONG()])
WHOLE = pa.RecordBatch.from_pydict({"a": [1, 2, 3, 4], "b": [*"wxyz"], "c": [5, 6, 7, None]})
STAMPS = np.array([10, 20, 30, 40])


class Original:
    """Says what it was asked for."""

    def __init__(self) -> None:
        self.asked: list = []

    def columns(self, picked):
        self.asked.append(list(picked))
        return WHOLE.take(pa.array(list(picked)))

    def rows(self, picked):
        return [Row(**one) for one in self.columns(picked).to_pylist()]


def decoded(original, stamps=STAMPS):
    records = [
        SimpleNamespace(a=a, x=c) for a, c in zip([1, 2, 3, 4], [5, 6, 7, None], strict=True)
    ]
    return DecodedColumns(original, range(4), WHOLE.schema, records, {0: "a", 2: "x"}, stamps)


def parsed(original, stamps=STAMPS):
    part = WHOLE.select(["a", "c"])
    return ParsedColumns(original, range(4), WHOLE.schema, part, {0: 0, 2: 1}, stamps)


def field(batch, place):
    if isinstance(batch, DecodedColumns):
        return batch.values_of(place)
    return batch.column(place).to_pylist()


@pytest.fixture(params=[decoded, parsed])
def made(request):
    return request.param


def test_fields_that_were_parsed_are_not_parsed_again(made):
    original = Original()
    batch = made(original)
    assert (len(batch), batch.schema) == (4, WHOLE.schema)
    assert (field(batch, 0), field(batch, 2)) == ([1, 2, 3, 4], [5, 6, 7, None])
    assert original.asked == []


def test_other_fields_are_parsed_once(made):
    original = Original()
    batch = made(original)
    assert batch.column(1).to_pylist() == [*"wxyz"]
    assert batch.data.equals(WHOLE)
    assert batch.select(["b"]).data.to_pydict() == {"b": [*"wxyz"]}
    assert batch.take(np.array([2])).data.to_pylist() == [{"a": 3, "b": "y", "c": 7}]
    assert original.asked == [[0, 1, 2, 3]]


def test_parts_parse_only_their_own_records(made):
    original = Original()
    mask = pa.array([True, False, True, True])
    part = made(original).slice(1, 4).slice(0, 3).filter(mask.slice(1))
    assert (field(part, 0), part.timestamps.tolist()) == ([3, 4], [30, 40])
    assert to_rows(part, TYPE).values == [Row(a=3, b="y", c=7), Row(a=4, b="z", c=None)]
    assert original.asked == [[2, 3]]
    assert len(made(original, None).filter(mask).slice(0, 2)) == 2
    assert made(original, None).filter(mask).timestamps is None


def test_elsewhere_it_is_an_ordinary_batch_of_columns(made):
    loaded = pickle.loads(pickle.dumps(made(Original())))
    assert type(loaded) is ColumnBatch
    assert loaded.data.equals(WHOLE)
    assert loaded.timestamps.tolist() == STAMPS.tolist()
    whole = ChannelEncoder().encode(ColumnBatch(WHOLE, STAMPS))
    assert [*map(bytes, ChannelEncoder().encode(made(Original()))[1])] == [*map(bytes, whole[1])]


def test_records_that_were_decoded_whole_become_rows_at_once():
    original = Original()
    records = [SimpleNamespace(**one) for one in WHOLE.to_pylist()]
    names = {0: "a", 1: "b", 2: "c"}
    batch = DecodedColumns(original, range(4), WHOLE.schema, records, names)
    assert to_rows(batch, TYPE).values == to_rows(ColumnBatch(WHOLE), TYPE).values
    assert original.asked == []


def test_records_of_one_field_become_rows_at_once():
    schema = WHOLE.schema
    records = [SimpleNamespace(a=1), SimpleNamespace(a=(2, 3))]
    one = DecodedColumns(Original(), range(2), pa.schema([schema.field("a")]), records, {0: "a"})
    assert one.rows() == [Row(a=1), Row(a=(2, 3))]
