"""The table of jobs, by docs/spec/execution-graph.md#states-of-a-job."""

from itertools import product

import pytest

from penstock.engine.machines.job_state.job_status import IGNORED, TABLE, JobStatusEvent, step
from penstock.engine.model.errors import IllegalTransition
from penstock.engine.model.states import JobStatus as S

E = JobStatusEvent


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ([E.START, E.FINALIZED], S.FINISHED),
        ([E.START, E.RESTARTABLE_FAILURE, E.RESTARTED], S.RUNNING),
        ([E.START, E.FAIL, E.ALL_TASKS_TERMINAL], S.FAILED),
        ([E.START, E.RESTARTABLE_FAILURE, E.FAIL, E.ALL_TASKS_TERMINAL], S.FAILED),
        ([E.CANCEL, E.ALL_TASKS_TERMINAL], S.CANCELED),
        ([E.START, E.FAIL, E.CANCEL, E.ALL_TASKS_TERMINAL], S.CANCELED),
        ([E.START, E.CANCEL, E.FAIL, E.ALL_TASKS_TERMINAL], S.FAILED),
        ([E.START, E.CANCEL, E.TERMINATION_BROKE], S.FAILED),
        ([E.START, E.RESTARTABLE_FAILURE, E.SUSPEND], S.SUSPENDED),
        ([E.START, E.SUSPEND, E.CANCEL], S.SUSPENDED),
    ],
)
def test_paths_of_the_spec(path: list[E], end: S) -> None:
    status = S.CREATED
    for event in path:
        status = step(status, event)
    assert status is end


def test_starting_twice_is_illegal() -> None:
    with pytest.raises(IllegalTransition, match="START"):
        step(S.RUNNING, E.START)


def test_no_square_is_decided_twice_and_terminal_statuses_are_left_by_nothing() -> None:
    assert not TABLE.keys() & IGNORED
    assert not [s for s, _ in TABLE if s.is_terminal]
    for status, event in product(S, E):
        if status.is_terminal and (status, event) in IGNORED:
            assert step(status, event) is status
