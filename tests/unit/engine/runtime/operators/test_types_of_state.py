"""Which types operators note in their snapshots: of keys, of windows, and of records that they keep. Source: docs/spec/state.md#changed-types."""

from __future__ import annotations

import pickle
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Duration
from penstock.engine.model.checkpoints import OperatorRestore
from penstock.engine.model.errors import UserError
from penstock.engine.model.key_types import KeyMigration, KeyType
from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import (
    ColumnWindowOperator,
    KeyedMapOperator,
    ListContents,
    MapOperator,
    ReduceContents,
    ReduceOperator,
    window_operator,
)
from penstock.engine.runtime.operators.two_input import KeyedCoMapOperator
from penstock.engine.runtime.records.columns import count
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.snapshot_reader import read_operator
from penstock.engine.runtime.windowing import TumblingEventTimeWindows
from penstock.engine.runtime.windowing.assigners import CountTumblingWindowAssigner, GlobalWindows
from penstock.engine.runtime.windowing.evictors import CountEvictor
from tests.tools.runtime.keyed_backends import KINDS, Backends
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import PIECES, read, written_state

ALL = (0, 127)
PICKLED = Types.PICKLED_BYTE_ARRAY()
BEFORE = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])
NOW = Types.ROW_NAMED(
    ["k", "n", "more"], [Types.STRING(), Types.LONG(), Types.LONG()]
).with_defaults(more=7)


def first(value):
    return value[0]


def keys(key_type=None, input_type=None, selector=first):
    return KeySelection(selector, key_type, input_type)


def of(selection):
    made = KeyedMapOperator(UserFunction(first), selection).state_keys
    return made.type_info, made.is_int32, made.namespace


def test_declared_keys():
    assert of(keys(Types.LONG())) == (Types.LONG(), False, "")
    assert of(keys(Types.INT())) == (Types.INT(), True, "")
    assert of(keys()) == (PICKLED, False, "")
    assert MapOperator(UserFunction(first)).state_keys is None


def test_keys_of_columns_have_the_types_of_the_columns_and_are_hashed_as_longs():
    assert of(keys(None, BEFORE, ("k",))) == (Types.STRING(), False, "")
    assert of(keys(None, BEFORE, ("n",))) == (Types.INT(), False, "")
    assert of(keys(None, BEFORE, ("n", "k")))[0] == Types.TUPLE([Types.INT(), Types.STRING()])
    assert of(keys(None, None, ("n",))) == (PICKLED, False, "")


def test_of_two_inputs_one_may_declare_the_type():
    made = KeyedCoMapOperator(UserFunction(first), (keys(), keys(Types.LONG())))
    assert made.state_keys.type_info == Types.LONG()


@pytest.mark.parametrize(
    ("assigner", "namespace"),
    [
        (TumblingEventTimeWindows.of(Duration.of_millis(10)), "TimeWindow"),
        (GlobalWindows.create(), "GlobalWindow"),
        (CountTumblingWindowAssigner(3), "CountWindow"),
    ],
)
def test_windows_note_their_class(assigner, namespace):
    made = window_operator(keys=keys(Types.LONG()), assigner=assigner, contents=ListContents())
    assert made.state_keys.namespace == namespace


def restored(make, made, record, feed):
    """The operator after a snapshot that was taken when its records were of the type BEFORE; now they are of NOW."""
    operator = make()
    op = OperatorHarness(operator, keyed_state=made.make, input_types=(BEFORE,))
    feed(op, record)
    snapshot = operator.snapshot().freeze(plain_dumps, operator.state_keys)
    state = written_state(snapshot)
    snapshot.close(is_kept=True)
    assert state.keys == operator.state_keys
    operator.close()
    again = make()
    again.restore(
        read_operator(OperatorRestore(state.keyed), read, ALL, pickle.loads, PIECES[made.kind])
    )
    return OperatorHarness(again, keyed_state=made.make, input_types=(NOW,))


def newer(first, second):
    return first


def reduced():
    return ReduceOperator(UserFunction(newer), keys(Types.STRING()))


def window_of(contents, assigner=None):
    assigner = assigner or TumblingEventTimeWindows.of(Duration.of_millis(10))
    return lambda: window_operator(keys=keys(Types.STRING()), assigner=assigner, contents=contents)


RECORD = Row(k="a", n=1)
MIGRATED = {"k": "a", "n": 1, "more": 7}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reduced_record_gets_the_field_that_its_stream_got(kind, tmp_path):
    with closing(Backends(kind, tmp_path)) as made:
        op = restored(reduced, made, RECORD, lambda op, record: op.feed([record]))
        op.feed([Row(k="a", n=5, more=6)])
        assert [row.as_dict() for row in op.values] == [MIGRATED]


WINDOWS = {
    "grid, reduced": (window_of(ReduceContents(UserFunction(newer))), False),
    "grid, list": (window_of(ListContents()), True),
    "evicted list": (window_of(ListContents(evicting=CountEvictor.of(5))), True),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WINDOWS)
def test_records_in_windows_get_the_field_that_their_stream_got(kind, name, tmp_path):
    make, _ = WINDOWS[name]
    with closing(Backends(kind, tmp_path)) as made:
        op = restored(make, made, RECORD, lambda op, record: op.feed([record], [3]))
        op.watermark(100)
        assert [row.as_dict() for row in op.values] == [MIGRATED]


def test_windows_on_columns_do_not_take_keys_of_another_type():
    selection = KeySelection(("k",), None, Types.ROW_NAMED(["k"], [Types.INT()]))
    operator = ColumnWindowOperator(
        TumblingEventTimeWindows.of(Duration.of_millis(10)), selection, (count(),)
    )
    assert operator.state_keys.namespace == "TimeWindow"
    op = OperatorHarness(operator)
    op.feed_batch(ColumnBatch(pa.record_batch({"k": [1]}), np.array([1])))
    state = written_state(operator.snapshot().freeze(plain_dumps, operator.state_keys))
    migration = KeyMigration(
        KeyType.of(Types.INT()), KeyType.of(Types.LONG()), False, owner="operator 'w'"
    )
    with pytest.raises(
        UserError, match="operator 'w' cannot restore its windows on columns.*INT.*LONG"
    ):
        read_operator(OperatorRestore(state.keyed, keys=migration), read, ALL, pickle.loads)
