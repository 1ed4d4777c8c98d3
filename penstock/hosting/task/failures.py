"""Converts an error of a task to text for the JobManager, because nobody unpickles exceptions."""

from __future__ import annotations

from penstock.model.bounded_text import bounded_str
from penstock.model.error_text import traceback_of
from penstock.model.errors import ExternalError, UserCodeError
from penstock.model.messages import FailureInfo


def failure_info(error: BaseException, where: str) -> FailureInfo:
    """Convert an error to text, the user's own traceback first."""
    if isinstance(error, UserCodeError):
        return FailureInfo("UserCodeError", f"{error}\n{where}", is_user_code=True)
    if isinstance(error, ExternalError):
        name = type(error).__name__
        lost = getattr(error, "partition_id", None)
        return FailureInfo(
            name,
            f"{name}: {bounded_str(error)}\n{where}",
            lost_partition=lost.partition_id if lost else None,
        )
    return FailureInfo(type(error).__name__, f"{traceback_of(error)}\n{where}")
