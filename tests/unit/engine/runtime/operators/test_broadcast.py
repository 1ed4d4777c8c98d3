"""Process functions with a broadcast side, element by element."""

import pickle
from operator import delitem, setitem

import pytest

from penstock.engine.model.checkpoints import ListStateShare, OperatorRestore
from penstock.engine.model.errors import UserError
from penstock.engine.model.texts.type_texts import type_with_defaults
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.descriptors import MapStateDescriptor
from penstock.engine.runtime.state.snapshot_reader import read_operator
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import read, written_state

RULES = MapStateDescriptor("rules", None, None)


class Rules:
    def process_element(self, value, ctx):
        state = ctx.get_broadcast_state(RULES)
        yield (value, state.get(value), value in state, ctx.timestamp())

    def process_broadcast_element(self, value, ctx):
        state = ctx.get_broadcast_state(RULES)
        if value is None:
            state.clear()
        else:
            state.put(*value)
        return [("rules", len(list(state.items())), ctx.current_watermark())]


def operator():
    rules = Rules()
    return BroadcastProcessOperator(UserFunction(rules.process_element, rules), ("rules",))


def test_elements_see_what_was_broadcast_before_them():
    op = OperatorHarness(operator())
    op.feed(["a"], [3])
    op.feed([("a", 1), ("b", 2)], None, 1)
    op.feed(["a", "c"])
    op.feed([None], None, 1)
    op.feed(["a"])
    low = -(2**63)
    assert op.values == [
        ("a", None, False, 3), ("rules", 1, low), ("rules", 2, low), ("a", 1, True, low),
        ("c", None, False, low), ("rules", 0, low), ("a", None, False, low),
    ]  # fmt: skip


def test_the_state_survives_a_snapshot():
    first = operator()
    op = OperatorHarness(first)
    op.feed([("a", 1)], None, 1)
    again = operator()
    again.restore(pickle.loads(pickle.dumps(first.snapshot())))
    restored = OperatorHarness(again)
    restored.feed(["a"])
    assert restored.values[0][:3] == ("a", 1, True)


def test_broadcast_elements_have_no_key_and_keep_keyed_state_apart():
    class Keyed(Rules):
        def process_element(self, value, ctx):
            yield (ctx.get_current_key(), ctx.get_broadcast_state(RULES).get("k"))

    rules = Keyed()
    keyed = KeyedBroadcastProcessOperator(
        UserFunction(rules.process_element, rules), KeySelection(lambda v: v % 2), ("rules",)
    )
    op = OperatorHarness(keyed)
    op.feed([("k", "rule")], None, 1)
    op.feed([4, 5])
    assert op.values[1:] == [(0, "rule"), (1, "rule")]
    assert set(keyed.snapshot().lists) == {"broadcast/rules"}


def reading(element):
    """An operator that calls this for each element of the read-only side."""

    class Reads(Rules):
        def process_element(self, value, ctx):
            element(ctx)

    reads = Reads()
    return OperatorHarness(
        BroadcastProcessOperator(UserFunction(reads.process_element, reads), ("rules",))
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.clear(),
        lambda state: state.put("a", 1),
        lambda state: state.put_all({"a": 1}),
        lambda state: state.remove("a"),
        lambda state: setitem(state, "a", 1),
        lambda state: delitem(state, "a"),
    ],
)
def test_the_read_only_side_cannot_change_it(change):
    op = reading(lambda ctx: change(ctx.get_broadcast_state(RULES)))
    with pytest.raises(UserError, match="'rules' can be changed in process_broadcast_element only"):
        op.feed(["a"])


def test_a_broadcast_state_is_asked_for_with_its_descriptor():
    op = reading(lambda ctx: ctx.get_broadcast_state("rules"))
    with pytest.raises(TypeError, match=r"MapStateDescriptor that broadcast.* was given, got 'rul"):
        op.feed(["a"])


# ------------------------------------------------------------------ changed types


def typed(values, keys=None):
    rules = Rules()
    types = (Types.MAP(keys or Types.STRING(), values),)
    return BroadcastProcessOperator(UserFunction(rules.process_element, rules), ("rules",), types)


def restored_as(values, keys=None, allows_double=False):
    """What was broadcast as a map of STRING to INT, by an operator that declares other types."""
    first = typed(Types.INT())
    OperatorHarness(first).feed([("a", 1)], None, 1)
    state = written_state(first.snapshot().freeze(plain_dumps))
    (handle,) = state.lists
    assert type_with_defaults(handle.type_text) == Types.MAP(Types.STRING(), Types.INT())
    shares = OperatorRestore(lists=(ListStateShare(handle, 0, 0),), allows_double=allows_double)
    again = typed(values, keys)
    again.restore(read_operator(shares, read, (0, 127), pickle.loads))
    op = OperatorHarness(again)
    op.feed(["a"])
    return op.values[0][1]


def test_broadcast_state_is_migrated():
    assert repr(restored_as(Types.LONG())) == "1"
    assert repr(restored_as(Types.DOUBLE(), allows_double=True)) == "1.0"


@pytest.mark.parametrize(
    ("values", "keys"),
    [(Types.STRING(), None), (Types.DOUBLE(), None), (Types.INT(), Types.LONG())],
)
def test_broadcast_state_of_another_type_is_refused(values, keys):
    with pytest.raises(
        UserError, match=r"operator .*'op'.* cannot restore its state 'rules'.*INT|STRING"
    ):
        restored_as(values, keys)


def test_broadcast_state_without_types_is_restored_as_it_is():
    first = operator()
    OperatorHarness(first).feed([("a", 1)], None, 1)
    again = typed(Types.STRING())
    again.restore(pickle.loads(pickle.dumps(first.snapshot())))
    op = OperatorHarness(again)
    op.feed(["a"])
    assert op.values[0][1] == 1
