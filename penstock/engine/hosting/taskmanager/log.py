"""Logs of a TaskManager: the transitions of its tasks, its slots, and its end. Any thread.

A task reports only its new state, so this module remembers the former one.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.engine.model.ids import AttemptId, JobId, ResourceId
from penstock.engine.model.messages import (
    EndTaskManager,
    OfferSlots,
    RegisterTaskManager,
    SlotFreed,
    StartTask,
    StopTask,
    TaskStateChanged,
)
from penstock.engine.model.states import ExecutionState

_LOG: Final = logging.getLogger(__name__)
_TRANSITION: Final = "job=%s taskmanager=%s attempt=%s task=%s %s->%s%s"


class TaskManagerLog:
    """`does`: logs an effect that is about to be carried out. `said`: logs a message to the JobManager."""

    def __init__(self, resource_id: ResourceId) -> None:
        self._me = resource_id
        self._tasks: dict[AttemptId, tuple[JobId, str, ExecutionState]] = {}

    def does(self, effect: object) -> None:
        match effect:
            case StartTask(deployment):
                name = f"{deployment.vertex_name}[{deployment.attempt_id.subtask}]"
                task = deployment.job_id, name, ExecutionState.CREATED
                self._tasks[deployment.attempt_id] = task
                self._moved(deployment.attempt_id, ExecutionState.DEPLOYING)
            case StopTask(attempt_id, cause):
                _LOG.info("taskmanager=%s attempt=%s STOP cause=%s", self._me, attempt_id, cause)
            case EndTaskManager(cause):
                _LOG.info("taskmanager=%s ENDS cause=%s", self._me, cause)

    def said(self, message: object) -> None:
        match message:
            case TaskStateChanged():
                failure = message.failure
                text = "" if failure is None else failure.text.partition("\n")[0]
                cause = "" if failure is None else f" cause={failure.kind}: {text}"
                self._moved(message.attempt_id, message.state, cause)
            case OfferSlots(_, offers):
                for offer in offers:
                    slot = offer.slot_index
                    text = "taskmanager=%s slot=%d OFFERED allocation=%s"
                    _LOG.info(text, self._me, slot, offer.allocation_id)
            case SlotFreed(_, slot, allocation_id):
                _LOG.info(
                    "taskmanager=%s slot=%d FREED allocation=%s", self._me, slot, allocation_id
                )
            case RegisterTaskManager():
                _LOG.info("taskmanager=%s REGISTERS slots=%d", self._me, message.slots)

    def _moved(self, attempt_id: AttemptId, state: ExecutionState, cause: str = "") -> None:
        """Log a task's transition. A task that was refused never ran here, so only its end is reported."""
        none = JobId("?"), "?", ExecutionState.CREATED
        job_id, name, former = self._tasks.pop(attempt_id, none)
        if not state.is_terminal:
            self._tasks[attempt_id] = job_id, name, state
        _LOG.info(_TRANSITION, job_id, self._me, attempt_id, name, former, state, cause)
