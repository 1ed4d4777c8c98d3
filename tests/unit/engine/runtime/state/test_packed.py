"""Packed columns come back as they were, in any order and cut anywhere. Expectations:
docs/spec/state.md#kinds-of-keyed-state.
"""

import math
import pickle
from decimal import Decimal
from enum import Enum

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.types import Types
from penstock.engine.runtime.keys import key_group, state_key
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state import snapshot_writer
from penstock.engine.runtime.state.column_format import decode_column
from penstock.engine.runtime.state.descriptors import ValueStateDescriptor
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from penstock.engine.runtime.state.packed import (
    KeyRule,
    PackedRows,
    PackedTuples,
    PackedValues,
    packed,
)
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from tests.tools.runtime.restoring import rescaled

ATOMS = st.one_of(
    st.integers(), st.floats(), st.text(st.characters()), st.binary(), st.booleans(), st.none(),
    st.decimals(allow_nan=False),
)  # fmt: skip
COLUMNS = st.one_of(
    st.lists(st.integers()), st.lists(st.floats()), st.lists(st.text(st.characters())),
    st.lists(ATOMS), st.lists(st.tuples(st.integers(), st.text())), st.lists(st.tuples()),
    st.lists(st.tuples(st.tuples(st.booleans(), st.none()), ATOMS)),
    st.lists(st.one_of(st.tuples(st.integers()), st.tuples(st.integers(), st.text()))),
)  # fmt: skip


def found_in(column, start, end):
    def refused(_value):
        raise AssertionError("a plain value needs no pickle of users' classes")

    data = memoryview(b"".join(column.encoded(start, end, refused)))
    values, position = decode_column(data, 0, pickle.loads)
    assert position == len(data)
    return values


@given(COLUMNS, st.randoms(use_true_random=False), st.data())
def test_a_packed_column_is_put_in_order_and_cut(values, random, data):
    order = list(range(len(values)))
    random.shuffle(order)
    start = data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(start, len(values)))
    column = packed(values).taken(pa.array(order, pa.int64()))
    assert repr(found_in(column, start, end)) == repr([values[at] for at in order][start:end])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], PackedValues),
        ([(1, "a", None), (2, "b", None)], PackedTuples),
        ([Row(a=1, b="x"), Row(a=2, b="y")], PackedRows),
        ([((1, 2.0), b"x")], PackedTuples),
    ],
)
def test_plain_data_is_packed(values, kind):
    column = packed(values)
    assert type(column) is kind
    assert repr(found_in(column, 0, len(values))) == repr(values)


def test_rows_keep_their_kind():
    rows = [Row.of_kind(RowKind.UPDATE_AFTER, a=n, b=Decimal(n)) for n in range(3)]
    column = packed(rows).taken(pa.array([2, 0, 1]))
    found = found_in(column, 1, 3)
    assert found == [rows[0], rows[1]]
    assert {row.get_row_kind() for row in found} == {RowKind.UPDATE_AFTER}


@pytest.mark.parametrize(
    "values",
    [
        [[1]],
        [{"a": 1}],
        [(1, [2])],
        [(1, Row(a=1))],
        [Row(a=1), Row(b=1)],
        [Row(a=[1])],
        [Row(1), Row.of_kind(RowKind.DELETE, 1)],
        [bytearray(b"x")],
        [(1, 2), (1, [2], 3)],
    ],
)
def test_what_can_be_changed_is_not_packed(values):
    assert packed(values) is None


CLASSES = st.sampled_from([
    st.integers(-2, 2), st.booleans(), st.floats(allow_nan=False), st.text(max_size=2),
    st.just(Decimal(1)), st.lists(st.integers(), max_size=1), st.integers(),
    st.tuples(st.integers(), st.text(max_size=1)),
])  # fmt: skip


@given(st.lists(CLASSES, min_size=1, max_size=3), st.data())
def test_a_value_state_comes_back_whatever_classes_its_values_had(classes, data):
    backend = HeapKeyedStateBackend(4)
    wanted = {}
    for values in classes:
        state = backend.get_state(ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()))
        for _ in range(data.draw(st.integers(0, 4))):
            key, value = data.draw(st.integers(0, 3)), data.draw(values)
            backend.set_key(key)
            state.update(value)
            wanted[key] = value
        snapshot = OperatorSnapshot()
        snapshot.add("state", backend.snapshot())
        (again,) = rescaled([snapshot.freeze(plain_dumps)], 1)
        backend = HeapKeyedStateBackend(4)
        backend.restore(again.take("state/"))
        found = backend.get_state(ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()))
        for key, value in wanted.items():
            backend.set_key(key)
            assert repr(found.value()) == repr(value)


class EqualToAll:
    """Is told from None by its class only."""

    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


