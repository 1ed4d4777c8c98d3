"""The status of a job as a whole, and the failure that it is dealing with.

Source: Flink DefaultExecutionGraph.transitionState. `job_status.py` has the table of statuses.
"""

from __future__ import annotations

from penstock.engine.machines.failover.restarts import Restarts
from penstock.engine.machines.job_state import job_status as job_machine
from penstock.engine.machines.job_state.event_log import EventLog
from penstock.engine.machines.job_state.failures import RootCause
from penstock.engine.machines.job_state.job_status import JobStatusEvent
from penstock.engine.model.messages import JobStatusChanged
from penstock.engine.model.states import JobStatus

_FAILING = frozenset({JobStatus.FAILING, JobStatus.FAILED, JobStatus.RESTARTING})


class JobLifecycle:
    """`root`: the first failure that is not merely a consequence of another one. `has_handed_over`: what the tasks did is in the checkpoint
    that the next generation begins with, so their ends do not matter. `awaits_next`: all tasks have ended, and the next generation begins.
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
        return job_machine.step(self.status, event)

    def move(self, event: JobStatusEvent) -> None:
        following = self.after(event)
        if following is self.status:
            return
        self.status = following
        failure = self.root.failure if following in _FAILING else None
        self._event_log.tell(JobStatusChanged(following, self._event_log.now_ms, failure))
