"""JobID: a job's id with PyFlink's face. Source: pyflink.common.job_id."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobID:
    """32 hex digits; `str()` gives them."""

    value: str

    def __str__(self) -> str:
        return self.value
