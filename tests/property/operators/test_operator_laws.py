"""Laws of operators: joins and async functions do not see batches; watermarks are those of
docs/spec/watermarks.md#several-channels under any interleaving.
"""

from collections import Counter
from itertools import groupby
from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    MAX_WATERMARK,
    MIN_WATERMARK,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import (
    CoGroupWindowFunction,
    Interval,
    IntervalJoinOperator,
    JoinWindowFunction,
    ListContents,
)
from penstock.engine.runtime.operators.windowed.window_operator import (
    GridWindowJoinOperator,
    RecordWindowJoinOperator,
)
from penstock.engine.runtime.watermarks.valve import CombinedWatermark, StatusWatermarkValve
from penstock.engine.runtime.windowing import TumblingEventTimeWindows
from tests.tools.runtime.async_calls import AsyncHarness
from tests.tools.runtime.operator_harness import OperatorHarness

KEYS = (KeySelection(itemgetter(0)), KeySelection(itemgetter(0)))
# (side, key, timestamp) of a record; side 2: a watermark on both inputs.
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 1, 2]), st.sampled_from("ab"), st.integers(0, 30)),
    max_size=40,
)


def numbered(steps):
    """Steps with a number, so that every record is one of a kind."""
    return [(side, (key, stamp, number)) for number, (side, key, stamp) in enumerate(steps)]


def play(op, steps, *, in_batches):
    """Watermarks only grow, as any input's do. In batches: neighbours of one side together."""
    watermark = -1
    for side, group in groupby(steps, key=itemgetter(0)):
        records = [record for _, record in group]
        if side == 2:
            watermark = max(watermark, *(stamp for _, stamp, _ in records))
            op.watermark(watermark, 0)
            op.watermark(watermark, 1)
            continue
        for batch in [records] if in_batches else [[record] for record in records]:
            op.feed(batch, [stamp for _, stamp, _ in batch], side)
    op.watermark(MAX_WATERMARK, 0)
    op.watermark(MAX_WATERMARK, 1)
    return op


def pair(left, right, ctx):
    return [(left, right)]


def interval_join(lower, upper):
    return OperatorHarness(
        IntervalJoinOperator(UserFunction(pair), KEYS, Interval(lower, upper), (False, False))
    )


@given(STEPS, st.integers(-9, 9), st.integers(0, 9))
def test_an_interval_join_does_not_see_batches_and_gives_every_match_once(steps, lower, width):
    steps = numbered(steps)
    whole = play(interval_join(lower, lower + width), steps, in_batches=True)
    single = play(interval_join(lower, lower + width), steps, in_batches=False)
    assert whole.stamped == single.stamped
    assert whole.late.get_count() == single.late.get_count()
    expected, late = matches(steps, lower, lower + width)
    assert Counter(whole.values) == Counter(expected)
    assert whole.late.get_count() == late
    assert all(stamp == max(left[1], right[1]) for (left, right), stamp in whole.stamped)


def matches(steps, lower, upper):
    """All pairs of records that were not late, by the definition of the join."""
    watermark, late = -1, 0
    sides = ([], [])
    for side, record in steps:
        if side == 2:
            watermark = max(watermark, record[1])
        elif record[1] < watermark:
            late += 1
        else:
            sides[side].append(record)
    return [
        (left, right)
        for left in sides[0]
        for right in sides[1]
        if left[0] == right[0] and lower <= right[1] - left[1] <= upper
    ], late


@given(STEPS, st.integers(-9, 9), st.integers(0, 9))
def test_an_interval_join_keeps_nothing_at_the_end(steps, lower, width):
    op = play(interval_join(lower, lower + width), numbered(steps), in_batches=True)
    assert not any(part.keys for part in op.operator.state.snapshot().values())
    assert op.operator.timers.event.entries() == []


def window_join(engine, function, lateness):
    return OperatorHarness(
        engine(
            side_keys=KEYS,
            assigner=TumblingEventTimeWindows(7),
            contents=ListContents(),
            allowed_lateness_ms=lateness,
            function=UserFunction(function.apply, function),
        )
    )


def sides(left, right):
    return [(tuple(left), tuple(right))]


@given(STEPS, st.sampled_from([0, 5]))
def test_window_joins_do_not_see_batches_and_both_engines_agree(steps, lateness):
    steps = numbered(steps)
    for function in (
        CoGroupWindowFunction(UserFunction(sides)),
        JoinWindowFunction(UserFunction(lambda left, right: (left, right))),
    ):
        runs = [
            play(window_join(engine, function, lateness), steps, in_batches=in_batches)
            for engine in (GridWindowJoinOperator, RecordWindowJoinOperator)
            for in_batches in (True, False)
        ]
        first = runs[0]
        for other in runs[1:]:
            assert Counter(other.stamped) == Counter(first.stamped)
            assert other.late.get_count() == first.late.get_count()


# ---------------------------------------------------------------------- async functions

# An int: answer the call that has waited n-th longest; None: a watermark; a str: feed so many records.
SCHEDULE = st.lists(
    st.one_of(st.integers(0, 9), st.none(), st.sampled_from(["1", "2", "5"])), max_size=60
)


