"""The port between programs and what runs their jobs: Spark, or threads of this process.

What a job needs of its host: slots of each size, and messages that can carry its functions.

A job that needs too much is refused before anything starts.

DataFrames that a streaming job reads: whether it reads any, and how a takeover replaces them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.network.wire.messages import MAX_MESSAGE
from penstock.engine.hosting.os.session_jobs import SESSION_JOBS
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.spark.batch.plan import Plan
from penstock.engine.hosting.spark.batch.runner import StageOrder, StageRunner
from penstock.engine.hosting.spark.dataframes.source import FrameSource
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import GraphError, NoResourceAvailable
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.slot_size import UNSIZED, SlotSize, describe
from penstock.engine.model.texts.amounts import counted

Needed: TypeAlias = "Mapping[SlotSize, int]"


class Sizes(Protocol):
    """How large what runs jobs is: enough to build a job for it."""

    @property
    def ships_modules(self) -> bool: ...
    def default_parallelism(self, settings: Settings) -> int: ...
    def cores(self, settings: Settings) -> int:
        """Return how many subtasks of a BATCH job run at once."""


class Host(Sizes, Protocol):
    """Supplies TaskManagers before a job is known."""

    serves_rest: bool
    """Whether its jobs have a REST server, unless `penstock.rest.enabled` says otherwise."""

    def command_line(self) -> Mapping[str, str]: ...
    def spark_configuration(self, settings: Settings) -> dict[str, str]:
        """Return Spark's configuration. `settings`: of the program and the command line, for a Spark that starts here."""

    def provider(self, settings: Settings, needed: Needed) -> TaskManagerProvider: ...
    def check_workers(self, *, reads_frames: bool) -> None:
        """Find out in advance that Spark's Python workers cannot run a streaming job.

        `reads_frames`: they compute its DataFrames. Raises: ConfigurationError.
        """

    def stage_runner(self, settings: Settings, job: SubmittedJob, plan: Plan) -> StageRunner:
        """Return the runner for the stages of a BATCH job."""

    def lazy_frame(
        self, settings: Settings, job: SubmittedJob, plan: Plan, frame: LazyFrame
    ) -> Any | None:
        """Return a DataFrame of a BATCH job's result; None: this host does not run BATCH jobs on Spark."""

    def frame_of_files(self, settings: Settings, folder: str, type_info: Any) -> Any:
        """Return a DataFrame of the Parquet files that a streaming job has written."""


LazyFrame: TypeAlias = "tuple[Callable[[StageRunner], Iterator[StageOrder]], Any]"
"""The orders of its stages, and the type of its rows."""


def reads_frames(job: SubmittedJob) -> bool:
    """Whether Spark computes DataFrames while the job's tasks run."""
    return any(isinstance(place.coordinator, FrameSource) for place in job.coordinated)


def lend_frames(job: SubmittedJob, own: SubmittedJob) -> None:
    """Give this program's DataFrames to the sources of a job taken over from another driver, which
    come without theirs.
    """
    sources = {place.uid: place.coordinator for place in own.coordinated}
    for place in job.coordinated:
        mine = sources.get(place.uid)
        if isinstance(place.coordinator, FrameSource) and isinstance(mine, FrameSource):
            place.coordinator.frame = mine.frame


MESSAGE_MARGIN = 1 << 20


def slots_by_size(job_graph: JobGraph) -> Needed:
    """Return how many slots of each size the job needs: the largest parallelism of every slot sharing group."""
    largest: dict[str, int] = {}
    for vertex in job_graph.vertices.values():
        group = vertex.slot_sharing_group
        largest[group] = max(largest.get(group, 0), vertex.parallelism)
    needed: Counter[SlotSize] = Counter()
    for group, slots in largest.items():
        needed[job_graph.slot_sizes.get(group, UNSIZED)] += slots
    return needed


def check_sizes(job_graph: JobGraph) -> None:
    """Refuse a closure that is too large for a message."""
    for vertex in job_graph.vertices.values():
        size = len(job_graph.blobs[vertex.chain_blob]) if vertex.chain_blob else 0
        if size > MAX_MESSAGE - MESSAGE_MARGIN:
            raise GraphError(
                f"the functions of '{vertex.name}' hold {size:,} bytes; at most {MAX_MESSAGE:,} "
                "can be sent to a TaskManager. Load large data inside open(), from a file that "
                "every executor can read (shared storage, or Spark's --files)."
            )


def check_resources(provider: TaskManagerProvider, needed: Needed, extra: int = 0) -> None:
    """Refuse a job for which the host is too small, instead of waiting for it.

    `extra`: task slots for what Spark computes meanwhile. Raises: NoResourceAvailable with what is
    asked, what is there, and what to change.
    """
    slots = provider.slots_per_taskmanager
    usual = -(-needed.get(UNSIZED, 0) // slots)
    sized = {size: count for size, count in needed.items() if size}
    wanted = provider.task_slots_for({UNSIZED: usual, **sized}) + extra
    limit = provider.max_taskmanagers(wanted)
    if limit is not None and wanted > limit and SESSION_JOBS.drop_forgotten():
        limit = provider.max_taskmanagers(wanted)
    if limit is None or wanted <= limit:
        return
    if provider.gone() is not None:
        raise NoResourceAvailable(f"the job cannot begin: {provider.describe()}")
    parts = [f"{usual} TaskManagers of {counted(slots, 'slot')}"] if usual else []
    parts += [f"{count} of {describe(size)}" for size, count in sized.items()]
    parts += ["a task slot for Spark to compute its DataFrames"] if extra else []
    held = -(-sum(job.slots() for job in SESSION_JOBS.running) // slots)
    larger = f"cores (master local[{wanted + held + 1}], for instance)"
    larger = larger if provider.shares_files else "executors, or larger ones"
    raise NoResourceAvailable(
        f"the job needs {sum(needed.values())} slots, that is {' and '.join(parts)}, "
        f"but only {limit} can be started: {provider.describe()}.{SESSION_JOBS.holders()} "
        f"Give Spark more {larger}, lower the parallelism, or raise "
        "taskmanager.numberOfTaskSlots."
    )
