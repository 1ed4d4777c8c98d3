"""TaskLifecycle and CancellationSchedule, by docs/spec/tasks.md#states-on-the-taskmanager, #cancel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.taskmanager.task_lifecycle import (
    CancellationSchedule,
    CancelStep,
    TaskLifecycle,
    refusal_of_checkpoint,
)
from penstock.engine.model.errors import ConfigurationError, IllegalTransition
from penstock.engine.model.states import ExecutionState as S

ORDER = (S.CREATED, S.DEPLOYING, S.INITIALIZING, S.RUNNING, S.FINISHED)


def at(state):
    return TaskLifecycle(state)


def test_a_task_goes_through_its_states_in_order_and_in_no_other():
    lifecycle = TaskLifecycle()
    for state in ORDER[1:]:
        assert lifecycle.advance(state)
    with pytest.raises(IllegalTransition):
        at(S.DEPLOYING).advance(S.RUNNING)


@pytest.mark.parametrize("state", ORDER[:-1])
def test_a_cancelled_or_failed_task_does_not_advance(state):
    following = ORDER[ORDER.index(state) + 1]
    lifecycle = at(state)
    lifecycle.cancel()
    assert not lifecycle.advance(following)
    assert lifecycle.state is S.CANCELING
    lifecycle = at(state)
    lifecycle.fail()
    assert not lifecycle.advance(following)
    assert lifecycle.state is S.FAILED


def test_only_running_code_is_interrupted_and_once():
    assert [at(state).cancel() for state in ORDER] == [False, False, True, True, False]
    lifecycle = at(S.RUNNING)
    assert lifecycle.fail()
    assert not lifecycle.cancel()


def test_failing_a_cancelling_task_changes_nothing():
    lifecycle = at(S.RUNNING)
    lifecycle.cancel()
    assert not lifecycle.fail()
    assert lifecycle.state is S.CANCELING


@pytest.mark.parametrize(
    ("state", "is_signal", "ends"),
    [
        (S.RUNNING, False, S.FAILED),
        (S.RUNNING, True, S.CANCELED),
        (S.CANCELING, False, S.CANCELED),
        (S.CANCELING, True, S.CANCELED),
        (S.FAILED, False, S.FAILED),
        (S.FAILED, True, S.FAILED),
        (S.DEPLOYING, False, S.FAILED),
        (S.INITIALIZING, True, S.CANCELED),
        (S.FINISHED, False, S.FINISHED),
    ],
)
def test_what_a_task_ends_as_when_its_code_raises(state, is_signal, ends):
    lifecycle = at(state)
    assert lifecycle.ended_with(is_cancel_signal=is_signal) is ends
    assert lifecycle.state is ends


def test_checkpoints_are_refused_outside_running():
    refused = [state for state in S if refusal_of_checkpoint(state) is not None]
    assert set(refused) == set(S) - {S.RUNNING}


@given(st.lists(st.sampled_from(["cancel", "fail", "error", "signal", "advance"]), max_size=12))
def test_final_states_stay(events):
    lifecycle = TaskLifecycle()
    final = None
    for event in events:
        if event == "advance":
            if lifecycle.state in ORDER[:-1]:
                lifecycle.advance(ORDER[ORDER.index(lifecycle.state) + 1])
        elif event in {"cancel", "fail"}:
            getattr(lifecycle, event)()
        else:
            lifecycle.ended_with(is_cancel_signal=event == "signal")
        assert final in {None, lifecycle.state}
        if lifecycle.state.is_terminal:
            final = lifecycle.state


def steps(schedule, until_ms, every_ms):
    return [(now, step) for now in range(0, until_ms + 1, every_ms) for step in schedule.due(now)]


def test_interrupts_repeat_until_the_process_has_to_go():
    found = steps(CancellationSchedule(0, 30_000, 180_000), 180_000, 1000)
    interrupts = [now for now, step in found if step is CancelStep.INTERRUPT]
    assert interrupts == [0, 30_000, 60_000, 90_000, 120_000, 150_000]
    assert found[-1] == (180_000, CancelStep.FATAL)


def test_interrupts_that_nobody_looked_for_are_one():
    schedule = CancellationSchedule(0, 100, 0)
    assert [list(schedule.due(now)) for now in (350, 399, 400)] == [
        [CancelStep.INTERRUPT],
        [],
        [CancelStep.INTERRUPT],
    ]
    assert schedule.next_ms == 500


def test_a_timeout_of_zero_is_none():
    schedule = CancellationSchedule(0, 30_000, 0)
    assert schedule.fatal_at_ms is None
    assert CancelStep.FATAL not in [step for _, step in steps(schedule, 10**7, 10**5)]


@pytest.mark.parametrize(("interval", "timeout"), [(0, 1), (-1, 1), (1, -1)])
def test_times_that_cannot_work_are_refused(interval, timeout):
    with pytest.raises(ConfigurationError, match=r"task\.cancellation"):
        CancellationSchedule(0, interval, timeout)
