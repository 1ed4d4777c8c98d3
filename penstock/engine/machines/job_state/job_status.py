"""The status of a job: a table of statuses and events.

A regional restart is RUNNING -> RESTARTING -> RUNNING. A global failure is visible as FAILING and
rebuilds the job: RUNNING -> FAILING -> RESTARTING -> CREATED -> RUNNING. Knows of tasks only
whether all of them are terminal. Source: Flink JobStatus, DefaultExecutionGraph
(docs/spec/execution-graph.md#states-of-a-job); differs: one table, compare-and-set replaced by
`step`; the global path is that of Flink's documentation of job states, not of its Default
scheduler, which stays in RESTARTING.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import product
from typing import Final

from penstock.engine.machines.failover import Restarts
from penstock.engine.machines.job_state.failures import RootCause
from penstock.engine.machines.story import EventLog
from penstock.engine.model.errors import IllegalTransition
from penstock.engine.model.messages import JobStatusChanged
from penstock.engine.model.states import JobStatus


class JobStatusEvent(StrEnum):
    """What can happen to a job as a whole."""

    BUILT = "BUILT"
    START = "START"
    RESTARTABLE_FAILURE = "RESTARTABLE_FAILURE"
    """A failure of tasks: their regions start again."""
    RESTARTED = "RESTARTED"
    GLOBAL_FAILURE = "GLOBAL_FAILURE"
    """A failure of the job as a whole that allows a restart: all tasks end first."""
    READY_TO_RESTART = "READY_TO_RESTART"
    """No task is left after a global failure."""
    REBUILT = "REBUILT"
    """All tasks have new attempts, and none of them is scheduled."""
    FAIL = "FAIL"
    """A failure after which the job does not restart."""
    CANCEL = "CANCEL"
    SUSPEND = "SUSPEND"
    ALL_TASKS_TERMINAL = "ALL_TASKS_TERMINAL"
    FINALIZED = "FINALIZED"
    TERMINATION_BROKE = "TERMINATION_BROKE"


_S, _E = JobStatus, JobStatusEvent
_LIVE: Final = (_S.CREATED, _S.RUNNING, _S.RESTARTING)
_TERMINAL: Final = (_S.FINISHED, _S.CANCELED, _S.FAILED, _S.SUSPENDED)

# fmt: off
TABLE: Final[Mapping[tuple[JobStatus, JobStatusEvent], JobStatus]] = {
    (_S.INITIALIZING, _E.BUILT):              _S.CREATED,
    (_S.CREATED, _E.START):                   _S.RUNNING,
    (_S.RUNNING, _E.RESTARTABLE_FAILURE):     _S.RESTARTING,
    (_S.RESTARTING, _E.RESTARTABLE_FAILURE):  _S.RESTARTING,
    (_S.RESTARTING, _E.RESTARTED):            _S.RUNNING,
    **{(status, _E.GLOBAL_FAILURE): _S.FAILING for status in (_S.RUNNING, _S.RESTARTING, _S.FAILING)},
    (_S.FAILING, _E.READY_TO_RESTART):        _S.RESTARTING,
    (_S.RESTARTING, _E.REBUILT):              _S.CREATED,
    (_S.RUNNING, _E.FINALIZED):               _S.FINISHED,
    **{(status, _E.FAIL): _S.FAILING for status in (*_LIVE, _S.CANCELLING)},
    **{(status, _E.CANCEL): _S.CANCELLING for status in (*_LIVE, _S.FAILING)},
    **{(status, _E.SUSPEND): _S.SUSPENDED
       for status in (_S.INITIALIZING, *_LIVE, _S.FAILING, _S.CANCELLING)},
    (_S.FAILING, _E.ALL_TASKS_TERMINAL):      _S.FAILED,
    (_S.CANCELLING, _E.ALL_TASKS_TERMINAL):   _S.CANCELED,
    (_S.CANCELLING, _E.TERMINATION_BROKE):    _S.FAILED,
}
IGNORED: Final = frozenset({  # The event came too late, or twice.
    *product(_TERMINAL, (_E.CANCEL, _E.SUSPEND, _E.FAIL)),
    (_S.FAILING, _E.FAIL), (_S.CANCELLING, _E.CANCEL),
})
# fmt: on


def step(status: JobStatus, event: JobStatusEvent) -> JobStatus:
    """Return the next status, or the same one if the event is ignored.

    Raises: IllegalTransition: the event can never happen in this status (a second START, for
    example).
    """
    if (status, event) in IGNORED:
        return status
    following = TABLE.get((status, event))
    if following is None:
        takes = ", ".join(e.name for s, e in TABLE if s is status) or "nothing"
        raise IllegalTransition(
            f"job: got {event.name} in {status.name}, which takes only {takes}. See the story "
            "of the job for what led to it."
        )
    return following


_FAILING = frozenset({JobStatus.FAILING, JobStatus.FAILED, JobStatus.RESTARTING})


class JobLifecycle:
    """The status of a job as a whole, and the failure that it is dealing with.

    Source: Flink DefaultExecutionGraph.transitionState.

    `root`: the first failure that is not merely a consequence of another one. `has_handed_over`: what the tasks did is
    in the checkpoint that the next generation begins with, so their ends do not matter. `awaits_next`: all tasks have
    ended, and the next generation begins.
    """

    def __init__(
        self, event_log: EventLog, restarts: Restarts, status: JobStatus = JobStatus.CREATED
    ) -> None:
        self.status = status
        self.has_handed_over = False
        self.awaits_next = False
        self.root = RootCause()
        self._event_log = event_log
        self._restarts = restarts

    @property
    def is_restarting(self) -> bool:
        """Whether the job restarts, now or when all tasks have ended."""
        if self.status is JobStatus.FAILING:
            return self._restarts.global_one is not None
        return self.status is JobStatus.RESTARTING

    def after(self, event: JobStatusEvent) -> JobStatus:
        """Return the status after the event, without changing it."""
        return step(self.status, event)

    def move(self, event: JobStatusEvent) -> None:
        following = self.after(event)
        if following is self.status:
            return
        self.status = following
        failure = self.root.failure if following in _FAILING else None
        self._event_log.emit_noted(JobStatusChanged(following, self._event_log.now_ms, failure))
