"""The jobs of this process: `penstock.jobs()`. Not in PyFlink, where `flink list` asks the cluster."""

from __future__ import annotations

from datetime import datetime

from penstock.common.job_client import JobClient
from penstock.common.job_status import JobStatus
from penstock.engine.hosting.os.session_jobs import SESSION_JOBS, SessionJob


class RunningJob:
    """One job that a program of this process has started."""

    def __init__(self, job: SessionJob) -> None:
        self._job = job

    @property
    def name(self) -> str:
        """The name that `execute` was given."""
        return self._job.name

    @property
    def job_id(self) -> str:
        """The job's id, 32 hex digits."""
        return str(self._job.control.job_id)

    @property
    def status(self) -> JobStatus:
        """Its status now."""
        return JobStatus.of(self._job.control.status())

    @property
    def slots(self) -> int:
        """How many slots it holds now; 0 in runtime mode BATCH, where Spark's stages run it."""
        return self._job.slots()

    @property
    def started(self) -> datetime:
        """When it was started, in local time."""
        return datetime.fromtimestamp(self._job.started_s).astimezone()

    @property
    def client(self) -> JobClient:
        """Its client, as `env.execute_async` has returned it."""
        return JobClient(self._job.control)

    def cancel(self) -> None:
        """Cancel the job, and wait until it has ended and its slots are free."""
        self.client.cancel().result()

    def __repr__(self) -> str:
        return f"<job {self._job} {self.status.name} {self.job_id}>"


def jobs() -> list[RunningJob]:
    """Return the jobs that programs of this process have started and that have not ended, oldest first."""
    return [RunningJob(job) for job in SESSION_JOBS.running]
