"""JobID: a job's id with PyFlink's interface. Source: pyflink.common.job_id."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobID:
    """Identifies a job. `str()` returns 32 hex digits."""

    value: str

    def __str__(self) -> str:
        return self.value
