"""Loops over fired windows and timers stop as batches do: after about 5 ms of user code (docs/internals/task.md#a-batch-of-records)."""

import numpy as np
import pytest

from penstock.common import Duration
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, RowBatch, Watermark
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import (
    AggregateContents,
    KeyedProcessOperator,
    ListContents,
    window_operator,
)
from penstock.engine.runtime.operators.keyed import Pauses
from penstock.engine.runtime.task.input_processor import InputStatus
from penstock.engine.runtime.windowing import EventTimeSessionWindows, TumblingEventTimeWindows
from tests.tools.runtime.task_parts import MS, Clock, ListInput, Remembering, task_of

KEY = KeySelection(lambda value: value)
LIMIT_MS = 5


class SlowTimer:
    """Spends time when its timer fires, and emits the key."""

    def __init__(self, spend, results):
        self.spend = spend
        self.results = results

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp, ctx):
        self.spend()
        yield from [ctx.get_current_key()] * self.results


class SlowResult:
    """An AggregateFunction whose result takes time."""

    def __init__(self, spend):
        self.spend = spend

    def create_accumulator(self):
        return None

    def add(self, value, accumulator):
        return value

    def get_result(self, accumulator):
        self.spend()
        return accumulator

    def merge(self, one, other):
        return one


def slow_window(spend, assigner):
    def apply(key, window, elements):
        spend()
        return [key]

    return window_operator(
        keys=KEY, assigner=assigner, contents=ListContents(), function=UserFunction(apply)
    )


def slow_timers(spend, results=1):
    function = SlowTimer(spend, results)
    return KeyedProcessOperator(UserFunction(function.process_element, function), KEY)


def slow_results(spend):
    function = SlowResult(spend)
    contents = AggregateContents(UserFunction(function.add, function))
    return window_operator(
        keys=KEY, assigner=TumblingEventTimeWindows.of(Duration.of_millis(5)), contents=contents
    )


OPERATORS = {
    "windows on a grid": lambda spend: slow_window(
        spend, TumblingEventTimeWindows.of(Duration.of_millis(5))
    ),
    "sessions": lambda spend: slow_window(
        spend, EventTimeSessionWindows.with_gap(Duration.of_millis(5))
    ),
    "timers": slow_timers,
    "timers without a result": lambda spend: slow_timers(spend, 0),
    "results of accumulators": slow_results,
}


def fired_by_one_watermark(kind, ms, keys):
    """A task before the step that fires once for each key, each time for so many ms; its output; its clock; its calls so far."""
    clock, out, calls = Clock(), Remembering(), []

    def spend():
        calls.append(clock.spend_ms(ms))

    records = RowBatch(list(range(keys)), np.zeros(keys, np.int64))
    given = ListInput((0, records))
    task = task_of([OPERATORS[kind](spend)], given, [out], clock)
    while task.process_input() is InputStatus.MORE_AVAILABLE:
        pass
    assert calls == []
    given.elements.append((0, Watermark(MAX_WATERMARK)))
    return task, out, clock, calls


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_slow_call_is_the_last_one_of_its_step(kind):
    task, out, _, calls = fired_by_one_watermark(kind, 2000, 4)
    for seen in (1, 2, 3):
        assert task.process_input() is InputStatus.MORE_AVAILABLE
        assert len(calls) == seen
        assert len(out.values) == (0 if kind == "timers without a result" else seen)
        assert Watermark(MAX_WATERMARK) not in out.written
    while task.process_input() is InputStatus.MORE_AVAILABLE:
        pass
    assert len(calls) == 4
    assert out.written[-1] == Watermark(MAX_WATERMARK)


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_step_of_many_calls_stays_near_its_time_and_uses_it(kind):
    task, out, clock, calls = fired_by_one_watermark(kind, 0.5, 500)
    lengths = []
    while not lengths or lengths[-1] > 0:
        before = clock.ns
        task.process_input()
        lengths.append((clock.ns - before) / MS)
    assert len(calls) == 500
    assert max(lengths) <= 2 * LIMIT_MS
    assert len(lengths) <= 500 * 0.5 / LIMIT_MS * 1.5
    assert out.written[-1] == Watermark(MAX_WATERMARK)


@pytest.mark.parametrize("kind", OPERATORS)
def test_fast_calls_are_not_cut(kind):
    task, out, _, calls = fired_by_one_watermark(kind, 0, 2500)
    while task.process_input() is InputStatus.MORE_AVAILABLE:
        pass
    assert len(calls) == 2500
    batches = [len(one) for one in out.written if isinstance(one, RowBatch)]
    assert len(batches) <= 3


def test_the_clock_is_looked_at_rarely_while_calls_are_fast():
    looks = []

    def now_ms():
        looks.append(0)
        return 0

    pauses = Pauses(now_ms)
    assert not any(pauses.is_due() for _ in range(10_000))
    assert len(looks) < 10_000 / 50


def test_a_clock_that_is_set_back_does_not_stop_the_loop_for_ever():
    now = [10_000]
    pauses = Pauses(lambda: now[0])
    now[0] = 0
    assert not pauses.is_due()
    now[0] = 100
    assert any(pauses.is_due() for _ in range(64))
