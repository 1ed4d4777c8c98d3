"""The port between programs and what runs their jobs: Spark, or threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.spark.batch.plan import Plan
from penstock.engine.hosting.spark.batch.runner import StageOrder, StageRunner
from penstock.engine.model.config import Settings
from penstock.engine.model.slot_size import SlotSize

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
