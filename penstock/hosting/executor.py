"""Runs a program: StreamGraph -> JobGraph -> JobManager with TaskManagers of a host. `model.program`'s ports.

Source: Flink's PipelineExecutor and ClusterEntrypoint. What can be known to be wrong is said here, before
anything starts.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from penstock.hosting.closures import serialize, user_modules_archive
from penstock.hosting.console import Console
from penstock.hosting.coordinators import coordinated_vertices
from penstock.hosting.job_observer import JobObserver
from penstock.hosting.jobmanager import JobManager
from penstock.hosting.minicluster import ThreadProvider
from penstock.hosting.provider import TaskManagerProvider
from penstock.hosting.settings_builder import HOST_DEFAULTS, job_manager_settings, python_files
from penstock.hosting.wire import MAX_MESSAGE
from penstock.model.config import Settings
from penstock.model.errors import GraphError, NoResourceAvailable
from penstock.model.graph.builder import build_job_graph
from penstock.model.graph.job_graph import JobGraph
from penstock.model.graph.stream_graph import StreamGraph
from penstock.model.ids import JobId
from penstock.model.program import JobOutcome, ProgramSettings
from penstock.model.slot_size import UNSIZED, SlotSize, describe
from penstock.model.states import JobStatus

_MESSAGE_MARGIN = 1 << 20
_WAIT_SLICE_S = 0.5  # so that Ctrl-C reaches a waiting main thread


Needed: TypeAlias = "Mapping[SlotSize, int]"


class JobHandle:
    """`model.program.JobControl` over a JobManager."""

    def __init__(self, manager: JobManager) -> None:
        self.manager = manager

    @property
    def job_id(self) -> JobId:
        return self.manager.job_id

    def status(self) -> JobStatus:
        return self.manager.status

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """Ctrl-C while waiting cancels the job, waits until nothing of it is left, and raises on."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        manager = self.manager
        try:
            while not manager.wait(_WAIT_SLICE_S):
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"job {manager.job_graph.name} is {manager.status} still")
        except KeyboardInterrupt:
            manager.cancel()
            manager.wait(10.0)
            raise
        runtime_ms = manager.ended_ms - manager.started_ms
        return JobOutcome(manager.status, runtime_ms, manager.failure_text)

    def cancel(self) -> None:
        self.manager.cancel()

    def collect(self, stream: str) -> Iterator[list[Any]]:
        return self.manager.collect(stream).batches()


class Host(Protocol):
    """Where TaskManagers come from, before a job is known."""

    ships_modules: bool

    def command_line(self) -> Mapping[str, str]: ...
    def spark_configuration(self) -> dict[str, str]: ...
    def default_parallelism(self, settings: Settings) -> int: ...
    def provider(self, settings: Settings, needed: Needed) -> TaskManagerProvider: ...


class ClusterExecutor:
    """`model.program.JobExecutor` on a host."""

    def __init__(self, host: Host, observer: JobObserver | None = None) -> None:
        self._host = host
        self._observer = observer

    def serialize(self, value: object) -> bytes:
        return serialize(value)

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> JobHandle:
        """Raises GraphError, ConfigurationError, NoResourceAvailable before anything starts."""
        _refuse_unshipped(program)
        settings = Settings(
            program.configuration,
            command_line=self._host.command_line(),
            spark=self._host.spark_configuration(),
            defaults=HOST_DEFAULTS,
        )
        graph.default_parallelism = (
            settings.get_int("parallelism.default")
            if settings.is_set("parallelism.default")
            else self._host.default_parallelism(settings)
        )
        job_graph = build_job_graph(graph, JobId(uuid.uuid4().hex), serialize)
        needed = slots_by_size(job_graph)
        _check_sizes(job_graph)
        provider = self._host.provider(settings, needed)
        _check_resources(provider, needed)
        files = python_files(settings, program)
        observer = self._observer or Console(settings, program)
        manager = JobManager(
            job_graph,
            coordinated_vertices(job_graph.vertices, graph.nodes),
            provider,
            job_manager_settings(settings, program),
            observer,
            modules=user_modules_archive(files) if self._host.ships_modules else b"",
        )
        observer.submitted(job_graph, settings.ignored_keys())
        manager.start()
        return JobHandle(manager)


