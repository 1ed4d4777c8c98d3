"""Whether a TaskManager takes a task: who sends it, and is there an active slot for it.

Checks in Flink's order; who is refused changes nothing. Knows no thread and opens no blob.
Source: Flink TaskExecutor.submitTask, JobTable (spec 1.2).
"""

from __future__ import annotations

from penstock.machines.taskmanager.task_slots import TaskSlots
from penstock.model.errors import ExternalError
from penstock.model.ids import AllocationId, AttemptId, FencingToken, JobId


class TaskSubmissionError(ExternalError):
    """A task was not taken; its JobMaster places it anew."""


class TaskSubmissions:
    """JobMasters that this TaskManager is connected to, over its slots."""

    def __init__(self, slots: TaskSlots) -> None:
        self._slots = slots
        self._masters: dict[JobId, FencingToken] = {}

    def connect(self, job_id: JobId, token: FencingToken) -> None:
        """A JobMaster leads this job; a former one's tasks are refused from now on."""
        self._masters[job_id] = token

    def disconnect(self, job_id: JobId) -> None:
        self._masters.pop(job_id, None)

    def submit(
        self, job_id: JobId, token: FencingToken, allocation_id: AllocationId, attempt_id: AttemptId
    ) -> None:
        """The attempt moves into its slot, which becomes ACTIVE. Raises: TaskSubmissionError."""
        known = self._masters.get(job_id)
        if known is None:
            raise TaskSubmissionError(
                f"{attempt_id}: no connection to a JobMaster of job {job_id}; connected are {sorted(self._masters)}"
            )
        if known != token:
            raise TaskSubmissionError(
                f"{attempt_id}: sent under fencing token {token}, but job {job_id} is led under another one"
            )
        slot = self._slots.slot(allocation_id)
        if slot is not None and slot.job_id != job_id:
            raise TaskSubmissionError(
                f"{attempt_id}: slot {allocation_id} belongs to job {slot.job_id}"
            )
        self._slots.mark_active(allocation_id)  # the task may overtake the answer to the offer
        try:
            self._slots.add_task(allocation_id, attempt_id)
        except ExternalError as error:
            raise TaskSubmissionError(str(error)) from error
