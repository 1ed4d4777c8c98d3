"""What operators keep: frozen, written, read, refused. Expectations:
docs/spec/state.md#kinds-of-keyed-state, #time-to-live, #rescaling-keyed-state.
"""

import math
import pickle
from collections import deque
from decimal import Decimal
from enum import Enum
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.checkpoints import OperatorRestore, RedistributionMode
from penstock.engine.model.errors import ExternalError, UserError
from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.time import Time
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import RowBatch, Watermark
from penstock.engine.runtime.keys import KeySelection, key_group, state_key
from penstock.engine.runtime.operators import ReduceOperator
from penstock.engine.runtime.records.frozen import Pickled, frozen, is_immutable, plain_dumps
from penstock.engine.runtime.sources.contract import ReaderStatus
from penstock.engine.runtime.sources.operator import SourceOperator, SourceSettings
from penstock.engine.runtime.state import snapshot_writer
from penstock.engine.runtime.state.column_format import decode_column, encode_column
from penstock.engine.runtime.state.descriptors import (
    ListStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from penstock.engine.runtime.state.migration import StateOwner
from penstock.engine.runtime.state.snapshot import (
    IN_HAND,
    KeyedPart,
    ListPart,
    OperatorSnapshot,
    StateInfo,
)
from penstock.engine.runtime.state.snapshot_reader import read_operator
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy
from penstock.engine.runtime.windowing import TimeWindow
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import read, rescaled, written_state
from tests.tools.runtime.source_parts import NoSource
from tests.tools.runtime.task_parts import Clock, context_for, opened, spec_of


class Colour(Enum):
    RED = 1


ATOMS = st.one_of(
    st.integers(), st.floats(), st.text(st.characters()), st.binary(), st.booleans(), st.none(),
    st.decimals(allow_nan=False), st.just(Colour.RED),
)  # fmt: skip
SOME = st.one_of(
    st.lists(st.integers()), st.lists(st.floats()), st.lists(st.text(st.characters())),
    st.lists(st.tuples(st.integers(0, 9), st.text())), st.lists(st.tuples()), st.lists(ATOMS),
    st.lists(st.tuples(st.tuples(st.booleans(), st.none()), ATOMS)), st.lists(st.none()),
    st.lists(st.lists(st.integers())), st.lists(st.dictionaries(st.text(), ATOMS)),
)  # fmt: skip


@given(SOME)
def test_a_column_comes_back_equal_and_of_the_same_types(values):
    data = memoryview(b"".join(encode_column(values, plain_dumps)))
    found, end = decode_column(data, 0, pickle.loads)
    assert repr(found) == repr(values)
    assert end == len(data)


@pytest.mark.parametrize(
    "values", [[1, -(2**63)], [1.5, math.inf], ["é", ""], [b"\0"], [True], [None], [(1, "a", None)]]
)
def test_plain_data_needs_no_pickle(values):
    def refused(_data):
        raise AssertionError("pickled")

    data = memoryview(b"".join(encode_column(values, refused)))
    assert decode_column(data, 0, refused)[0] == values


def test_what_cannot_change_is_known_by_its_type_at_any_depth():
    assert is_immutable([1, "a", (2.0, (None, Decimal(1))), Colour.RED, TimeWindow(0, 1)])
    assert is_immutable([])
    for value in ([1], {}, (1, [2]), deque(), Row(1), bytearray()):
        assert not is_immutable([0, value])


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1],
        lambda: [[1]],
        lambda: {"a": 1},
        lambda: {"a": [1]},
        lambda: {"a": [1], "b": [(2, "x")]},
        lambda: {"a": [[1]]},
        lambda: Row(1, 2),
        lambda: Row(a=1, b=[2]),
        lambda: (1, [2]),
        lambda: deque([1]),
    ],
)
def test_a_snapshot_does_not_see_what_happens_to_objects_later(make):
    values = [make(), make()]
    part = KeyedPart(StateInfo("Value"), 128, False, ["a", "b"], [values])
    snapshot = OperatorSnapshot({"state": part}).freeze(plain_dumps)
    for value in values:
        if isinstance(value, dict) and isinstance(value["a"], list):
            value["a"].append(9)
        elif isinstance(value, dict):
            value["a"] = 9
        elif isinstance(value, Row):
            value[0] = 9
        elif isinstance(value, tuple):
            value[1].append(9)
        else:
            value.append(9)
    (again,) = rescaled([snapshot], 1)
    assert again.keyed["state"].columns == [[make(), make()]]


