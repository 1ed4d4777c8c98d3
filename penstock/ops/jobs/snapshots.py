"""What is known of a job at one moment. Immutable. Times are epoch milliseconds, -1 where something has not happened.

Source: Flink ArchivedExecutionGraph, CheckpointStatsSnapshot, TaskManagerInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.model.checkpoints import CheckpointMetrics, CheckpointType, RestoredCheckpoint
from penstock.engine.model.config import Layer
from penstock.engine.model.elastic import Rescales
from penstock.engine.model.graph.job_graph import JobType, OperatorInfo
from penstock.engine.model.ids import (
    AllocationId,
    DataSetId,
    JobId,
    ResourceId,
    TaskManagerLocation,
    VertexId,
)
from penstock.engine.model.job_events import SlotsMissing
from penstock.engine.model.messages import FailureInfo, RegisterTaskManager, TaskIo
from penstock.engine.model.states import ExecutionState, JobStatus
from penstock.ops.jobs.failure_record import NO_GROUPS, FailureGroups, FailureSeen
from penstock.ops.jobs.lane import NO_LANE, Lane
from penstock.ops.jobs.story_record import NO_STORY, Story
from penstock.ops.metrics.job_metrics import StateKind


@dataclass(frozen=True, slots=True)
class InputFacts:
    """One input of a vertex. `exchange`: how its result is consumed, for example `pipelined_bounded`."""

    source: VertexId
    ship_strategy: str
    exchange: str
    data_set_id: DataSetId


@dataclass(frozen=True, slots=True)
class VertexFacts:
    """What a job vertex is. Its parallelism may change: a BATCH job decides it later, and other jobs may be rescaled."""

    vertex_id: VertexId
    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    operators: tuple[OperatorInfo, ...]
    inputs: tuple[InputFacts, ...]


@dataclass(frozen=True, slots=True)
class VerticesReplaced:
    """Another generation of the job begins: what its vertices are from now on, and the number of its first attempts.

    `is_planned`: the former generation has handed over, so nothing is processed again. `checkpoint_id`: what the new one begins with; None:
    nothing. `kept`: vertices whose attempts run on. `is_first`: nothing of the job has run before.
    """

    vertices: tuple[VertexFacts, ...]
    attempt: int
    is_planned: bool
    checkpoint_id: int | None
    kept: frozenset[VertexId] = frozenset()
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """How a job takes checkpoints, and where its state is."""

    settings: CheckpointSettings = field(default_factory=CheckpointSettings)
    state_backend: str = "hashmap"
    storage: str = ""


@dataclass(frozen=True, slots=True)
class RestartFacts:
    """How a job restarts. `strategy`: in words. `most`: restarts, within `interval_ms` if given; None: no limit."""

    strategy: str = ""
    most: int | None = None
    interval_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ElasticFacts:
    """When a job is rescaled."""

    settings: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    slot_idle_timeout_ms: int = 50_000


class SpanDetail(StrEnum):
    """How detailed the spans of checkpoints are (`traces.checkpoint.span-detail-level`)."""

    SPAN_PER_CHECKPOINT = "SPAN_PER_CHECKPOINT"
    SPAN_PER_CHECKPOINT_WITH_TASKS = "SPAN_PER_CHECKPOINT_WITH_TASKS"
    CHILDREN_SPANS_PER_TASK = "CHILDREN_SPANS_PER_TASK"
    CHILDREN_SPANS_PER_SUBTASK = "CHILDREN_SPANS_PER_SUBTASK"


@dataclass(frozen=True, slots=True)
class OptionFacts:
    """Options of a job besides their values. `origins`: who set each key that is set. `host_defaults`: values that hold unless somebody sets
    another one, where they are not Flink's.
    """

    origins: Mapping[str, Layer] = field(default_factory=dict)
    host_defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportingFacts:
    """What is reported of a job: which times of its states are metrics, and how detailed its checkpoints' spans are."""

    state_kinds: frozenset[StateKind] = frozenset({StateKind.CURRENT_TIME})
    span_detail: SpanDetail = SpanDetail.SPAN_PER_CHECKPOINT


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a job is. `configuration`: the options that are set, without secrets. `user_config`: the program's job parameters.

    `history_size`: how many checkpoints the history keeps. `late_after_ms`: a TaskManager that is silent for so long is late.
    """

    job_id: JobId
    name: str
    job_type: JobType
    vertices: tuple[VertexFacts, ...]
    submitted_ms: int
    checkpoints: CheckpointFacts | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)
    user_config: Mapping[str, str] = field(default_factory=dict)
    restarts: RestartFacts = RestartFacts()
    parallelism: int = -1
    history_size: int = 10
    reporting: ReportingFacts = ReportingFacts()
    late_after_ms: int = 1_500
    options: OptionFacts = field(default_factory=OptionFacts)
    elastic: ElasticFacts = ElasticFacts()

    @property
    def checkpoint_interval_ms(self) -> int | None:
        """None: only savepoints are taken."""
        return None if self.checkpoints is None else self.checkpoints.settings.interval_ms


@dataclass(frozen=True, slots=True)
class AttemptSnapshot:
    """One attempt of a subtask. `since`: when it entered each of its states, in order."""

    subtask: int
    attempt: int
    state: ExecutionState
    since: tuple[tuple[ExecutionState, int], ...]
    location: TaskManagerLocation | None = None
    allocation_id: AllocationId | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class FormerAttempt:
    """An attempt that was replaced, with its last counters."""

    attempt: AttemptSnapshot
    io: TaskIo | None


@dataclass(frozen=True, slots=True)
class VertexSnapshot:
    """A job vertex. `attempts`, `ios`: the current attempt of each subtask and its last report. `former`: older attempts, by subtask.

    `lane`: the one state of all subtasks over time.
    """

    facts: VertexFacts
    attempts: tuple[AttemptSnapshot, ...]
    ios: tuple[TaskIo | None, ...]
    former: Mapping[int, tuple[FormerAttempt, ...]] = field(default_factory=dict)
    lane: Lane = NO_LANE


@dataclass(frozen=True, slots=True)
class SubtaskCheckpoint:
    """A subtask's acknowledgement of a checkpoint."""

    subtask: int
    ack_ms: int
    state_bytes: int
    metrics: CheckpointMetrics


