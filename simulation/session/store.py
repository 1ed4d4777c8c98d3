"""What outlives a driver: the entry of each job that was taken, who holds it, and its result.

Stands for `engine/hosting/jobmanager/ha/store.py` and `engine/hosting/jobmanager/ha/election.py`. Differs: a driver that is gone is known at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus
from simulation.session.expectations import Expectations, SessionName
from simulation.session.plan import SessionJob
from simulation.takeover import Left

if TYPE_CHECKING:
    from simulation.session.shared_cluster import SharedCluster


@dataclass(slots=True)
class Entry:
    """`owner`: the number of the driver that runs the job; None: nobody. `left`: what the former driver has left. `result`: how the
    job has ended for good; None: it has not."""

    job: SessionJob
    owner: int | None = None
    left: Left | None = None
    result: JobStatus | None = None


@dataclass(slots=True)
class Store:
    """`entries`: of jobs that were taken and are not cleaned up. `results`: of all jobs that have ended for good."""

    expectations: Expectations
    entries: dict[JobId, Entry] = field(default_factory=dict)
    results: dict[JobId, list[JobStatus]] = field(default_factory=dict)

    def claim(self, job: SessionJob, owner: int) -> Entry:
        """Raises Violation: another driver runs the job, or it has its result."""
        entry = self.entries.setdefault(job.job_id, Entry(job))
        is_free = entry.owner in {None, owner}
        self.expectations.expect(SessionName.ONE_RUN, is_free, (job.job_id, entry.owner, owner))
        self.expectations.expect(
            SessionName.RESULT_ONCE, job.job_id not in self.results, (job.job_id, self.results)
        )
        entry.owner = owner
        return entry

    def record(self, job_id: JobId, status: JobStatus) -> None:
        """The job has ended for good."""
        self.entries[job_id].result = status
        results = self.results.setdefault(job_id, [])
        results.append(status)
        self.expectations.expect(SessionName.ENDS_ONCE, len(results) == 1, (job_id, results))

    def has_result(self, cluster: SharedCluster) -> bool:
        """Whether the end of this run is recorded."""
        entry = self.entries.get(cluster.shared_job.job_id)
        return entry is not None and entry.result is cluster.status

    def let_go(self, job_id: JobId, left: Left | None) -> None:
        """Its driver is gone, or has suspended it."""
        entry = self.entries.get(job_id)
        if entry is not None:
            entry.owner, entry.left = None, left or entry.left

    def remove(self, job_id: JobId) -> None:
        entry = self.entries.pop(job_id, None)
        has_result = entry is None or entry.result is not None
        self.expectations.expect(
            SessionName.GOES_ON, has_result, f"{job_id} is removed without a result"
        )
