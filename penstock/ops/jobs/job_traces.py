"""A span and an event, as reporters get them. Plain data. Source: Flink Span, Event.

Spans and events of one job, from the events of its life: checkpoints, starts, recoveries, changes of status, failures.

Knows no clock and no reporter. One thread calls it, after the record of the job has taken the same event. Source: Flink
CheckpointStatsTracker, JobMaster, JobFailureMetricReporter. Differs: `JobRecovery` is Penstock's own, and the start of
a job has its restored bytes as far as tasks have reported them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.errors import ProducerFailed
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.engine.model.job_events import CheckpointRestored
from penstock.engine.model.messages import (
    CheckpointEnded,
    ExecutionStateChanged,
    Heartbeat,
    JobStatusChanged,
    TaskIoReported,
)
from penstock.engine.model.states import ExecutionState, JobStatus
from penstock.ops.jobs.checkpoint_record import figures_of
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.record import JobRecord
from penstock.ops.jobs.snapshots import CheckpointSnapshot, SpanDetail, SubtaskCheckpoint
from penstock.ops.metrics.job_metrics import StateCounts

AttributeValue: TypeAlias = str | int | float
Attributes: TypeAlias = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time, in epoch ms. `scope`: where it comes from; Flink's class if it has it."""

    scope: str
    name: str
    start_ms: int
    end_ms: int
    attributes: Attributes
    children: tuple[Span, ...] = ()

    def __str__(self) -> str:
        children = ", ".join(map(str, self.children))
        return (
            f"SimpleSpan{{scope={self.scope}, name={self.name}, startTsMillis={self.start_ms}, "
            f"endTsMillis={self.end_ms}, attributes={_text(self.attributes)}, "
            f"children=[{children}]}}"
        )


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, at an epoch ms."""

    scope: str
    name: str
    at_ms: int
    attributes: Attributes

    def __str__(self) -> str:
        return (
            f"SimpleEvent{{scope={self.scope}, name={self.name}, observedTsMillis={self.at_ms}, "
            f"attributes={_text(self.attributes)}}}"
        )


def _text(attributes: Attributes) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in attributes.items()) + "}"


SCOPE: Final = "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
_ONLY_MAX: Final = ("StateSizeBytes", "CheckpointedSizeBytes")
"""Their sums have names of their own: fullSize and checkpointedSize."""
_FIGURES: Final[Mapping[str, Callable[[SubtaskCheckpoint], float]]] = {
    "StateSizeBytes": lambda ack: ack.state_bytes,
    "CheckpointedSizeBytes": lambda ack: ack.metrics.written_bytes,
    "CheckpointStartDelayMs": lambda ack: ack.metrics.start_delay_ms,
    "AlignmentDurationMs": lambda ack: ack.metrics.alignment_ms,
    "SyncCheckpointDurationMs": lambda ack: ack.metrics.sync_ms,
    "AsyncCheckpointDurationMs": lambda ack: ack.metrics.async_ms,
    "ProcessedDataBytes": lambda ack: ack.metrics.processed_bytes,
    "PersistedDataBytes": lambda ack: ack.metrics.bytes_in_flight,
}
_TYPES: Final = {
    CheckpointType.CHECKPOINT: "Checkpoint",
    CheckpointType.SAVEPOINT: "Savepoint",
    CheckpointType.STOP_DRAIN: "Terminate Savepoint",
    CheckpointType.STOP_SUSPEND: "Suspend Savepoint",
}
"""Flink's names."""


def checkpoint_attributes(checkpoint: CheckpointSnapshot) -> dict[str, AttributeValue]:
    """The attributes of a checkpoint's spans and events."""
    figures = figures_of(checkpoint)
    return {
        "checkpointId": checkpoint.checkpoint_id,
        "fullSize": figures["state_size"],
        "checkpointedSize": figures["checkpointed_size"],
        "metadataSize": checkpoint.metadata_bytes,
        "checkpointStatus": "COMPLETED" if checkpoint.is_completed else "FAILED",
        "isUnaligned": str(checkpoint.is_unaligned).lower(),
        "checkpointType": _TYPES[checkpoint.checkpoint_type],
    }