@dataclass(frozen=True, slots=True)
class CheckpointSnapshot:
    """One checkpoint. `subtasks`: how many have to acknowledge. `acks`: those that have, by vertex. `location` None: it is not
    complete. `failure` None: it has not failed. `metadata_bytes`: size of its metadata file; 0: it has none. `ended_subtasks`: those that
    had ended before it began, so they have no part in it. `is_given_up`: it failed because it had become pointless, so nothing is wrong.
    """

    checkpoint_id: int
    checkpoint_type: CheckpointType
    is_unaligned: bool
    triggered_ms: int
    subtasks: Mapping[VertexId, int]
    acks: Mapping[VertexId, tuple[SubtaskCheckpoint, ...]] = field(default_factory=dict)
    ended_ms: int = -1
    location: str | None = None
    failure: str | None = None
    is_discarded: bool = False
    metadata_bytes: int = 0
    ended_subtasks: Mapping[VertexId, frozenset[int]] = field(default_factory=dict)
    is_given_up: bool = False

    @property
    def every_ack(self) -> list[SubtaskCheckpoint]:
        """The acknowledgements of all vertices."""
        return [ack for acks in self.acks.values() for ack in acks]

    @property
    def is_completed(self) -> bool:
        return self.location is not None

    @property
    def is_failed(self) -> bool:
        return self.failure is not None