@pytest.mark.parametrize("other", [pa.NULL, EqualToAll(), 0, math.nan])
def test_a_long_column_of_none_with_something_else_is_not_taken_for_none(other):
    column = packed([None] * 5000 + [other])
    if column is not None:
        assert repr(found_in(column, 0, 5001)) == repr([None] * 5000 + [other])
    assert packed([None] * 5000) == PackedValues(pa.nulls(5000))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: n,
        float,
        lambda n: f"é{n}",
        lambda n: (n, f"{n}", None, (n, 0.5)),
        lambda n: (n, n if n % 5000 else None),
        lambda n: (n, 2**70 if n == 9000 else n),
        lambda n: (n,) if n < 5000 else (n, n),
        lambda n: n if n < 4096 else str(n),
        lambda n: Row(a=n, b=(n, "x")),
        lambda n: Row(n, None if n < 4096 else n),
    ],
)
def test_a_long_column_is_packed_piece_by_piece(make):
    values = [make(n) for n in range(10_000)]
    column = packed(values)
    assert repr(found_in(column, 4000, 9500)) == repr(values[4000:9500])
    turned = column.taken(pa.array(range(9999, -1, -1)))
    assert repr(found_in(turned, 0, 10_000)) == repr(values[::-1])


def test_rows_of_several_kinds_are_not_packed():
    rows = [Row(a=n) for n in range(4096)]
    assert packed([*rows, Row(b=1)]) is None
    assert packed([*rows, 1]) is None
    assert packed([*range(4096), Row(a=1)]) is None


def test_numbers_keep_their_class():
    for values in ([1, True], [1, 1.0], [(1, 2), (True, 2)], [2**63], ["\ud800"]):
        assert repr(found_in(packed(values), 0, len(values))) == repr(values)


class Colour(Enum):
    RED = 1


KEYS = st.one_of(
    st.integers(-3, 3), st.integers(), st.text(max_size=2), st.booleans(),
    st.floats(allow_nan=False),
    st.tuples(st.integers(0, 2), st.text(max_size=1)), st.just(Colour.RED), st.binary(max_size=1),
)  # fmt: skip
CHANGES = st.lists(st.tuples(st.booleans(), KEYS), max_size=12)


def written(backend):
    snapshot = OperatorSnapshot()
    snapshot.add("state", backend.snapshot())
    snapshot.freeze(plain_dumps)
    chunks = []
    snapshot_writer.write_operator(snapshot, chunks.append, plain_dumps, pickle.loads)
    return chunks


@given(st.lists(CHANGES, min_size=1, max_size=4))
def test_a_checkpoint_after_others_is_the_one_that_a_first_one_would_be(rounds):
    backend = HeapKeyedStateBackend(16)
    state = backend.get_state(ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()))
    wanted = {}
    for number, changes in enumerate(rounds):
        for is_added, key in changes:
            backend.set_key(key)
            if is_added:
                state.update((number, "x"))
                wanted[state_key(key)] = (number, "x")
            else:
                state.clear()
                wanted.pop(state_key(key), None)
        fresh = HeapKeyedStateBackend(16)
        again = fresh.get_state(ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()))
        for skey, value in wanted.items():
            fresh.set_key(original_key(skey))
            again.update(value)
        assert written(backend) == written(fresh)


@given(st.lists(st.lists(KEYS, unique_by=state_key, max_size=8), max_size=4))
def test_every_key_lies_in_its_key_group(batches):
    rule = KeyRule(8, is_int32=False, keeps=True)
    for batch in batches:
        keys = list(map(state_key, batch))
        found = rule.sorted(keys)
        placed = {}
        for group, (start, end) in found.bounds.items():
            for at in found.order.to_pylist()[start:end]:
                placed[keys[at]] = group
        assert placed == {skey: key_group(original_key(skey), 8) for skey in keys}
        assert found.groups.tolist() == [placed[skey] for skey in keys]


def test_keys_that_stay_are_not_looked_at_again(monkeypatch):
    hashed = []

    def noted(array, **options):
        hashed.append(len(array))
        return hash_array(array, **options)

    from penstock.engine.runtime.state import packed

    hash_array = packed.hash_array
    monkeypatch.setattr(packed, "hash_array", noted)
    rule = KeyRule(128, is_int32=False, keeps=True)
    keys = [f"key {n}" for n in range(100)]
    first = rule.sorted(keys)
    assert rule.sorted(list(keys)) is first
    rule.sorted([*keys, "new", "newer"])
    rule.sorted(keys[1:])
    assert hashed == [100, 2, 99]


@pytest.mark.parametrize("keeps", [True, False])
def test_only_a_rule_that_keeps_holds_keys(keeps):
    rule = KeyRule(128, is_int32=False, keeps=keeps)
    rule.sorted([1, 2, 3])
    assert (rule.last is not None) is keeps
