"""JobStatus with PyFlink's interface. Source: pyflink.common.job_status."""

from __future__ import annotations

from enum import Enum

from penstock.engine.model import states


class JobStatus(Enum):
    """The states in the life of a job.

    INITIALIZING shows as CREATED, as PyFlink has no name for it.
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job has ended for good: FINISHED, FAILED or CANCELED."""
        return states.JobStatus(self.name).is_globally_terminal

    def is_terminal_state(self) -> bool:
        """Return whether the job no longer runs here."""
        return states.JobStatus(self.name).is_terminal

    @staticmethod
    def of(status: states.JobStatus) -> JobStatus:
        """Return the member for the runtime's own status."""
        if status is states.JobStatus.INITIALIZING:
            return JobStatus.CREATED
        return JobStatus[status.name]
