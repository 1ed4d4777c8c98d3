"""An operator that stops at any point, is written, and goes on at any parallelism gives what it would have given.

Keyed state, timers and windows by key group, lists by their redistribution
(docs/spec/state.md#operator-state, #rescaling-keyed-state, docs/spec/checkpoints.md#in-a-task).
"""

from collections import Counter
from itertools import accumulate
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime.context import UserFunction
from penstock.runtime.elements import MAX_WATERMARK, ColumnBatch
from penstock.runtime.keys import KeySelection, channel_of
from penstock.runtime.operators import (
    AggregateKind,
    CoGroupWindowFunction,
    ColumnWindowOperator,
    Interval,
    IntervalJoinOperator,
    KeyedAggregateOperator,
    KeyedBroadcastProcessOperator,
    KeyedProcessOperator,
    ListContents,
    ReduceContents,
    ReduceOperator,
    window_join_operator,
    window_operator,
)
from penstock.runtime.operators.windowed.records import RecordWindowOperator
from penstock.runtime.records.columns import count, first, last, sum_
from penstock.runtime.records.frozen import plain_dumps
from penstock.runtime.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from penstock.runtime.state.snapshot_reader import Beside
from penstock.runtime.windowing import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.unit.runtime.async_calls import AsyncHarness
from tests.unit.runtime.checkpoint.restoring import MAX_PARALLELISM, rescaled
from tests.unit.runtime.harness import OperatorHarness

KEY = KeySelection(itemgetter(0))
BOTH = (KEY, KEY)
RULES = MapStateDescriptor("rules")


class Remembers:
    """Value state that is changed in place, list and map state, and a timer for each record."""

    def open(self, ctx):
        self.seen = ctx.get_state(ValueStateDescriptor("seen"))
        self.items = ctx.get_list_state(ListStateDescriptor("items"))
        self.counts = ctx.get_map_state(MapStateDescriptor("counts"))

    def process_element(self, value, ctx):
        seen = self.seen.value() or {"all": []}
        seen["all"].append(value[1])
        self.seen.update(seen)
        self.items.add(value[1])
        self.counts.put(value[1], (self.counts.get(value[1]) or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 7)
        yield value[0], len(seen["all"]), tuple(self.items.get())

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, tuple(sorted(self.counts.items()))


class Rules:
    def open(self, ctx):
        self.total = ctx.get_state(ValueStateDescriptor("total"))

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total, tuple(sorted(ctx.get_broadcast_state(RULES).items()))

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])
        return ()


def keyed_process():
    function = Remembers()
    return KeyedProcessOperator(UserFunction(function.process_element, function), KEY)


def keyed_broadcast():
    rules = Rules()
    return KeyedBroadcastProcessOperator(
        UserFunction(rules.process_element, rules), KEY, ("rules",)
    )


def total(a, b):
    return a[0], a[1] + b[1]


def pair(left, right, _ctx):
    return [(left, right)]


def sides(left, right):
    return [(tuple(sorted(left)), tuple(sorted(right)))]


def window(assigner, contents, engine=window_operator, lateness=0):
    return engine(keys=KEY, assigner=assigner, contents=contents, allowed_lateness_ms=lateness)


def window_join(assigner):
    function = CoGroupWindowFunction(UserFunction(sides))
    return window_join_operator(
        side_keys=BOTH,
        assigner=assigner,
        contents=ListContents(),
        function=UserFunction(function.apply, function),
    )


def column_window():
    aggregates = (sum_("v"), first("v"), last("v"), count())
    assigner = SlidingEventTimeWindows.of(12, 4)
    return ColumnWindowOperator(assigner, KeySelection(("k",)), aggregates, 5)


SUM = ReduceContents(UserFunction(total))
TUMBLING, SLIDING = TumblingEventTimeWindows.of(10), SlidingEventTimeWindows.of(10, 4)
SESSION = EventTimeSessionWindows.with_gap(4)
OPERATORS = {
    "process": (keyed_process, 1),
    "reduce": (lambda: ReduceOperator(UserFunction(total), KEY), 1),
    "sum": (lambda: KeyedAggregateOperator(AggregateKind.SUM, 1, KEY), 1),
    "grid": (lambda: window(SLIDING, SUM, lateness=6), 1),
    "grid lists": (lambda: window(TUMBLING, ListContents()), 1),
    "record": (lambda: window(SLIDING, SUM, RecordWindowOperator, 6), 1),
    "sessions": (lambda: window(SESSION, SUM), 1),
    "columns": (column_window, 1),
    "interval join": (
        lambda: IntervalJoinOperator(UserFunction(pair), BOTH, Interval(-5, 3), (False, False)),
        2,
    ),
    "window join": (lambda: window_join(TUMBLING), 2),
    "session join": (lambda: window_join(SESSION), 2),
    "broadcast": (keyed_broadcast, 1),
}
KEYS = st.sampled_from(["a", "b", "c", "", "é"]) | st.integers(-(2**70), 2**70) | st.tuples(
    st.integers(0, 3), st.booleans()
)  # fmt: skip
RECORD = st.tuples(KEYS, st.integers(0, 99), st.integers(0, 40), st.integers(0, 1))
STEPS = st.lists(st.lists(RECORD, max_size=6) | st.integers(0, 45), max_size=12)


