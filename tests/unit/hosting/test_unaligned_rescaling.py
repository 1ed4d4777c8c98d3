"""Data in flight finds its readers at another parallelism, on real TaskManagers: both ends of the edge change (spec 2.4, 10.4)."""

import time
from collections import Counter

import pytest

from penstock.model.checkpoints import CheckpointOptions, TaskCheckpointing
from penstock.model.states import ExecutionState
from tests.unit.hosting.fake_driver import FakeDriver
from tests.unit.hosting.gated_program import Gate, expected, numbers, program, seen

STEPS = 8_000
SPLITS = 2


@pytest.fixture
def gate(request):
    made = Gate(request.node.name)
    made.name = request.node.name
    yield made
    Gate.by_name.pop(made.name)


@pytest.fixture
def run(tmp_path, gate):
    drivers = []

    def start(parallelism, restored=None):
        graph = program(gate.name, parallelism, SPLITS, STEPS)
        settings = TaskCheckpointing(str(tmp_path), may_be_unaligned=True)
        drivers.append(FakeDriver(graph, settings, restored, taskmanagers=2))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.cancel()
        driver.close()


def blocked(driver, gate):
    """The driver takes no more rows: the tasks stand still up to the sources. Returns: when that has lasted."""
    driver.until_running()
    driver.grants = False
    gate.open()
    tasks = [task for manager in driver.managers.values() for task in manager._tasks.values()]
    sources = [task for task in tasks if task.attempt_id in driver.source_attempts]
    deadline = time.monotonic() + 20
    while not all(task.backpressured_ms or task.io().backpressured_ms for task in sources):
        assert time.monotonic() < deadline, "the sources are not held up"
        driver.hear_what_is_there()


@pytest.mark.parametrize(("old", "new"), [(2, 3), (2, 1)])
def test_what_was_in_flight_is_counted_once_at_another_parallelism(gate, run, old, new):
    driver = run(old)
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
    second = run(new, completed)
    second.until_ended()
    rows = before + second.rows
    assert Counter(value for value, _ in rows) == Counter(numbers(SPLITS, STEPS))
    assert seen(rows) == Counter(expected(SPLITS, STEPS))
