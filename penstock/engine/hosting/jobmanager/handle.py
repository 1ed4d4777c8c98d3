"""The handle by which a program controls its running job."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from penstock.engine.hosting.jobmanager.checkpoint_writer import CheckpointWriter, SavepointFailed
from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import CoordinatedVertex
from penstock.engine.hosting.jobmanager.flame_graphs import FlameGraphs
from penstock.engine.hosting.jobmanager.jobmanager import JobManager
from penstock.engine.hosting.jobmanager.rescales import Requirements
from penstock.engine.hosting.operations import ObservedJob
from penstock.engine.hosting.os.clock import monotonic_ms, wall_ms
from penstock.engine.hosting.os.waiting import (
    Interruptible,
    Reader,
    awaited,
    interrupted,
    wait_for_end,
)
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.elastic import (
    JobResourceRequirements,
    ParallelismBounds,
    RescaleOutcome,
)
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.ids import JobId, ResourceId
from penstock.engine.model.messages import (
    DumpThreads,
    JobEvent,
    ListLogs,
    LogList,
    LogPiece,
    ReadLog,
    TaskIo,
    ThreadDump,
    TriggerSavepoint,
)
from penstock.engine.model.metrics import Measured
from penstock.engine.model.program import JobOutcome
from penstock.engine.model.states import JobStatus


class Manager(Protocol):
    """What savepoints need of a JobManager."""

    checkpoint_writer: CheckpointWriter | None

    @property
    def job_master(self) -> JobMaster: ...
    def feed_soon(self, make: Callable[[int], JobEvent]) -> None: ...


def start_savepoint(manager: Manager, kind: CheckpointType, directory: str | None) -> Future[str]:
    """Ask for a savepoint, or with type CHECKPOINT for a checkpoint. Returns a future of its folder.

    Raises: SavepointFailed, ConfigurationError: it cannot be asked for.
    """
    writer = manager.checkpoint_writer
    if writer is None or manager.job_master.checkpoints.coordinator is None:
        raise SavepointFailed(
            "no savepoint was taken: this job cannot take any. Jobs of type BATCH and jobs "
            "with blocking results take none. For other jobs, set "
            "execution.checkpointing.savepoint-dir or execution.checkpointing.dir."
        )
    folder = writer.savepoint_folder(directory) if kind.is_savepoint else None
    request_id = secrets.token_hex(8)
    answered = writer.expect_savepoint(request_id)
    manager.feed_soon(lambda now: TriggerSavepoint(request_id, kind, folder, now))
    return answered


class JobHandle:
    """`engine.model.program.JobControl` over a JobManager."""

    def __init__(self, manager: JobManager, observed: ObservedJob) -> None:
        self.manager = manager
        self.look = observed.look
        self.checkpoints = observed.checkpoints
        self._interruptible = Interruptible(
            manager.job_graph.name, manager.cancel, lambda: manager.status, observed.way_to_stop
        )
        self._requirements = Requirements(manager)
        self.flame_graphs = FlameGraphs(
            manager.ask, lambda: dict(manager.shell.where), manager.parts.settings.stacks
        )

    @property
    def job_id(self) -> JobId:
        return self.manager.job_id

    def status(self) -> JobStatus:
        return self.manager.status

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """See `wait_for_end`."""
        manager = self.manager
        with awaited(self.job_id):
            wait_for_end(manager.ended, timeout_s, self._interruptible)
        runtime_ms = manager.ended_ms - manager.started_ms
        return JobOutcome(manager.status, runtime_ms, manager.failure_text)

    def cancel(self) -> None:
        self.manager.cancel()

    def interrupted(self) -> bool:
        return interrupted(self._interruptible)

    def suspend(self, cause: str) -> None:
        """End the job here and give its lease back: another driver goes on with it at once."""
        self.manager.parts.guard.gives_back = True
        self.manager._soon(lambda: self.manager.shell.suspend(cause))

    def slots_held(self) -> int:
        """Return how many slots the job holds now."""
        return len(self.manager.job_master.state.slots.pool.slots)

    def start_savepoint(
        self, kind: CheckpointType, directory: str | None
    ) -> Callable[[float | None], str]:
        answered = start_savepoint(self.manager, kind, directory)

        def wait(timeout_s: float | None) -> str:
            """Wait for the answer. If the job was to be stopped, it has ended when this returns."""
            began = time.monotonic()
            folder = answered.result(timeout_s)
            if kind.is_synchronous:
                left_s = None if timeout_s is None else timeout_s - (time.monotonic() - began)
                self.wait(left_s)
            return folder

        return wait

    def resource_requirements(self) -> JobResourceRequirements:
        return self._requirements.now()

    def rescale(self, asked: Mapping[str, int | tuple[int, int]]) -> None:
        self._requirements.change(asked)

    def slots_max(self) -> int | None:
        """See `autoscaling.RescaledJob`."""
        return self.manager.shell.resource_manager.slots_max

    def failed_rescale(self, since_ms: int) -> str | None:
        """See `autoscaling.RescaledJob`."""
        history = self.manager.shell.master.timeline.history
        began_ms = since_ms - wall_ms() + monotonic_ms()
        if history.current is not None:
            return None
        for outcome in (RescaleOutcome.FAILED, RescaleOutcome.IGNORED):
            found = history.latest.get(outcome)
            if found is not None and found.started_ms >= began_ms:
                errors = [span.error for span in found.states if span.error]
                return errors[-1] if errors else str(found.end)
        return None

    def require_resources(self, asked: Mapping[str, ParallelismBounds]) -> None:
        self._requirements.ask(asked)

    def thread_dump(self, resource_id: ResourceId) -> Future[ThreadDump]:
        """Ask a TaskManager for its threads. See `Questions.ask`."""
        depth = self.manager.parts.settings.stacks.dump_depth
        return self.manager.ask(resource_id, DumpThreads(depth))

    def log_files(self, resource_id: ResourceId) -> Future[LogList]:
        """Ask a TaskManager for the files in the folder of its log. See `Questions.ask`."""
        return self.manager.ask(resource_id, ListLogs())

    def read_log(self, resource_id: ResourceId, question: ReadLog) -> Future[LogPiece]:
        """Ask a TaskManager, or what is kept of one that has ended, for a piece of a file. See `Questions.ask`."""
        return self.manager.ask(resource_id, question)

    def story(self, part: str = "") -> list[str]:
        """Return what the job's machine did, oldest first, one line for each change. `part`: only lines that have it."""
        lines = map(str, self.manager.job_master.story.last())
        return [line for line in lines if part in line]

    def coordinator_metrics(self) -> list[tuple[CoordinatedVertex, list[Measured]]]:
        """Return what the enumerators and committers on the driver measure."""
        return self.manager.coordinators.measured()

    def taskmanager_starts(self) -> tuple[int, int]:
        """Return how many TaskManagers the job waits for, and how many have failed to start."""
        manager = self.manager.shell.resource_manager
        return len(manager.starting), manager.start_failures.count

    def task_metrics(self) -> list[tuple[str, int, TaskIo]]:
        return self.manager.job_master.task_metrics()

    def collect(self, stream: str, *, shows_error: bool = True) -> Iterator[list[Any]]:
        batches = self.manager.collect(stream).batches()
        return self._read(batches, Reader(self.job_id)) if shows_error else batches

    def take_rows(self, stream: str) -> tuple[bytes | None, bool]:
        """See `CollectStream.take_now`."""
        return self.manager.collect(stream).take_now()

    def failure_text(self) -> str | None:
        """Return why the job failed, or that it was cancelled; None: it has not ended so."""
        status = self.manager.status
        is_bad = status.is_terminal and status is not JobStatus.FINISHED
        return self.manager.failure_text or (f"the job is {status}" if is_bad else None)

    def _read(self, batches: Iterator[list[Any]], reader: Reader) -> Iterator[list[Any]]:
        """The batches. The reader lets go with the generator, also if nobody reads on."""
        while True:
            with reader:
                try:
                    batch = next(batches, None)
                except JobExecutionError:
                    reader.was_given()
                    raise
            if batch is None:
                return
            yield batch
