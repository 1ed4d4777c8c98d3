"""JobStatus with PyFlink's face. Knows no job. Source: pyflink.common.job_status."""

from __future__ import annotations

from enum import Enum

from penstock.model import states


class JobStatus(Enum):
    """Life of a job; the engine's INITIALIZING shows as CREATED, which PyFlink has no word for."""

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
        return states.JobStatus(self.name).is_globally_terminal

    def is_terminal_state(self) -> bool:
        return states.JobStatus(self.name).is_terminal

    @staticmethod
    def of(status: states.JobStatus) -> JobStatus:
        """The engine's status by this enum."""
        if status is states.JobStatus.INITIALIZING:
            return JobStatus.CREATED
        return JobStatus[status.name]