class Subtasks:
    """All subtasks of an operator: records by key, watermarks and broadcast elements to all."""

    def __init__(self, make, inputs, parallelism, snapshots=None, keyed_state=None):
        self.inputs = inputs
        self.is_columnar = make is column_window
        self.is_broadcast = make is keyed_broadcast
        self.all = []
        for subtask in range(parallelism):
            operator = make()
            if snapshots is not None:
                operator.restore(snapshots[subtask])
            context = {"subtask": subtask, "parallelism": parallelism, "keyed_state": keyed_state}
            self.all.append(OperatorHarness(operator, **context))

    def play(self, steps):
        for step in steps:
            if isinstance(step, int):
                self.watermark(step)
            for record in step if isinstance(step, list) else ():
                self.feed(*record)
        return self

    def watermark(self, time):
        for one in self.all:
            for index in range(self.inputs):
                one.watermark(time, index)

    def feed(self, key, value, stamp, side):
        key = str(key) if self.is_columnar else key
        if self.is_broadcast and side:
            for one in self.all:
                one.feed([(value % 5, value)], [stamp], 1)
            return
        one = self.all[channel_of(key, len(self.all), MAX_PARALLELISM)]
        if self.is_columnar:
            data = pa.record_batch({"k": [key], "v": [value]})
            one.feed_batch(ColumnBatch(data, np.array([stamp])))
        else:
            one.feed([(key, value)], [stamp], side if self.inputs == 2 else 0)

    def snapshots(self):
        return [one.operator.snapshot().freeze(plain_dumps) for one in self.all]

    def results(self):
        return [
            repr(tuple(value.items()) if isinstance(value, dict) else value) + f"@{stamp}"
            for one in self.all
            for value, stamp in one.stamped
        ]


def raised(steps):
    """Watermarks only rise."""
    highest = accumulate((step if isinstance(step, int) else -1 for step in steps), max)
    return [
        now if isinstance(step, int) else step for step, now in zip(steps, highest, strict=True)
    ]


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=40)
@given(before=STEPS, after=STEPS, old=st.integers(1, 4), new=st.integers(1, 4))
def test_an_operator_goes_on_at_any_parallelism_from_any_snapshot(name, before, after, old, new):
    make, inputs = OPERATORS[name]
    steps = raised([*before, *after])
    before, after = steps[: len(before)], steps[len(before) :]
    # A watermark is not state: after a restore the sources send theirs again.
    now = [step for step in before if isinstance(step, int)][-1:]
    expected = Subtasks(make, inputs, 1).play([*before, *now, *after, MAX_WATERMARK])

    first_run = Subtasks(make, inputs, old).play(before)
    snapshots = first_run.snapshots()
    results = first_run.results()
    first_run.play([*after, MAX_WATERMARK])  # what it does now must not be in the snapshot
    again = Subtasks(make, inputs, new, rescaled(snapshots, new, Beside.HELD))
    again.play([*now, *after, MAX_WATERMARK])
    assert Counter(results + again.results()) == Counter(expected.results())


@given(
    st.lists(st.integers(0, 9), max_size=20),
    st.integers(1, 3), st.integers(1, 4), st.booleans(),
)  # fmt: skip
def test_records_under_way_in_async_operators_go_to_any_number_of_subtasks(
    answered, old, new, ordered
):
    harnesses = [AsyncHarness(ordered=ordered, capacity=3, timeout=0) for _ in range(old)]
    for number, op in enumerate(harnesses):
        op.feed([number * 10 + value for value in range(5)])
        for choice in answered:
            running = list(op.calls.running.values())
            if running and choice % old == number:
                op.answer(running[choice % len(running)])
    snapshots = [op.operator.snapshot().freeze(plain_dumps) for op in harnesses]
    values = [value for op in harnesses for value in op.values]
    for snapshot in rescaled(snapshots, new):
        op = AsyncHarness(ordered=ordered, capacity=9, timeout=0, state=snapshot)
        while op.calls.running:
            op.answer(next(iter(op.calls.running.values())))
        values += op.values
    assert sorted(values) == sorted(
        f"{number * 10 + v}!" for number in range(old) for v in range(5)
    )
