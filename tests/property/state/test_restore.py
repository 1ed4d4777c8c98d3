"""An operator that stops at any point, is written, and goes on at any parallelism gives what it would have given.

Keyed state, timers and windows by key group, lists by their redistribution (docs/spec/state.md#operator-state, #rescaling-keyed-state, docs/spec/checkpoints.md#in-a-task).
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK
from penstock.engine.runtime.operators import (
    AggregateKind,
    Interval,
    IntervalJoinOperator,
    KeyedAggregateOperator,
    ListContents,
    ReduceOperator,
)
from penstock.engine.runtime.operators.windowed.records import RecordWindowOperator
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.snapshot_reader import OtherParts
from tests.tools.programs.user_functions import running_sum
from tests.tools.runtime.async_calls import AsyncHarness
from tests.tools.runtime.restored_subtasks import (
    BOTH,
    KEY,
    SESSION,
    SLIDING,
    STEPS,
    SUM,
    TUMBLING,
    Subtasks,
    column_window,
    keyed_broadcast,
    keyed_process,
    pair,
    raised,
    window,
    window_join,
)
from tests.tools.runtime.restoring import rescaled

OPERATORS = {
    "process": (keyed_process, 1),
    "reduce": (lambda: ReduceOperator(UserFunction(running_sum), KEY), 1),
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


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=20)
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
    again = Subtasks(make, inputs, new, rescaled(snapshots, new, OtherParts.HELD))
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