class MiniCluster:
    """Runs jobs in this process: `env.use_executor(MiniCluster(...).executor())`. For tests and debugging."""

    ships_modules = False

    def __init__(
        self,
        slots_per_taskmanager: int = 1,
        taskmanagers: int | None = None,
        parallelism: int = 2,
        observer: JobObserver | None = None,
    ) -> None:
        self._slots = slots_per_taskmanager
        self._max = taskmanagers
        self._parallelism = parallelism
        self._observer = observer
        self.last_provider: ThreadProvider | None = None

    def executor(self) -> ClusterExecutor:
        return ClusterExecutor(self, self._observer)

    def command_line(self) -> Mapping[str, str]:
        return {}

    def spark_configuration(self) -> dict[str, str]:
        return {}

    def default_parallelism(self, settings: Settings) -> int:
        return self._parallelism

    def provider(self, settings: Settings, needed: Needed) -> TaskManagerProvider:
        slots = self._slots
        if settings.is_set("taskmanager.numberOfTaskSlots"):
            slots = settings.get_int("taskmanager.numberOfTaskSlots")
        self.last_provider = ThreadProvider(slots, self._max)
        return self.last_provider


def slots_by_size(job_graph: JobGraph) -> Needed:
    """Slots of each size: of every slot sharing group its largest parallelism."""
    largest: dict[str, int] = {}
    for vertex in job_graph.vertices.values():
        group = vertex.slot_sharing_group
        largest[group] = max(largest.get(group, 0), vertex.parallelism)
    needed: Counter[SlotSize] = Counter()
    for group, slots in largest.items():
        needed[job_graph.slot_sizes.get(group, UNSIZED)] += slots
    return needed


def _refuse_unshipped(program: ProgramSettings) -> None:
    if program.python_archives or program.python_requirements:
        raise NotImplementedError(
            "add_python_archive and set_python_requirements are not supported yet: name modules, "
            "directories or zip files with add_python_file, and install packages on the executors "
            "(for instance with Spark's --archives)"
        )


def _check_sizes(job_graph: JobGraph) -> None:
    """A closure that no message can carry is told of before anything starts."""
    for vertex in job_graph.vertices.values():
        size = len(job_graph.blobs[vertex.chain_blob]) if vertex.chain_blob else 0
        if size > MAX_MESSAGE - _MESSAGE_MARGIN:
            raise GraphError(
                f"the functions of '{vertex.name}' hold {size:,} bytes; at most {MAX_MESSAGE:,} can be "
                "sent to a TaskManager. Load large data inside open(), from a file that every executor "
                "can read (shared storage, or Spark's --files)."
            )


def _check_resources(provider: TaskManagerProvider, needed: Needed) -> None:
    """A host that is too small is told of at once, never waited for.

    Raises: NoResourceAvailable with what is asked, what is there, and what to change.
    """
    slots = provider.slots_per_taskmanager
    usual = -(-needed.get(UNSIZED, 0) // slots)
    sized = {size: count for size, count in needed.items() if size}
    wanted = provider.task_slots_for({UNSIZED: usual, **sized})
    limit = provider.max_taskmanagers(wanted)
    if limit is None or wanted <= limit:
        return
    parts = [f"{usual} TaskManagers of {slots} slot{'s' * (slots != 1)}"] if usual else []
    parts += [f"{count} of {describe(size)}" for size, count in sized.items()]
    raise NoResourceAvailable(
        f"the job needs {sum(needed.values())} slots, that is {' and '.join(parts)}, but only {limit} can be "
        f"started: {provider.describe()}. Give Spark more cores (for instance master "
        f"local[{wanted + 1}]), lower the parallelism, or raise taskmanager.numberOfTaskSlots."
    )