@given(SCHEDULE, st.booleans(), st.integers(1, 6))
def test_async_results_keep_their_contract_under_any_schedule(schedule, ordered, capacity):
    op = AsyncHarness(ordered=ordered, capacity=capacity, timeout=0)
    fed, marks = 0, 0
    for action in schedule:
        if isinstance(action, str):
            if op.operator.takes_input:
                op.feed(list(range(fed, fed + int(action))))
                fed += int(action)
        elif action is None:
            if op.operator.takes_input:
                op.watermark(fed)
                marks += 1
        elif op.calls.running:
            running = list(op.calls.running.values())
            op.answer(running[action % len(running)])
        assert len(op.calls.running) <= capacity
    while op.calls.running:
        op.answer(list(op.calls.running.values())[-1])
    assert op.operator.is_drained
    assert op.operator.takes_input
    values = [int(value.rstrip("!")) for value in op.values]
    assert sorted(values) == list(range(fed))
    if ordered:
        assert values == sorted(values)
    assert watermarks_are_barriers(op.elements)


def watermarks_are_barriers(elements):
    """A watermark carries how many records were before it: exactly those have left before it does."""
    left = 0
    for element in elements:
        if isinstance(element, Watermark):
            if left != element.timestamp_ms:
                return False
        elif isinstance(element, RowBatch):
            left += len(element.values)
    return True


@given(SCHEDULE, st.booleans(), st.integers(1, 6))
def test_an_async_operator_goes_on_from_any_snapshot(schedule, ordered, capacity):
    op = AsyncHarness(ordered=ordered, capacity=capacity, timeout=0)
    fed = 0
    for action in schedule:
        if isinstance(action, str) and op.operator.takes_input:
            op.feed(list(range(fed, fed + int(action))))
            fed += int(action)
        elif isinstance(action, int) and op.calls.running:
            running = list(op.calls.running.values())
            op.answer(running[action % len(running)])
    again = AsyncHarness(
        ordered=ordered, capacity=capacity, timeout=0, state=op.operator.snapshot()
    )
    while again.calls.running:
        again.answer(next(iter(again.calls.running.values())))
    values = [int(value.rstrip("!")) for value in (*op.values, *again.values)]
    assert sorted(values) == list(range(fed))


# ---------------------------------------------------------------------- watermarks

CHANNELS = 4
# (channel, a watermark, or IDLE or ACTIVE)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, CHANNELS - 1), st.one_of(st.integers(0, 30), st.sampled_from([IDLE, ACTIVE]))
    ),
    max_size=80,
)


@given(EVENTS)
def test_the_valve_gives_the_specs_watermark_under_any_interleaving_with_idleness(events):
    valve, model = StatusWatermarkValve(CHANNELS), _Valve()
    for channel, event in events:
        if isinstance(event, WatermarkStatus):
            got = valve.input_status(event, channel)
        else:
            got = valve.input_watermark(event, channel)
        assert list(got) == model.next(channel, event)


class _Valve:
    """docs/spec/watermarks.md#several-channels: a channel counts while it is active and not behind the last output."""

    def __init__(self) -> None:
        self.marks = [MIN_WATERMARK] * CHANNELS
        self.active = set(range(CHANNELS))
        self.last = MIN_WATERMARK

    def next(self, channel, event):
        if event is IDLE:
            return self._idle(channel) if channel in self.active else []
        if event is ACTIVE:
            was_idle = not self.active
            is_new = channel not in self.active
            self.active.add(channel)
            return [ACTIVE] if was_idle and is_new else []
        if channel not in self.active or event <= self.marks[channel]:
            return []
        self.marks[channel] = event
        return self._grown(min(self._counting(), default=self.last))

    def _idle(self, channel):
        self.active.discard(channel)
        held = self.marks[channel] == self.last
        if self.active:
            return self._grown(min(self._counting(), default=self.last)) if held else []
        return [*(self._grown(max(self.marks)) if held else []), IDLE]

    def _counting(self):
        return [self.marks[c] for c in self.active if self.marks[c] >= self.last]

    def _grown(self, watermark):
        if watermark <= self.last:
            return []
        self.last = watermark
        return [Watermark(watermark)]


@given(EVENTS)
def test_several_inputs_combine_to_the_lowest_that_is_not_idle(events):
    combined = CombinedWatermark(CHANNELS)
    marks, idle, last, was_idle = [MIN_WATERMARK] * CHANNELS, set(), MIN_WATERMARK, False
    for channel, event in events:
        if isinstance(event, WatermarkStatus):
            got = list(combined.input_status(event, channel))
            (idle.add if event.idle else idle.discard)(channel)
        else:
            got = list(combined.input_watermark(event, channel))
            idle.discard(channel)
            marks[channel] = max(marks[channel], event)
        expected = []
        lowest = min((marks[c] for c in range(CHANNELS) if c not in idle), default=last)
        if lowest > last:
            last = lowest
            expected.append(Watermark(lowest))
        is_idle = len(idle) == CHANNELS
        if is_idle != was_idle and isinstance(event, WatermarkStatus):
            expected.append(event)
        was_idle = is_idle
        assert got == expected