@dataclass(frozen=True, slots=True)
class CheckpointBrief:
    """What stays known of a checkpoint when its parts are forgotten. `subtasks`: how many had to acknowledge. `straggler`: the subtask that it
    waited for longest; None: nobody has acknowledged, and nobody is missing. `after_ms`: since it began. `is_missing`: it never came.
    """

    checkpoint_id: int
    checkpoint_type: CheckpointType
    is_unaligned: bool
    triggered_ms: int
    ended_ms: int
    failure: str | None
    state_bytes: int
    written_bytes: int
    subtasks: int
    acknowledged: int
    straggler: tuple[VertexId, int] | None = None
    after_ms: int = -1
    is_missing: bool = False
    is_given_up: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointsSnapshot:
    """The checkpoints of a job. `given_up`: of `failed`, as in Flink. `history`: newest first, those in progress included. `figures`: of the newest 10,000 completed
    ones, by name. `briefs`: of those that have ended, newest first; failed ones are kept longer.
    """

    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    given_up: int = 0
    restored: int = 0
    history: tuple[CheckpointSnapshot, ...] = ()
    latest_completed: CheckpointSnapshot | None = None
    latest_savepoint: CheckpointSnapshot | None = None
    latest_failed: CheckpointSnapshot | None = None
    latest_restored: RestoredCheckpoint | None = None
    figures: Mapping[str, Figures] = field(default_factory=dict)
    briefs: tuple[CheckpointBrief, ...] = ()

    @property
    def latest_done(self) -> CheckpointSnapshot | None:
        """The newest completed checkpoint or savepoint."""
        done = (one for one in (self.latest_completed, self.latest_savepoint) if one is not None)
        return max(done, key=lambda one: one.checkpoint_id, default=None)

    def of(self, checkpoint_id: int) -> CheckpointSnapshot | None:
        """Return the checkpoint if it is remembered."""
        latest = (self.latest_completed, self.latest_savepoint, self.latest_failed)
        known = (*self.history, *(one for one in latest if one is not None))
        return next((one for one in known if one.checkpoint_id == checkpoint_id), None)


@dataclass(frozen=True, slots=True)
class Figures:
    """The distribution of a figure. `percentiles`: p50, p90, p95, p99, p999; empty: there is no value yet."""

    minimum: int = 0
    maximum: int = 0
    average: int = 0
    percentiles: tuple[float, ...] = ()

    @staticmethod
    def of(ordered: Sequence[int], percentiles: Iterable[float] = ()) -> Figures:
        """Return the distribution of values in their order."""
        if not ordered:
            return Figures()
        average = sum(ordered) // len(ordered)
        return Figures(ordered[0], ordered[-1], average, tuple(percentiles))


@dataclass(frozen=True, slots=True)
class TaskManagerSnapshot:
    """A TaskManager of a job. `lost`: why it is gone; None: it is there."""

    resource_id: ResourceId
    registered: RegisterTaskManager
    registered_ms: int
    heard_ms: int
    lost: str | None = None


_NO_RESCALES: Final = Rescales()


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job. `timestamps`: when it last entered each status. `now_ms`: of this snapshot. `failures`: the newest ones, each with
    those that came with it. `failure_groups`: of all failures. `missing_slots`: what was said of them last; it holds while subtasks are SCHEDULED.
    """

    facts: JobFacts
    status: JobStatus
    timestamps: Mapping[JobStatus, int]
    vertices: tuple[VertexSnapshot, ...] = ()
    checkpoints: CheckpointsSnapshot = CheckpointsSnapshot()
    failures: tuple[tuple[FailureSeen, tuple[FailureSeen, ...]], ...] = ()
    taskmanagers: tuple[TaskManagerSnapshot, ...] = ()
    restarts: int = 0
    now_ms: int = -1
    changed_ms: int = -1
    ended_ms: int = -1
    failure: FailureInfo | None = None
    story: Story = NO_STORY
    failure_groups: FailureGroups = NO_GROUPS
    missing_slots: SlotsMissing | None = None

    @property
    def rescales(self) -> Rescales | None:
        """None: the job is not elastic, and nobody has asked to rescale it."""
        is_adaptive = self.facts.elastic.settings.is_adaptive
        if self.story.rescales is None and is_adaptive and self.facts.job_type is JobType.STREAMING:
            return _NO_RESCALES
        return self.story.rescales

    @property
    def job_id(self) -> JobId:
        return self.facts.job_id

    @property
    def until_ms(self) -> int:
        """The job's end, or now."""
        return self.now_ms if self.ended_ms < 0 else self.ended_ms

    @property
    def lasted_ms(self) -> int:
        """How long the job has lasted since it was submitted."""
        return self.until_ms - self.facts.submitted_ms

    def vertex(self, vertex_id: str) -> VertexSnapshot | None:
        return next((one for one in self.vertices if one.facts.vertex_id == vertex_id), None)


@dataclass(frozen=True, slots=True)
class DriverSnapshot:
    """All jobs of a driver. `expired`: how many that have ended are forgotten, by status."""

    jobs: tuple[JobSnapshot, ...]
    now_ms: int
    expired: Mapping[JobStatus, int] = field(default_factory=dict)

    def job(self, job_id: str) -> JobSnapshot | None:
        return next((one for one in self.jobs if one.facts.job_id == job_id), None)
