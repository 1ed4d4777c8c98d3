"""Records with several consumers. Expectations: with object reuse off, which is Flink's default, none sees what another changes."""

import pickle
import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Row, RowKind, Types
from penstock.datastream import OutputTag, ProcessFunction
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import RowBatch, Watermark
from penstock.engine.runtime.partial_columns import DecodedColumns
from penstock.engine.runtime.records.output_copies import shared
from tests.tools.programs.environments import minicluster_environment


class Box:
    def __init__(self, held):
        self.held = held

    def __eq__(self, other):
        return self.held == other.held

    __hash__ = None


@dataclass
class Tagged:
    n: int
    tags: list


def change(value):
    """In place, as deep as it goes."""
    match value:
        case [[*_] as inner, *_] | (_, [*_] as inner):
            change(inner)
        case list() | bytearray():
            value.append(7)
        case dict():
            value["new"] = 7
        case set():
            value.add(7)
        case Row():
            value[0] = 7
        case Box():
            value.held = 7


RECORDS = [
    [["x"], ["y"]],
    [{"k": 1}, {"k": 2}],
    [Row(1, "a"), Row(2, "b")],
    [Row.of_kind(RowKind.DELETE, a=1), Row.of_kind(RowKind.DELETE, a=2)],
    [[["deep"]], [[]]],
    [("key", [1])],
    [{1, 2}, bytearray(b"x")],
    [Box(1), Box([2])],
    [1, [2], "three"],
]


@pytest.mark.parametrize("values", RECORDS)
def test_a_copy_shares_nothing_that_can_be_changed(values):
    before = pickle.dumps(values)
    stamps = np.arange(len(values))
    copy, again, last = shared(RowBatch(values, stamps), 3)
    assert last.values is values and again.values == values
    assert copy.values == values and copy.timestamps is stamps
    for value in copy.values:
        change(value)
    assert copy.values != values
    assert pickle.dumps(values) == before


@pytest.mark.parametrize("values", [[1, "a", None], [(1, ("b", 2.5))]])
def test_what_cannot_change_is_not_copied(values):
    batch = RowBatch(values)
    assert list(shared(batch, 2)) == [batch, batch]


@pytest.mark.parametrize("value", [threading.Lock(), iter("ab")])
def test_what_can_go_to_one_consumer_only_is_an_error(value):
    with pytest.raises(TypeError, match=r"cannot be copied|several consumers"):
        list(shared(RowBatch([value]), 2))


def test_decoded_records_with_lists_are_copied():
    """Records of JSON that msgspec has decoded: each consumer makes what it needs of the same objects."""
    schema = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string()))])
    batch = DecodedColumns(None, [0], schema, [Tagged(1, ["a"])], {0: "n", 1: "tags"})
    one, other = shared(batch, 2)
    one.values_of(1)[0].append("b")
    assert (other.values_of(1), one.values_of(0)) == ([["a"]], [1])


def test_the_last_consumer_gets_the_element_itself():
    batch, watermark = RowBatch([[1]]), Watermark(5)
    first, last = shared(batch, 2)
    assert first == batch and first.values[0] is not batch.values[0] and last is batch
    assert list(shared(watermark, 2)) == [watermark, watermark]


# ---------------------------------------------------------------------- in jobs

SIDE = OutputTag("side")
ROW = Types.ROW_NAMED(["a"], [Types.INT()])


class ToSide(ProcessFunction):
    def process_element(self, value, ctx):
        yield SIDE, value


def marked(value):
    value.append("m")
    return value


def increased(row):
    row.a += 1
    return row


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2)).set_parallelism(2)


@pytest.mark.parametrize(
    ("ways", "times"),
    [
        (lambda ds: [ds, ds], 2),
        (lambda ds: [ds.rebalance(), ds.rebalance()], 2),
        (lambda ds: [ds.key_by(str), ds.key_by(str)], 2),
        (lambda ds: [ds.filter(lambda _: True), ds], 2),
        (lambda ds: [ds.broadcast()], 2),
        (lambda ds: [ds.process(ToSide()).get_side_output(SIDE)] * 2, 2),
    ],
    ids=["chained", "rebalanced", "keyed", "filtered", "broadcast", "side output"],
)
def test_branches_do_not_see_what_another_one_changes(env, ways, times):
    stream = env.from_collection([["x"], ["y"], ["z"]]).map(lambda value: value)
    first, *others = [way.map(marked) for way in ways(stream)]
    with first.union(*others).execute_and_collect() as rows:
        assert sorted(rows) == [[text, "m"] for text in "xyz" for _ in range(times)]


def test_branches_have_their_own_typed_rows(env):
    stream = env.from_collection([Row(1)], ROW).map(lambda row: row, ROW)
    with (
        stream
        .map(increased, ROW)
        .union(stream.map(increased, ROW), stream.rebalance())
        .execute_and_collect() as rows
    ):
        assert sorted(row.a for row in rows) == [1, 2, 2]
