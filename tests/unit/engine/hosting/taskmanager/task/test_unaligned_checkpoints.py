"""Unaligned checkpoints on real TaskManagers: barriers pass what stands still, and nothing of that
is lost (docs/spec/checkpoints.md#barriers, #data-in-flight).
"""

import time
from collections import Counter
from functools import partial

import pytest

from penstock.engine.hosting.network import peers
from penstock.engine.hosting.taskmanager.task.outputs_in_flight import OutputsInFlight
from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.model.messages import WaitsForFinalCheckpoint
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from tests.tools.programs.gated_program import (
    FLOOD,
    ROWS,
    Flooding,
    count_of_splits,
    expected,
    gated_program,
    numbers_of_splits,
    seen,
    stand_still,
)

STEPS = 6_000
UNALIGNED = CheckpointOptions(is_unaligned=True)


@pytest.fixture
def run(run):
    """Of jobs whose checkpoints may be unaligned."""
    return partial(run, may_be_unaligned=True)


def blocked(driver, gate):
    """The driver takes no more rows: the tasks stand still up to the sources. Returns: when that has lasted."""
    driver.until_running()
    driver.grants = False
    gate.open()
    driver.until_held_up(driver.source_attempts)


def waiting_for_the_last(driver):
    """Attempts that have come to the end of their data."""
    return {one.attempt_id for one in driver.heard if isinstance(one, WaitsForFinalCheckpoint)}


def restored_rows(run, gate, driver, completed, before, taskmanagers):
    driver.cancel()
    driver.until_ended(ExecutionState.CANCELED)
    second = run(gated_program(gate.name, steps=STEPS), completed, taskmanagers)
    second.until_ended()
    return before + second.rows


@pytest.mark.parametrize(
    ("taskmanagers", "is_tcp"),
    [
        (1, False),
        pytest.param(2, False, marks=pytest.mark.long),
        pytest.param(2, True, marks=pytest.mark.long),
    ],
)
def test_a_barrier_overtakes_what_stands_still(gate, run, taskmanagers, is_tcp, monkeypatch):
    if is_tcp:  # else TaskManagers of one machine talk over Unix sockets
        monkeypatch.setattr(peers, "listen", lambda *_: [])
    driver = run(gated_program(gate.name, steps=STEPS), taskmanagers=taskmanagers)
    blocked(driver, gate)
    driver.trigger(1, options=UNALIGNED)
    completed = driver.checkpoint(1)
    before = list(driver.rows)
    assert len(before) < 2 * STEPS * ROWS
    acks = driver.acknowledged(1).values()
    assert sum(ack.metrics.bytes_in_flight for ack in acks) > 0
    rows = restored_rows(run, gate, driver, completed, before, taskmanagers)
    assert Counter(value for value, _ in rows) == Counter(numbers_of_splits(2, STEPS))
    assert seen(rows) == Counter(expected(2, STEPS))


@pytest.mark.parametrize("taskmanagers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_an_aligned_barrier_that_takes_too_long_overtakes(gate, run, taskmanagers):
    driver = run(gated_program(gate.name, steps=STEPS), taskmanagers=taskmanagers)
    blocked(driver, gate)
    options = CheckpointOptions(aligned_timeout_ms=20)
    driver.trigger(1, options=options, timestamp_ms=time.time_ns() // 1_000_000)
    completed = driver.checkpoint(1)
    rows = restored_rows(run, gate, driver, completed, list(driver.rows), taskmanagers)
    assert Counter(value for value, _ in rows) == Counter(numbers_of_splits(2, STEPS))
    assert seen(rows) == Counter(expected(2, STEPS))


def test_an_abort_lets_go_of_a_snapshot_that_waits_for_what_is_in_flight(gate, run, monkeypatch):
    """A snapshot may hold files of a database."""
    close, closed = OperatorSnapshot.close, []

    def noted(snapshot, *, is_kept):
        closed.append(is_kept)
        close(snapshot, is_kept=is_kept)

    monkeypatch.setattr(OperatorSnapshot, "close", noted)
    monkeypatch.setattr(OutputsInFlight, "of", lambda outputs, checkpoint_id: None)
    driver = run(gated_program(gate.name, parallelism=1))
    driver.until_running()
    driver.trigger(1, options=UNALIGNED)
    (manager,) = driver.managers.values()
    (source,) = driver.source_attempts
    (downstream,) = set(driver.attempts) - {source}
    driver.until_acknowledged(1, [downstream])
    (task,) = [one for one in manager.tasks() if one.attempt_id == source]
    assert 1 in task.checkpoints.under_way
    driver.abort(1)
    assert closed.count(False) == 1


def test_without_load_a_barrier_that_may_time_out_stays_aligned(gate, run):
    driver = run(gated_program(gate.name, steps=STEPS))
    driver.until_running()
    options = CheckpointOptions(aligned_timeout_ms=60_000)
    driver.trigger(1, options=options, timestamp_ms=time.time_ns() // 1_000_000)
    acks = driver.until_acknowledged(1)
    assert all(ack.metrics.bytes_in_flight == 0 for ack in acks.values())


def test_unaligned_checkpoints_follow_each_other(gate, run):
    driver = run(gated_program(gate.name, steps=STEPS), taskmanagers=2)
    driver.until_running()
    gate.open()
    for checkpoint_id in range(1, 6):
        driver.trigger(checkpoint_id, options=UNALIGNED)
        running = [a for a in driver.attempts if driver.states[a] is ExecutionState.RUNNING]
        driver.until(
            lambda ids=set(running), i=checkpoint_id: (
                ids <= set(driver.acknowledged(i)) or driver.declined()
            )
        )
    driver.until_ended()
    assert seen(driver.rows) == Counter(expected(2, STEPS))


@pytest.mark.parametrize("taskmanagers", [1, 2])
def test_a_task_takes_part_until_its_consumer_has_read_its_last_record(gate, run, taskmanagers):
    """Else nobody could say what is on its way to a consumer that stands still
    (docs/spec/checkpoints.md#finished-tasks).
    """
    flood = gated_program(gate.name, parallelism=1, function=Flooding)
    driver = run(flood, taskmanagers=taskmanagers, has_final_checkpoint=True)
    stand_still(driver, gate)
    gate.open()
    driver.until(lambda: set(driver.source_attempts) <= waiting_for_the_last(driver))
    driver.trigger(1, options=UNALIGNED)
    acks = driver.until_acknowledged(1)
    assert all(acks[one].state.is_finished for one in driver.source_attempts)
    driver.notify(1)
    driver.trigger(2, options=UNALIGNED)
    driver.until_acknowledged(2)
    driver.grant_what_came()
    driver.until(lambda: set(driver.attempts) <= waiting_for_the_last(driver))
    driver.until(lambda: ExecutionState.FINISHED in driver.states.values())
    (consumer,) = set(driver.attempts) - set(driver.source_attempts)
    driver.trigger(3, [consumer], UNALIGNED)
    driver.until_acknowledged(3, [consumer])
    driver.notify(3, [consumer])
    driver.until_ended()
    assert len(driver.rows) == FLOOD * count_of_splits(1)


@pytest.mark.parametrize(("old", "new"), [(2, 3), pytest.param(2, 1, marks=pytest.mark.long)])
def test_what_was_in_flight_is_counted_once_at_another_parallelism(gate, run, old, new):
    def started(parallelism, restored=None):
        graph = gated_program(gate.name, parallelism, 2, STEPS)
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
    assert Counter(value for value, _ in rows) == Counter(numbers_of_splits(2, STEPS))
    assert seen(rows) == Counter(expected(2, STEPS))