def test_rows_keep_their_names_and_kind():
    named = [Row.of_kind(RowKind.DELETE, a=number, b="x") for number in range(3)]
    for rows in (named, [Row(1), Row(2)], [Row(1), Row(a=1)], [Row([1])]):
        keys = list(range(len(rows)))
        part = KeyedPart(StateInfo("Value"), 1, False, keys, [rows])
        (again,) = rescaled([OperatorSnapshot({"s": part}).freeze(plain_dumps)], 1)
        assert sorted(again.keyed["s"].rows()) == list(enumerate(rows))
        found = [row for _, row in sorted(again.keyed["s"].rows())]
        assert [row.get_row_kind() for row in found] == [row.get_row_kind() for row in rows]


def test_many_objects_are_pickled_in_pieces():
    column = frozen([deque([number]) for number in range(10_000)], plain_dumps)
    assert isinstance(column, Pickled)
    assert len(column.chunks) == 3


def test_tables_of_lists_need_no_pickle():
    def refused(_data):
        raise AssertionError("pickled")

    assert frozen([{5: [(1, "a")], 6: []}, {}], refused) == [{5: [(1, "a")], 6: []}, {}]


def test_tables_survive():
    tables = [pa.table({"a": [1, 2]}), pa.table({"a": ["x"]}).slice(1)]
    data = memoryview(b"".join(encode_column(tables, plain_dumps)))
    assert decode_column(data, 0, pickle.loads)[0] == tables


def test_a_subtask_reads_only_the_chunks_that_have_its_groups(monkeypatch):
    monkeypatch.setattr(snapshot_writer, "CHUNK_BYTES", 2000)
    keys = [state_key(("k", float(number))) for number in range(500)]
    part = KeyedPart(StateInfo("Value"), 128, False, keys, [list(range(500))])
    state = written_state(OperatorSnapshot({"s": part}).freeze(plain_dumps))
    assert len(state.keyed) > 4
    handles = state.keyed
    assert [one.first_group for one in handles] == sorted(one.first_group for one in handles)
    reads = []

    def counted(handle):
        reads.append(handle)
        return read(handle)

    snapshot = read_operator(OperatorRestore(handles), counted, (40, 63), pickle.loads)
    assert 0 < len(reads) < len(handles)
    expected = [n for n, skey in enumerate(keys) if 40 <= key_group(skey.key, 128) <= 63]
    assert sorted(snapshot.keyed["s"].columns[0]) == expected


def test_lists_go_where_their_mode_says():
    modes = [
        RedistributionMode.SPLIT,
        RedistributionMode.UNION,
        RedistributionMode.BROADCAST,
    ]
    snapshots = [
        OperatorSnapshot(lists={
            mode.value: ListPart(mode, [(subtask, number) for number in range(3)])
            for mode in modes
        }).freeze(plain_dumps)
        for subtask in range(2)
    ]  # fmt: skip
    first, second, third = rescaled(snapshots, 3)
    assert [one.elements("SPLIT") for one in (first, second, third)] == [
        [(0, 0), (0, 1)], [(0, 2), (1, 0)], [(1, 1), (1, 2)],
    ]  # fmt: skip
    assert len(second.elements("UNION")) == 6
    assert [one.elements("BROADCAST")[0] for one in (first, second, third)] == [
        (0, 0), (1, 0), (0, 0),
    ]  # fmt: skip
    assert first.elements("unknown") == []


TTL = StateTtlConfig.new_builder(Time.milliseconds(10)).build()


def with_ttl(descriptor):
    descriptor.enable_time_to_live(TTL)
    return descriptor


@pytest.mark.parametrize(
    ("declared", "texts"),
    [
        (lambda: ListStateDescriptor("s", Types.LONG()), ("Value of", "List of")),
        (lambda: ValueStateDescriptor("s", Types.STRING()), ("LONG|Long", "STRING|String")),
        (lambda: with_ttl(ValueStateDescriptor("s", Types.LONG())), ("without time", "with time")),
    ],
)
def test_another_kind_type_or_time_to_live_is_refused_with_operator_state_and_both(declared, texts):
    backend = HeapKeyedStateBackend()
    backend.set_key("k")
    backend.get_state(ValueStateDescriptor("s", Types.LONG())).update(7)
    again = HeapKeyedStateBackend()
    again.owner = StateOwner("my-uid")
    again.restore(backend.snapshot())
    before, now = texts
    with pytest.raises(UserError, match=f"'my-uid'.*'s'.*({before}).*declares.*({now})"):
        again.of(declared())
    again.set_key("k")
    assert again.get_state(ValueStateDescriptor("s", Types.LONG())).value() == 7


