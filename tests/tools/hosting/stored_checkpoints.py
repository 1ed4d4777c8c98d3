"""Checkpoints in a storage, of one operator."""

from penstock.engine.model.checkpoints import (
    CheckpointType,
    CompletedCheckpoint,
    KeyedStateHandle,
    OperatorCheckpoint,
    OperatorSubtaskState,
)
from penstock.engine.model.ids import JobId

JOB = JobId("job-1")
LARGE = bytes(range(256)) * 100


def stored(storage, checkpoint_id, *parts, inline_bytes=1000):
    """A complete checkpoint of one operator whose keyed state are these parts."""
    folder = storage.folder_of(checkpoint_id)
    writer = storage.writer(folder, inline_bytes)
    handles = [writer.add(part) for part in parts]
    writer.close()
    keyed = tuple(KeyedStateHandle(0, 127, (0,), handle) for handle in handles)
    return storage.complete(checkpoint(checkpoint_id, OperatorSubtaskState(keyed)), folder)


def checkpoint(checkpoint_id, *subtasks, coordinator=None):
    operator = OperatorCheckpoint("uid", "Map", 2, 128, subtasks, coordinator_state=coordinator)
    return CompletedCheckpoint(checkpoint_id, JOB, CheckpointType.CHECKPOINT, 7, (operator,))
