"""What runs jobs, before one is known: Spark, or threads of this process. The port between programs and hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from penstock.hosting.batch.plan import Plan
from penstock.hosting.batch.runner import StageOrder, StageRunner
from penstock.hosting.ha.election import SubmittedJob
from penstock.hosting.provider import TaskManagerProvider
from penstock.model.config import Settings
from penstock.model.slot_size import SlotSize

Needed: TypeAlias = "Mapping[SlotSize, int]"


class Host(Protocol):
    """Where TaskManagers come from, before a job is known."""

    ships_modules: bool

    def command_line(self) -> Mapping[str, str]: ...
    def spark_configuration(self) -> dict[str, str]: ...
    def default_parallelism(self, settings: Settings) -> int: ...
    def cores(self) -> int:
        """How many subtasks of a BATCH job it runs at once."""

    def provider(self, settings: Settings, needed: Needed) -> TaskManagerProvider: ...
    def stage_runner(self, settings: Settings, job: SubmittedJob, plan: Plan) -> StageRunner:
        """For a job of type BATCH."""

    def lazy_frame(
        self, settings: Settings, job: SubmittedJob, plan: Plan, frame: LazyFrame
    ) -> Any | None:
        """None: BATCH jobs run elsewhere than on Spark."""


LazyFrame: TypeAlias = "tuple[Callable[[StageRunner], Iterator[StageOrder]], Any]"
"""The orders of its stages, and the type of its rows."""
