"""The result that `execute` returns. Source: pyflink.common.job_execution_result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.common.job_id import JobID
from penstock.engine.model.errors import ExternalError


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """Describes a job that has finished. There are no accumulators here: their dict is empty."""

    job_id: JobID
    net_runtime_ms: int
    accumulators: dict[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        """Return the id of the job that has finished."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """Return the time from submission to the end in ms."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return the accumulator's value; None, as there are none."""
        return self.accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return the accumulators' values; an empty dict, as there are none."""
        return dict(self.accumulators)

    def __str__(self) -> str:
        return (
            "Program execution finished\n"
            f"Job with JobID {self.job_id} has finished.\n"
            f"Job Runtime: {self.net_runtime_ms} ms\n"
        )


class DetachedJobExecutionResult(JobExecutionResult):
    """Names a job that was only submitted. Source: Flink DetachedJobExecutionResult."""

    def __init__(self, job_id: JobID) -> None:
        super().__init__(job_id, 0)

    def get_net_runtime(self) -> int:
        """Raise ExternalError: the job's end is not awaited here."""
        raise ExternalError(
            f"job {self.job_id} was submitted with execution.attached false, so its end is not "
            "awaited here. Ask the session: `penstock list -a`."
        )

    def __str__(self) -> str:
        return f"Job has been submitted with JobID {self.job_id}"
