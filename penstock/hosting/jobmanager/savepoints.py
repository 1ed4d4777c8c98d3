"""Savepoints of a running job, for users' threads. Depends on the JobManager only by a protocol."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from penstock.hosting.checkpoints.keeper import CheckpointKeeper, SavepointFailed
from penstock.machines.job.job_master import JobMaster
from penstock.model.checkpoints import CheckpointType
from penstock.model.messages import JobEvent, TriggerSavepoint


class Manager(Protocol):
    """What these functions need of a JobManager."""

    keeper: CheckpointKeeper | None

    @property
    def job_master(self) -> JobMaster: ...
    def feed_soon(self, make: Callable[[int], JobEvent]) -> None: ...


def start_savepoint(manager: Manager, kind: CheckpointType, directory: str | None) -> Future[str]:
    """Ask for a savepoint, or with type CHECKPOINT for a checkpoint. Returns a future of its folder.

    Raises: SavepointFailed, ConfigurationError: it cannot be asked for.
    """
    keeper = manager.keeper
    if keeper is None or manager.job_master.checkpoints.coordinator is None:
        raise SavepointFailed(
            "no savepoint was taken: this job cannot take any. Jobs of type BATCH and jobs "
            "with blocking results take none. For other jobs, set "
            "execution.checkpointing.savepoint-dir or execution.checkpointing.dir."
        )
    folder = keeper.savepoint_folder(directory) if kind.is_savepoint else None
    request_id = secrets.token_hex(8)
    answered = keeper.expect_savepoint(request_id)
    manager.feed_soon(lambda now: TriggerSavepoint(request_id, kind, folder, now))
    return answered
