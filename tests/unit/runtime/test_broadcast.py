"""Process functions with a broadcast side, element by element."""

import pickle

import pytest

from penstock.model.errors import UserError
from penstock.runtime.context import UserFunction
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators import BroadcastProcessOperator, KeyedBroadcastProcessOperator
from penstock.runtime.state.descriptors import MapStateDescriptor
from tests.unit.runtime.harness import OperatorHarness

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


def test_the_read_only_side_cannot_change_it():
    class Clears(Rules):
        def process_element(self, value, ctx):
            ctx.get_broadcast_state(RULES).clear()

    clears = Clears()
    op = OperatorHarness(
        BroadcastProcessOperator(UserFunction(clears.process_element, clears), ("rules",))
    )
    with pytest.raises(UserError, match="process_broadcast_element only"):
        op.feed(["a"])
