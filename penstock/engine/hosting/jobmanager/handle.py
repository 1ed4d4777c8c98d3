"""The handle by which a program controls its running job.

What parallelism a running job may have, for users' threads.

Source: Flink JobResourceRequirementsUpdateHandler, Dispatcher.updateJobResourceRequirements
(docs/spec/elasticity.md#requirements); differs: what the job cannot do is refused before anything is stored.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final

from penstock.engine.hosting.jobmanager.checkpoint_writer import SavepointFailed
from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import CoordinatedVertex
from penstock.engine.hosting.jobmanager.flame_graphs import FlameGraphs
from penstock.engine.hosting.jobmanager.jobmanager import JobManager
from penstock.engine.hosting.observer import ObservedJob
from penstock.engine.hosting.os.clock import monotonic_ms, wall_ms
from penstock.engine.hosting.os.waiting import (
    Interruptible,
    Reader,
    awaited,
    interrupted,
    wait_for_end,
)
from penstock.engine.machines.generations.desired_resources import (
    refusal_of_graph,
    refusal_of_sizes,
)
from penstock.engine.machines.rescaling.requirements import check_requirements, default_requirements
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.elastic import (
    JobResourceRequirements,
    ParallelismBounds,
    RescaleOutcome,
    requirements_to_plain,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError, JobExecutionError
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex
from penstock.engine.model.graph.rescaling import refusals_of, rescaled
from penstock.engine.model.ids import JobId, ResourceId, VertexId
from penstock.engine.model.metrics import Measured
from penstock.engine.model.program import JobOutcome
from penstock.engine.model.states import JobStatus

_SUSPEND_S: Final = 3.0


class RequirementsRefused(ConfigurationError):
    """The job cannot have this parallelism. The text has a line for each reason."""


class JobHasEnded(ConfigurationError):
    """The job has ended, so its parallelism does not change any more."""


class UpdateUnderWay(ExternalError):
    """Somebody else changes the requirements of this job just now."""


_BUSY: Final = (
    "the requirements of the job are being changed by somebody else. Look at them, and ask again."
)


class Requirements:
    """The bounds of one job. Any thread."""

    def __init__(self, manager: JobManager) -> None:
        self.manager = manager
        self._lock = threading.Lock()

    def resource_requirements(self) -> JobResourceRequirements:
        """Return the bounds of all vertices: what was asked for, or else 1 up to what the vertex has."""
        master = self.manager.shell.master
        if master.desired is not None:
            return master.desired.bounds
        return default_requirements(master.submitted.vertices.values())

    def rescale(self, asked: Mapping[str, int | tuple[int, int]]) -> None:
        """As `require_resources`, for some vertices. The bounds of the others stay. A number is the upper bound; the lower one is then as
        it is, or less.

        Raises: as `require_resources`.
        """
        found = {
            str(vertex_id): bounds for vertex_id, bounds in self.resource_requirements().items()
        }
        submitted = self.manager.shell.master.submitted
        for name, wanted in asked.items():
            key = str(_meant(submitted, name))
            found[key] = _bounds(wanted, found[key])
        self.require_resources(found)

    def require_resources(self, asked: Mapping[str, ParallelismBounds]) -> None:
        """Ask for bounds of all vertices, by name or id. They are kept for a driver that takes the job over.

        Raises: RequirementsRefused: the job cannot have them. JobHasEnded. UpdateUnderWay. ExternalError, OSError: they could not be
        stored, so they do not apply.
        """
        if not self._lock.acquire(blocking=False):
            raise UpdateUnderWay(_BUSY)
        try:
            status = self.manager.status
            if status.is_terminal:
                raise JobHasEnded(
                    f"the job has ended ({status}), so its parallelism does not change. Run the "
                    "program again with the parallelism that you want."
                )
            self._apply(self._checked(asked))
        finally:
            self._lock.release()

    def _checked(self, asked: Mapping[str, ParallelismBounds]) -> JobResourceRequirements:
        master = self.manager.shell.master
        submitted = master.submitted
        checked = check_requirements(asked, list(submitted.vertices.values()))
        refusals = list(checked.findings)
        if not refusals:
            found = checked.requirements
            uppers = {one: bounds.upper for one, bounds in found.items()}
            lowers = {one: bounds.lower for one, bounds in found.items()}
            refusals += dict.fromkeys((
                *_refusals(submitted, uppers),
                *_refusals(submitted, lowers),
            ))
            refusals += self._refusals_of_job()
        if refusals:
            raise RequirementsRefused("\n".join(refusals))
        return checked.requirements

    def _refusals_of_job(self) -> list[str]:
        master, settings = self.manager.shell.master, self.manager.parts.settings
        found = []
        if settings.job.elastic.is_reactive:
            found.append(
                "in reactive mode the job takes all slots that there are, so nothing can be asked "
                "for. Unset 'scheduler-mode'"
            )
        if master.generation.checkpoints.coordinator is None:
            found.append(
                "the job takes no checkpoints, so it would begin from nothing. Set "
                "'execution.checkpointing.interval' and 'execution.checkpointing.dir'"
            )
        sizes = refusal_of_sizes(master.submitted)
        return found if sizes is None else [*found, sizes]

    def _apply(self, found: JobResourceRequirements) -> None:
        self.manager.parts.guard.record_requirements(requirements_as_text(found))
        bounds = tuple((one, each.lower, each.upper) for one, each in found.items())
        self.manager.feed_soon(lambda now: messages.RescaleJob(bounds, now))


def _refusals(submitted: JobGraph, parallelism: Mapping[VertexId, int]) -> list[str]:
    found = refusals_of(submitted, parallelism)
    if not found:
        refusal = refusal_of_graph(rescaled(submitted, parallelism))
        found = [] if refusal is None else [refusal]
    return found


def _meant(submitted: JobGraph, name: str) -> VertexId:
    """Return the vertex of this id or name, or of an operator with this uid or name; else the only one in whose name it occurs.

    Raises: RequirementsRefused: there is none, or there are several.
    """
    vertices = list(submitted.vertices.values())
    rules: tuple[Callable[[JobVertex], bool], ...] = (
        lambda one: name in (one.vertex_id, one.name),
        lambda one: any(name in (operator.uid, operator.name) for operator in one.operators),
        lambda one: name in one.name,
    )
    for rule in rules:
        found = [one for one in vertices if rule(one)]
        if len(found) == 1:
            return found[0].vertex_id
        if found:
            names = ", ".join(f"'{one.name}' ({one.vertex_id})" for one in found)
            raise RequirementsRefused(f"'{name}' is one of several vertices: {names}. Use an id")
    names = ", ".join(f"'{one.name}' ({one.vertex_id})" for one in vertices)
    raise RequirementsRefused(f"there is no vertex '{name}'. The vertices are {names}")


def requirements_as_text(found: JobResourceRequirements) -> str:
    return json.dumps(requirements_to_plain(found), sort_keys=True)


def _bounds(wanted: int | tuple[int, int], former: ParallelismBounds) -> ParallelismBounds:
    if isinstance(wanted, int):
        return ParallelismBounds(min(former.lower, wanted) if wanted >= 1 else wanted, wanted)
    lower, upper = wanted
    return ParallelismBounds(lower, upper)


def start_savepoint(
    manager: JobManager, kind: CheckpointType, directory: str | None
) -> Future[str]:
    """Ask for a savepoint, or with type CHECKPOINT for a checkpoint. Returns a future of its folder.

    Raises: SavepointFailed, ConfigurationError: it cannot be asked for.
    """
    writer = manager.checkpoint_writer
    what = "savepoint" if kind.is_savepoint else "checkpoint"
    if writer is None or manager.job_master.checkpoints.coordinator is None:
        raise SavepointFailed(
            f"no {what} was taken: this job cannot take any. Jobs of type BATCH and jobs "
            "with blocking results take none. For other jobs, set "
            "execution.checkpointing.savepoint-dir or execution.checkpointing.dir."
        )
    folder = writer.savepoint_folder(directory) if kind.is_savepoint else None
    request_id = secrets.token_hex(8)
    answered = writer.expect_savepoint(request_id, what)
    manager.feed_soon(lambda now: messages.TriggerSavepoint(request_id, kind, folder, now))
    return answered


class JobHandle(Requirements):
    """`engine.model.program.JobControl` over a JobManager."""

    def __init__(self, manager: JobManager, observed: ObservedJob) -> None:
        super().__init__(manager)
        self.look = observed.look
        self.checkpoints = observed.checkpoints
        self._interruptible = Interruptible(
            manager.job_graph.name,
            manager.cancel,
            lambda: manager.status,
            observed.way_to_stop,
            suspend=self._end_for_now,
        )
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
        """End the job here and give its lease back: another driver continues the job at once."""
        self.manager.parts.guard.gives_back = True
        self.manager.run_soon(lambda: self.manager.shell.suspend(cause))

    def _end_for_now(self, cause: str) -> str:
        """Suspend, and return how the job is continued: its newest checkpoint is known once it has ended."""
        self.suspend(cause)
        self.manager.ended.wait(_SUSPEND_S)
        latest = self.manager.job_master.checkpoints.store.latest
        if self.manager.parts.guard.is_recoverable:
            return "the next driver continues it"
        if latest is None:
            return "it has no checkpoint to continue from"
        return f"`penstock run -s {latest.location}` continues it"

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

    def thread_dump(self, resource_id: ResourceId) -> Future[messages.ThreadDump]:
        """Ask a TaskManager for its threads. See `Questions.ask`."""
        depth = self.manager.parts.settings.stacks.dump_depth
        return self.manager.ask(resource_id, messages.DumpThreads(depth))

    def log_files(self, resource_id: ResourceId) -> Future[messages.LogList]:
        """Ask a TaskManager for the files in the folder of its log. See `Questions.ask`."""
        return self.manager.ask(resource_id, messages.ListLogs())

    def read_log(
        self, resource_id: ResourceId, question: messages.ReadLog
    ) -> Future[messages.LogPiece]:
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

    def task_metrics(self) -> list[tuple[str, int, messages.TaskIo]]:
        return [
            (vertex.facts.name, subtask, io or messages.TaskIo())
            for vertex in self.look().vertices
            for subtask, io in enumerate(vertex.ios)
        ]

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