def checkpoint_span(checkpoint: CheckpointSnapshot, detail: SpanDetail) -> Span:
    """Return the span, from the trigger to the last acknowledgement; without any, to the end."""
    acks = checkpoint.every_ack
    totals = _totals(acks)
    for name in _ONLY_MAX:
        del totals[f"sum{name}"]
    attributes = checkpoint_attributes(checkpoint) | totals
    if detail is SpanDetail.SPAN_PER_CHECKPOINT_WITH_TASKS:
        of_vertices = [*map(_totals, checkpoint.acks.values())]
        attributes |= {
            f"perTask{what}{name}": str([one[f"{what.lower()}{name}"] for one in of_vertices])
            for name in _FIGURES
            for what in ("Max", "Sum")
        }
    has_children = detail in {
        SpanDetail.CHILDREN_SPANS_PER_TASK,
        SpanDetail.CHILDREN_SPANS_PER_SUBTASK,
    }
    children = _children(checkpoint, detail) if has_children else ()
    end_ms = max((ack.ack_ms for ack in acks), default=checkpoint.ended_ms)
    begin_ms = checkpoint.triggered_ms
    return Span(SCOPE, "Checkpoint", begin_ms, end_ms, attributes, tuple(children))


def _totals(acks: Sequence[SubtaskCheckpoint]) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for name, figure in _FIGURES.items():
        values = [round(figure(ack)) for ack in acks]
        found |= {f"max{name}": max(values, default=0), f"sum{name}": sum(values)}
    return found


def _children(checkpoint: CheckpointSnapshot, detail: SpanDetail) -> Iterator[Span]:
    for vertex_id, acks in checkpoint.acks.items():
        subtasks = tuple(_subtask(checkpoint, vertex_id, ack) for ack in acks)
        yield Span(
            SCOPE,
            "Checkpoint_Task",
            min(one.start_ms for one in subtasks),
            max(one.end_ms for one in subtasks),
            _place(checkpoint, vertex_id) | _totals(acks),
            subtasks if detail is SpanDetail.CHILDREN_SPANS_PER_SUBTASK else (),
        )


def _place(checkpoint: CheckpointSnapshot, vertex_id: VertexId) -> dict[str, AttributeValue]:
    return {"checkpointId": checkpoint.checkpoint_id, "jobVertexId": str(vertex_id)}


def _subtask(checkpoint: CheckpointSnapshot, vertex_id: VertexId, ack: SubtaskCheckpoint) -> Span:
    figures = {name: round(figure(ack)) for name, figure in _FIGURES.items()}
    attributes = {**_place(checkpoint, vertex_id), "subtaskId": ack.subtask, **figures}
    begin_ms = checkpoint.triggered_ms + round(ack.metrics.start_delay_ms)
    return Span(SCOPE, "Checkpoint_Subtask", begin_ms, ack.ack_ms, attributes)


Trace: TypeAlias = Span | Event
RECOVERY_SCOPE: Final = "penstock.ops.jobs.job_traces"
_MASTER: Final = "org.apache.flink.runtime.jobmaster.JobMaster"
_ALL_RUN: Final = (
    "org.apache.flink.runtime.scheduler.metrics.AllSubTasksRunningOrFinishedStateTimeMetrics"
)
_FAILURES: Final = "org.apache.flink.runtime.scheduler.adaptive.JobFailureMetricReporter"
_CLOCKS_DIFFER_MS: Final = 100
"""The reported time of a failure of the whole job may differ by this much each time: two clocks are compared anew."""
_GIVEN_UP: Final = frozenset({JobStatus.FAILING, JobStatus.FAILED})


@dataclass(slots=True)
class _Start:
    """A start of tasks. `initializing_ms`: when they began. `took_ms`: how long that was, of those that run. `ready_ms` -1: not all do.
    `unheard`: of those that run once all do, the ones that may not have said what they restored.
    """

    began_ms: int
    restored: CheckpointRestored | None
    initializing_ms: dict[ExecutionVertexId, int] = field(default_factory=dict)
    took_ms: dict[ExecutionVertexId, int] = field(default_factory=dict)
    ready_ms: int = -1
    unheard: list[ExecutionVertexId] = field(default_factory=list)


