"""Subtasks of an operator that stop at any point and go on at another parallelism, and operators to try it with."""

from itertools import accumulate
from operator import itemgetter

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.common import Duration
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.keys import KeySelection, channel_of
from penstock.engine.runtime.operators import (
    CoGroupWindowFunction,
    ColumnWindowOperator,
    KeyedBroadcastProcessOperator,
    KeyedProcessOperator,
    ListContents,
    ReduceContents,
    window_join_operator,
    window_operator,
)
from penstock.engine.runtime.records.columns import count, first, last, sum_
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.runtime.windowing import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.tools.programs.user_functions import running_sum
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import MAX_PARALLELISM

KEY = KeySelection(itemgetter(0))


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


def keyed_process():
    function = Remembers()
    return KeyedProcessOperator(UserFunction(function.process_element, function), KEY)


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


SUM = ReduceContents(UserFunction(running_sum))
TUMBLING, SLIDING = (
    TumblingEventTimeWindows.of(Duration.of_millis(10)),
    SlidingEventTimeWindows.of(Duration.of_millis(10), Duration.of_millis(4)),
)
SESSION = EventTimeSessionWindows.with_gap(Duration.of_millis(4))
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


BOTH = (KEY, KEY)
RULES = MapStateDescriptor("rules")


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


def keyed_broadcast():
    rules = Rules()
    return KeyedBroadcastProcessOperator(
        UserFunction(rules.process_element, rules), KEY, ("rules",)
    )


def column_window():
    aggregates = (sum_("v"), first("v"), last("v"), count())
    assigner = SlidingEventTimeWindows.of(Duration.of_millis(12), Duration.of_millis(4))
    return ColumnWindowOperator(assigner, KeySelection(("k",)), aggregates, 5)