def test_keys_that_were_hashed_otherwise_are_refused():
    def operator(key_type):
        return ReduceOperator(UserFunction(max), KeySelection(lambda v: v, key_type))

    op = OperatorHarness(operator(Types.INT()))
    op.feed([5])
    again = operator(None)
    again.restore(op.operator.snapshot())
    with pytest.raises(UserError, match="'op'.*declared key type was INT"):
        OperatorHarness(again)


def test_state_that_nobody_has_asked_for_stays_in_the_next_snapshot():
    backend = HeapKeyedStateBackend()
    backend.set_key("k")
    backend.get_state(ValueStateDescriptor("old")).update([7])
    again = HeapKeyedStateBackend()
    again.restore(backend.snapshot())
    last = HeapKeyedStateBackend()
    snapshot = OperatorSnapshot()
    snapshot.add("state", again.snapshot())
    last.restore(rescaled([snapshot.freeze(plain_dumps)], 1)[0].take("state/"))
    last.set_key("k")
    assert last.get_state(ValueStateDescriptor("old")).value() == [7]


def test_keyed_state_of_a_later_format_is_refused(monkeypatch):
    part = KeyedPart(StateInfo("Value"), 128, False, ["a"], [[1]])
    monkeypatch.setattr(snapshot_writer, "VERSION", 2)
    state = written_state(OperatorSnapshot({"s": part}).freeze(plain_dumps))
    monkeypatch.setattr(snapshot_writer, "VERSION", 1)
    with pytest.raises(ExternalError, match="format 2: expected 1"):
        read_operator(OperatorRestore(state.keyed), read, (0, 127), pickle.loads)


class Reader:
    """Reads nothing; its splits are its state."""

    def __init__(self):
        self.splits = []

    def add_splits(self, splits):
        self.splits += splits

    def split_ids(self, splits):
        return splits

    def snapshot_state(self):
        return self.splits

    def poll_next(self):
        return ReaderStatus.NOTHING_AVAILABLE


class SourceTime:
    def now_ms(self):
        return 0

    monotonic_ms = active_ms = now_ms


def started(splits=(), snapshot=None):
    operator = SourceOperator(NoSource(), WatermarkStrategy.no_watermarks())
    if snapshot is not None:
        operator.restore(snapshot)
    reader = Reader()
    operator.start(reader, SourceTime(), SourceSettings())
    operator.add_splits(list(splits))
    return operator, reader


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=4), st.integers(1, 5))
def test_splits_are_shared_out_evenly_and_none_is_lost(splits, parallelism):
    operators = [started(mine)[0] for mine in splits]
    snapshots = [operator.snapshot().freeze(plain_dumps) for operator in operators]
    restored = [started(snapshot=one)[1].splits for one in rescaled(snapshots, parallelism)]
    assert sorted(chain.from_iterable(restored)) == sorted(chain.from_iterable(splits))
    if parallelism == len(splits):
        assert restored == splits
    else:
        assert max(map(len, restored)) - min(map(len, restored)) <= 1


def test_elements_in_hand_are_a_list_of_the_head_and_operators_are_restored_by_uid():
    def operators():
        return [
            ReduceOperator(UserFunction(lambda a, b: a + b), KeySelection(lambda v: v % 2)),
            ReduceOperator(UserFunction(max), KeySelection(lambda v: v % 2)),
        ]

    before = opened(operators())
    list(before.feed(RowBatch([1, 2, 3])))
    in_hand = [(0, RowBatch(["later"])), (0, Watermark(7))]
    states = before.snapshot(in_hand)
    assert set(states) == {"uid0", "uid1"}
    read_again = {uid: rescaled([state], 1)[0] for uid, state in states.items()}
    (_, batch), (_, watermark) = read_again["uid0"].elements(IN_HAND)
    assert (batch.values, watermark) == (["later"], Watermark(7))
    again = OperatorChain(spec_of(operators()), Clock().now_ms)
    again.restore({**read_again, "unknown": OperatorSnapshot()})
    again.open(context_for)
    (routed,) = (one for one in again.feed(RowBatch([5, 6])) if one is not None)
    assert routed[1].values == [9, 8]
