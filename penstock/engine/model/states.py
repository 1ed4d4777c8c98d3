"""States of jobs, attempts and slots, with Flink's names in Flink's spelling.

CANCELING is an ExecutionState, CANCELLING a JobStatus. The transitions are not defined here: see
`engine/machines/execution/execution.py` and `engine/machines/job_state/job_status.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ExecutionState(StrEnum):
    """Life of one attempt. RECONCILING is kept for the REST API; nothing enters it."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"

    def __init__(self, _name: str) -> None:
        # An attribute: pages look at it for each of ten thousand subtasks.
        self.is_terminal: Final = _name in {"FINISHED", "CANCELED", "FAILED"}


class JobStatus(StrEnum):
    """Life of a job. Suspended is terminal here, but another JobManager may take the job."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def is_globally_terminal(self) -> bool:
        return self in (type(self).FAILED, type(self).CANCELED, type(self).FINISHED)

    @property
    def is_terminal(self) -> bool:
        return self.is_globally_terminal or self is type(self).SUSPENDED


class SlotState(StrEnum):
    """A slot as its TaskManager sees it."""

    FREE = "FREE"
    ALLOCATED = "ALLOCATED"
    ACTIVE = "ACTIVE"
    RELEASING = "RELEASING"


_S = ExecutionState
_LOUDEST_FIRST: Final = (_S.FAILED, _S.CANCELING, _S.CANCELED, _S.INITIALIZING, _S.RUNNING)


def aggregate_state(counts: Mapping[ExecutionState, int]) -> ExecutionState:
    """One state for all subtasks of a job vertex, as the dashboard shows it. Pure.

    Source: Flink ExecutionJobVertex.getAggregateJobVertexState
    (docs/spec/execution-graph.md#state-of-a-vertex).

    Return the most alarming state of any subtask; FINISHED when all are, RUNNING when some are;
    else CREATED.

    `counts`: subtasks by state.
    """
    for state in _LOUDEST_FIRST:
        if counts.get(state, 0):
            return state
    finished = counts.get(_S.FINISHED, 0)
    if not finished:
        return _S.CREATED
    return _S.FINISHED if finished == sum(counts.values()) else _S.RUNNING
