"""Messages of a JobManager that was deposed and does not know it: all those that would do harm if
they were accepted.

Each message fits what the TaskManager has at that moment: its slots, its tasks, its results. Knows
no network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.model.ids import AllocationId, AttemptId, FencingToken, JobId
from penstock.engine.model.messages import (
    AnswerOffers,
    AskTaskManager,
    CancelTask,
    DeployTask,
    Fenced,
    FreeSlot,
    ListLogs,
    NotifyCheckpointComplete,
    ReleasePartitions,
    RequestSlot,
    Shutdown,
    TriggerCheckpoint,
)
from simulation.taskmanager import SimTaskManager

DEPOSED: Final = FencingToken("deposed")
_JOB: Final = JobId("job-of-deposed")
_LATER: Final = 1_000
"""Numbers of attempts and checkpoints that the present leader has not reached."""


def late_words(taskmanager: SimTaskManager, draw: Random) -> Fenced:
    """Return one message; a harmful one if the TaskManager has anything that it could harm."""
    messages = list(_messages(taskmanager, draw.randrange(_LATER)))
    return replace(draw.choice(messages), fencing_token=DEPOSED)


def _messages(taskmanager: SimTaskManager, number: int) -> Iterator[Fenced]:
    me = taskmanager.resource_id
    yield RequestSlot(me, number % taskmanager.slots_count, AllocationId(f"late-{number}"), _JOB)
    for slot in taskmanager.executor.slots:
        yield FreeSlot(me, slot.allocation_id, "deposed")
        yield AnswerOffers(me, (slot.allocation_id,), ())
        yield AnswerOffers(me, (), (slot.allocation_id,))
    for task in taskmanager.tasks.values():
        attempt_id, checkpoint_id = task.attempt_id, _LATER + number
        later = AttemptId(attempt_id.execution_vertex_id, attempt_id.attempt + checkpoint_id)
        made = tuple((one.partition_id, one.producer) for one, _, _ in task.outputs())
        yield CancelTask(me, attempt_id)
        yield DeployTask(me, replace(task.deployment, attempt_id=later))
        yield ReleasePartitions(me, made)
        yield TriggerCheckpoint(me, (attempt_id,), checkpoint_id, 0, CheckpointOptions())
        yield NotifyCheckpointComplete(me, (attempt_id,), checkpoint_id, 0)
    yield AskTaskManager(me, number, ListLogs())
    yield Shutdown("deposed")