@dataclass(slots=True)
class _Failure:
    """From the first failed task until all run again. `cause`: of that task, or of the first that did not only lose its producer. `subtasks`:
    those that began again.
    """

    began_ms: int
    cause: str
    subtasks: set[ExecutionVertexId] = field(default_factory=set)


class JobTraces:
    """The spans and events of one job. `is_wanted`: somebody takes them. If not, checkpoints are not added up."""

    def __init__(self, record: JobRecord, host: str) -> None:
        """`host`: the driver's machine."""
        facts = record.facts
        self._record = record
        self._variables = {
            "host": host,
            "job_id": str(facts.job_id),
            "job_name": facts.name,
            "jobId": str(facts.job_id),
        }
        self.is_wanted = True
        self._is_streaming = facts.job_type is JobType.STREAMING
        self._counts = StateCounts()
        self._status: JobStatus | None = None
        self._failed_attempts: set[AttemptId] = set()
        self._failed_ms: list[int] = []
        self._all_run = False
        self._restored: CheckpointRestored | None = None
        self._start: _Start | None = None
        self._failure: _Failure | None = None

    def take(self, event: Any, at_ms: int) -> Iterator[Trace]:
        """Take one event. Returns what it completes; read it to the end."""
        match event:
            case CheckpointEnded():
                yield from self._checkpoint_ended(event, at_ms)
            case ExecutionStateChanged():
                yield from self._moved(event, at_ms)
            case JobStatusChanged(status) if status is not self._status:
                yield from self._status_changed(status, at_ms)
            case CheckpointRestored():
                self._restored = event
            case FailuresSeen():
                yield from self._failed(event, at_ms)
            case TaskIoReported(ios) | Heartbeat(ios=ios) if ios:
                yield from self._initialized(is_last=False)

    # ------------------------------------------------------------------ what happens

    def _checkpoint_ended(self, event: CheckpointEnded, at_ms: int) -> Iterator[Trace]:
        if not self.is_wanted:
            return
        checkpoint = self._record.ended_checkpoint(event.checkpoint_id)
        if checkpoint is None:  # It failed before it began, or met an end.
            return
        span = checkpoint_span(checkpoint, self._record.facts.reporting.span_detail)
        yield replace(span, attributes={**self._variables, **span.attributes})
        yield self._event(SCOPE, "CheckpointEvent", at_ms, checkpoint_attributes(checkpoint))

    def _status_changed(self, status: JobStatus, at_ms: int) -> Iterator[Trace]:
        self._status = status
        if status.is_terminal:
            yield from self._initialized(is_last=True)
            yield from self._recovered(at_ms, str(status))
        yield self._event(_MASTER, "JobStatusChangeEvent", at_ms, {"newJobStatus": str(status)})

    def _failed(self, event: FailuresSeen, at_ms: int) -> Iterator[Trace]:
        """Report new failures. The history comes as a whole: it forgets the oldest ones, and may name another root."""
        attempts, job_ms = self._failed_attempts, self._failed_ms
        entries = [(root, (root, *others)) for root, others in event.entries]
        everything = [one for _, ones in entries for one in ones]
        self._failed_attempts = {one.attempt_id for one in everything if one.attempt_id}
        self._failed_ms = [one.at_ms for one in everything if one.attempt_id is None]
        for root, ones in entries:
            is_known = any(one.attempt_id in attempts for one in ones) or (
                root.attempt_id is None
                and any(abs(root.at_ms - one_ms) <= _CLOCKS_DIFFER_MS for one_ms in job_ms)
            )
            if not is_known:
                yield self._event(_FAILURES, "JobFailureEvent", at_ms, self._failure_of(root))

    def _failure_of(self, root: FailureSeen) -> dict[str, AttributeValue]:
        return {
            "canRestart": str(self._status not in _GIVEN_UP).lower(),
            "isGlobalFailure": str(root.attempt_id is None).lower(),
        }

    def _moved(self, event: ExecutionStateChanged, at_ms: int) -> Iterator[Trace]:
        subtask, new = event.attempt_id.execution_vertex_id, event.new
        self._counts.moved(subtask, new)
        if new is ExecutionState.FAILED:
            if self._failure is None:
                self._failure = _Failure(at_ms, event.cause)
            elif self._failure.cause == ProducerFailed.__name__:
                self._failure.cause = event.cause
            yield from self._initialized(is_last=True)
            self._start = None
        elif new is ExecutionState.DEPLOYING:
            if self._start is None:
                self._start = _Start(at_ms, self._restored)
            if self._failure is not None:
                self._failure.subtasks.add(subtask)
        elif new is ExecutionState.INITIALIZING and self._start is not None:
            self._start.initializing_ms[subtask] = at_ms
        elif new is ExecutionState.RUNNING and self._start is not None:
            began_ms = self._start.initializing_ms.get(subtask, at_ms)
            self._start.took_ms[subtask] = at_ms - began_ms
        yield from self._settle(at_ms)

    def _settle(self, at_ms: int) -> Iterator[Trace]:
        all_run = self._counts.all_settled
        if all_run is self._all_run or not self._is_streaming:
            return
        self._all_run = all_run
        status = "ALL_RUNNING_OR_FINISHED" if all_run else "NOT_ALL_RUNNING_OR_FINISHED"
        yield self._event(_ALL_RUN, "AllSubtasksStatusChangeEvent", at_ms, {"status": status})
        if all_run:
            yield from self._recovered(at_ms, "RECOVERED")
            if self._start is not None:
                self._start.ready_ms = at_ms
                self._start.unheard = list(self._start.took_ms)
                yield from self._initialized(is_last=False)

    # ------------------------------------------------------------------ spans that end later

    def _initialized(self, *, is_last: bool) -> Iterator[Trace]:
        """Report a start when its tasks have said how much they restored. `is_last`: nobody says more."""
        start = self._start
        if start is None or start.ready_ms < 0:
            return
        # Each heartbeat comes here until all have been heard: it must not ask about all of them.
        while start.unheard and self._record.io_of(start.unheard[-1]) is not None:
            start.unheard.pop()
        if start.unheard and not is_last:
            return
        ios = [self._record.io_of(subtask) for subtask in start.took_ms]
        self._start = self._restored = None
        took = start.took_ms.values()
        attributes: dict[str, AttributeValue] = {
            "initializationStatus": "COMPLETED",
            **self._of_restored(start.restored),
            "maxInitializeStateDurationMs": max(took, default=0),
            "sumInitializeStateDurationMs": sum(took),
        }
        known = [io for io in ios if io is not None]
        for place, sizes in (
            ("LOCAL_DISK", [io.restored_local_bytes for io in known]),
            ("REMOTE", [io.restored_remote_bytes for io in known]),
        ):
            name = f"RestoredStateSizeBytes.{place}"
            attributes |= {f"max{name}": max(sizes, default=0), f"sum{name}": sum(sizes)}
        yield self._span("JobInitialization", (start.began_ms, start.ready_ms), attributes)

    def _of_restored(self, restored: CheckpointRestored | None) -> dict[str, AttributeValue]:
        if restored is None:
            return {}
        found = self._record.ended_checkpoint(restored.checkpoint_id)
        size = {} if found is None else {"fullSize": figures_of(found)["state_size"]}
        return {"checkpointId": restored.checkpoint_id, **size}

    def _recovered(self, at_ms: int, status: str) -> Iterator[Trace]:
        failure, self._failure = self._failure, None
        if failure is None:
            return
        attributes: dict[str, AttributeValue] = {
            "recoveryStatus": status,
            "cause": failure.cause,
            "restartedSubtasks": len(failure.subtasks),
        }
        if self._restored is not None:
            attributes["checkpointId"] = self._restored.checkpoint_id
        yield self._span("JobRecovery", (failure.began_ms, at_ms), attributes, RECOVERY_SCOPE)

    # ------------------------------------------------------------------ form of the spans

    def _span(
        self,
        name: str,
        span: tuple[int, int],
        attributes: dict[str, AttributeValue],
        scope: str = SCOPE,
    ) -> Span:
        """`span`: from and to, epoch ms."""
        return Span(scope, name, *span, {**self._variables, **attributes})

    def _event(
        self, scope: str, name: str, at_ms: int, attributes: dict[str, AttributeValue]
    ) -> Event:
        return Event(scope, name, at_ms, {**self._variables, **attributes})
