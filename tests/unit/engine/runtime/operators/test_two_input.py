"""Connected streams: which method, whose key, and the watermark of two inputs."""

import pytest

from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import ACTIVE, IDLE, RowBatch, Watermark
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from penstock.engine.runtime.state.contract import ValueStateDescriptor
from tests.tools.runtime.operator_harness import OperatorHarness

KEYS = (KeySelection(lambda v: v[0]), KeySelection(lambda v: v[1]))


class Both:
    """A method for each input, of each kind."""

    def map1(self, value):
        return ("one", value)

    def map2(self, value):
        return ("two", value)

    def flat_map1(self, value):
        return [value] * value

    def flat_map2(self, value):
        return None

    def process_element1(self, value, ctx):
        yield ("one", value, ctx.timestamp())

    def process_element2(self, value, ctx):
        yield ("two", value, ctx.timer_service().current_watermark())


def function(main):
    both = Both()
    return UserFunction(getattr(both, main), both)


def fed(harness, values, index, stamps=None):
    harness.feed(values, stamps, index)


def test_each_input_has_its_method():
    op = OperatorHarness(CoMapOperator(function("map1")))
    fed(op, [1], 0)
    fed(op, [2], 1)
    assert op.values == [("one", 1), ("two", 2)]


def test_a_flat_map_gives_any_number_and_none_is_none():
    op = OperatorHarness(CoFlatMapOperator(function("flat_map1")))
    fed(op, [2, 0], 0)
    fed(op, [5], 1)
    assert op.values == [2, 2]


def test_the_watermark_is_the_lower_of_both_inputs():
    op = OperatorHarness(CoProcessOperator(function("process_element1")))
    op.watermark(10, 0)
    fed(op, ["x"], 1)
    op.watermark(4, 1)
    fed(op, ["y"], 1)
    op.watermark(20, 1)
    marks = [e.timestamp_ms for e in op.elements if isinstance(e, Watermark)]
    assert marks == [4, 10]
    assert op.values == [("two", "x", -(2**63)), ("two", "y", 4)]


def test_an_idle_input_does_not_hold_the_watermark():
    op = OperatorHarness(CoProcessOperator(function("process_element1")))
    op.watermark(10, 0)
    op.status(IDLE, 1)
    op.status(IDLE, 0)
    op.status(ACTIVE, 1)
    assert [e for e in op.elements if not isinstance(e, RowBatch)] == [Watermark(10), IDLE, ACTIVE]


class Joins:
    """Remembers the first input's value and sends it with the second's; a timer forgets it."""

    def open(self, context):
        self.left = context.get_state(ValueStateDescriptor("left", None))

    def process_element1(self, value, ctx):
        self.left.update(value)
        ctx.timer_service().register_event_time_timer(100)

    def process_element2(self, value, ctx):
        yield (ctx.get_current_key(), self.left.value(), value)

    def on_timer(self, timestamp, ctx):
        yield ("forgotten", ctx.get_current_key(), timestamp)
        self.left.clear()

    def map1(self, value):
        self.left.update(value)
        return

    def map2(self, value):
        return self.left.value()


def test_both_inputs_share_state_and_timers_of_the_key():
    joins = Joins()
    op = OperatorHarness(KeyedCoProcessOperator(UserFunction(joins.process_element1, joins), KEYS))
    fed(op, [("a", 1), ("b", 2)], 0, [1, 1])
    fed(op, [(7, "b"), (8, "c")], 1, [1, 1])
    op.watermark(100, 0)
    assert op.values == [("b", ("b", 2), (7, "b")), ("c", None, (8, "c"))]
    op.watermark(100, 1)
    fed(op, [(9, "a")], 1, [101])
    assert op.values[2:] == [
        ("forgotten", "a", 100), ("forgotten", "b", 100), ("a", None, (9, "a")),
    ]  # fmt: skip


def test_a_keyed_co_map_has_keyed_state():
    joins = Joins()
    keyed = KeyedCoMapOperator(UserFunction(joins.map1, joins), KEYS)
    op = OperatorHarness(keyed)
    fed(op, [("a", 1)], 0)
    fed(op, [(0, "a"), (0, "b")], 1)
    assert op.values == [("a", 1)]  # of which map gives None: nothing


@pytest.mark.parametrize("index", [0, 1])
def test_the_failing_record_is_named(index):
    class Fails(Both):
        def map1(self, value):
            return 1 // value

        map2 = map1

    fails = Fails()
    operator = CoMapOperator(UserFunction(fails.map1, fails))
    op = OperatorHarness(operator)
    with pytest.raises(ZeroDivisionError):
        fed(op, [1, 0], index)
    assert operator.failing_record() == "0"
