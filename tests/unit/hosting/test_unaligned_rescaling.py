"""Data in flight finds its readers at another parallelism, on real TaskManagers: both ends of the
edge change (docs/spec/exchange.md#choosing-a-channel, docs/spec/checkpoints.md#data-in-flight).
"""

from collections import Counter

import pytest

from penstock.model.checkpoints import CheckpointOptions
from penstock.model.states import ExecutionState
from tests.unit.hosting.gated_program import expected, numbers, program, seen
from tests.unit.hosting.test_unaligned_checkpoints import blocked

STEPS = 8_000
SPLITS = 2


@pytest.mark.parametrize(("old", "new"), [(2, 3), pytest.param(2, 1, marks=pytest.mark.long)])
def test_what_was_in_flight_is_counted_once_at_another_parallelism(gate, run, old, new):
    def started(parallelism, restored=None):
        graph = program(gate.name, parallelism, SPLITS, STEPS)
        return run(graph, restored, taskmanagers=2, may_be_unaligned=True)

    driver = started(old)
    blocked(driver, gate)
    driver.trigger(1, options=CheckpointOptions(is_unaligned=True))
    completed = driver.checkpoint(1)
    before = list(driver.rows)
    flying = [
        (bool(state.inputs_in_flight), bool(state.outputs_in_flight))
        for operator in completed.operators
        for state in operator.subtasks
        if state is not None
    ]
    assert any(into for into, _ in flying)
    assert any(out for _, out in flying)
    driver.cancel()
    driver.until_ended(ExecutionState.CANCELED)
    second = started(new, completed)
    second.until_ended()
    rows = before + second.rows
    assert Counter(value for value, _ in rows) == Counter(numbers(SPLITS, STEPS))
    assert seen(rows) == Counter(expected(SPLITS, STEPS))
