"""The histories of all jobs of this driver, in memory of a bounded size.

Belongs to whoever holds the observatory's lock. Looking lets other threads run after each few subtasks, because a job's control
loop must not wait for it.
"""

from __future__ import annotations

from typing import Final

from penstock.hosting.clock import give_way
from penstock.model.ids import JobId
from penstock.observation.jobs.lane_history import JobLanes
from penstock.observation.jobs.snapshots import JobSnapshot
from penstock.observation.jobs.vertex_history import JobHistory

MOST_VERTICES: Final = 1_000
"""Of all jobs together. They take 116 MB at most."""
MOST_SUBTASKS: Final = 20_000
"""Of all jobs together, whose lanes are kept. They take 12 MB at most."""


class Histories:
    """By job. Those of jobs that have ended go when others need their memory, the oldest first."""

    def __init__(
        self, most_vertices: int = MOST_VERTICES, most_subtasks: int = MOST_SUBTASKS
    ) -> None:
        self._most = most_vertices
        self._most_subtasks = most_subtasks
        self._jobs: dict[JobId, JobHistory] = {}
        self._lanes: dict[JobId, JobLanes] = {}
        self._ended: dict[JobId, None] = {}

    @property
    def bytes(self) -> int:
        """What all rows take, without the lanes of subtasks."""
        return sum(job.bytes for job in self._jobs.values())

    @property
    def bytes_of_lanes(self) -> int:
        """What the lanes of all subtasks take."""
        return sum(job.bytes_held for job in self._lanes.values())

    def look(self, job: JobSnapshot) -> None:
        """Look at a job as it is now."""
        if job.status.is_terminal:
            if job.job_id in self._jobs:
                self._ended.setdefault(job.job_id)
            return
        history = self._jobs.get(job.job_id)
        if history is None:
            history = self._jobs[job.job_id] = JobHistory(self._has_room)
            self._lanes[job.job_id] = JobLanes(self._has_room_for)
        for _ in history.look(job):
            give_way()
        for _ in self._lanes[job.job_id].look(job):
            give_way()

    def of(self, job_id: JobId) -> JobHistory | None:
        return self._jobs.get(job_id)

    def lanes_of(self, job_id: JobId) -> JobLanes | None:
        return self._lanes.get(job_id)

    def forget(self, job_id: JobId) -> None:
        self._jobs.pop(job_id, None)
        self._lanes.pop(job_id, None)
        self._ended.pop(job_id, None)

    def _has_room(self) -> bool:
        """Whether one more vertex can be kept."""
        while sum(len(job.vertices) for job in self._jobs.values()) >= self._most:
            if not self._ended:
                return False
            self.forget(next(iter(self._ended)))
        return True

    def _has_room_for(self, subtasks: int) -> bool:
        """Whether the lanes of so many more subtasks can be kept."""
        while sum(job.subtasks for job in self._lanes.values()) + subtasks > self._most_subtasks:
            if not self._ended:
                return False
            self.forget(next(iter(self._ended)))
        return True
