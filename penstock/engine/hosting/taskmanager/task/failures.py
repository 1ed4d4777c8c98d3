"""Converts an error of a task to text for the JobManager, because nobody unpickles exceptions."""

from __future__ import annotations

import logging
from typing import Final

from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.errors import ExternalError, UserCodeError, may_recover
from penstock.engine.model.messages import FailureInfo, TaskStateChanged
from penstock.engine.model.states import ExecutionState
from penstock.engine.model.texts.bounded_text import bounded_str
from penstock.engine.model.texts.error_text import traceback_of

_LOG: Final = logging.getLogger(__name__)


def failure_info(error: BaseException, where: str, *, is_full: bool = False) -> FailureInfo:
    """Convert an error to text, the user's own error first. Penstock's frames go to the log, and into the text of a
    user's error if `is_full`.
    """
    if isinstance(error, UserCodeError):
        text = user_failure(error, where, is_full)
        return FailureInfo(
            "UserCodeError", text, is_user_code=True, is_recoverable=error.is_recoverable
        )
    if isinstance(error, ExternalError):
        name = type(error).__name__
        lost = getattr(error, "partition_id", None)
        return FailureInfo(
            name,
            f"{name}: {bounded_str(error)}\n{where}",
            is_recoverable=error.is_recoverable,
            lost_partition=lost.partition_id if lost else None,
        )
    text = f"{traceback_of(error)}\n{where}"
    return FailureInfo(type(error).__name__, text, is_recoverable=may_recover(error))


def not_started(deployment: TaskDeployment) -> TaskStateChanged:
    """Return the report of a task whose code has not come."""
    missing = ExternalError(f"the code of its chain ({deployment.chain_blob}) was not sent")
    failure = failure_info(missing, f"  while deploying {deployment.vertex_name}")
    return TaskStateChanged(deployment.attempt_id, ExecutionState.FAILED, failure)


def user_failure(error: UserCodeError, where: str, is_full: bool) -> str:
    """Return the text of a user's error. `where`: a line that names the task."""
    _LOG.info("a user function failed\n%s\n%s", where, error.frames)
    text = f"{error}\n{where}" if where else str(error)
    return f"{text}\n  all frames:\n{error.frames}" if is_full and error.frames else text
