"""One unfinished checkpoint: which attempts have acknowledged it, and its content.

Knows no other checkpoint. Source: Flink PendingCheckpoint, DefaultCheckpointPlan,
VertexFinishedStateChecker (docs/spec/checkpoints.md#coordinator, #finished-tasks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from penstock.engine.machines.checkpoints.requests import CheckpointRequest
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.execution.execution_graph import (
    ConsumedPartitionGroup,
    ExecutionGraph,
    ExecutionJobVertex,
    ExecutionVertex,
)
from penstock.engine.model.checkpoints import (
    CheckpointMetrics,
    CheckpointType,
    CompletedCheckpoint,
    OperatorCheckpoint,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskState,
)
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, JobId
from penstock.engine.model.messages.checkpoints import CheckpointEnded, CheckpointFailureReason
from penstock.engine.model.states import ExecutionState


class Phase(StrEnum):
    """Where a pending checkpoint is."""

    COORDINATORS = "COORDINATORS"
    """The coordinators of operators are taking their snapshots; tasks are not triggered yet."""
    TASKS = "TASKS"
    READY = "READY"
    """All have acknowledged, but an older one is being written."""
    STORING = "STORING"


class AckResult(StrEnum):
    """How an acknowledgement counts."""

    GOOD = "GOOD"
    REPEATED = "REPEATED"
    FOREIGN = "FOREIGN"


@dataclass(slots=True, eq=False)
class PendingCheckpoint:
    """`missing`: attempts that have not acknowledged. `timestamp_ms`: when it was triggered.

    `awaited`: attempts that were at the end of their data then, and may finish when it is complete.
    """

    checkpoint_id: int
    request: CheckpointRequest
    plan: CheckpointPlan
    timestamp_ms: int
    deadline_ms: int
    awaited: frozenset[AttemptId] = frozenset()
    phase: Phase = Phase.COORDINATORS
    states: dict[AttemptId, SubtaskState] = field(default_factory=dict)
    metrics: dict[AttemptId, CheckpointMetrics] = field(default_factory=dict)
    coordinator_states: dict[str, bytes] = field(default_factory=dict)
    checkpoint: CompletedCheckpoint | None = None

    @property
    def checkpoint_type(self) -> CheckpointType:
        return self.request.checkpoint_type

    @property
    def is_savepoint(self) -> bool:
        return self.checkpoint_type.is_savepoint

    @property
    def is_under_way(self) -> bool:
        """Whether some have not acknowledged yet."""
        return self.phase in {Phase.COORDINATORS, Phase.TASKS}

    def acknowledge(
        self, attempt_id: AttemptId, state: SubtaskState, metrics: CheckpointMetrics
    ) -> AckResult:
        if attempt_id not in self.plan.running:
            return AckResult.FOREIGN
        if attempt_id in self.states:
            return AckResult.REPEATED
        self.states[attempt_id] = state
        self.metrics[attempt_id] = metrics
        if self.phase is Phase.TASKS and len(self.states) == len(self.plan.running):
            self.phase = Phase.READY
        return AckResult.GOOD

    def declines(self, attempt_id: AttemptId) -> bool:
        """Whether it waits, and this attempt has a part in it: if it cannot take part, there is no checkpoint."""
        return self.is_under_way and attempt_id in self.plan.running

    def what_forbids_it(self, graph: ExecutionGraph) -> str | None:
        """Return why it cannot be completed; None: it can.

        If some subtasks of a vertex have finished, a union list of that vertex cannot be restored
        completely.
        """
        for job_vertex in graph.job_vertices:
            done = self._finished_of(job_vertex)
            done |= {v.subtask for v in job_vertex.vertices if v.vertex_id in self.plan.finished}
            if not 0 < len(done) < len(job_vertex.vertices):
                continue
            for vertex in job_vertex.vertices:
                state = self._state_of(vertex.execution.attempt_id)
                name = _union_list_of(state) if state is not None else None
                if name is not None:
                    return (
                        f"vertex '{job_vertex.name}' has finished in {len(done)} of its "
                        f"{len(job_vertex.vertices)} subtasks, and {name} is a union list, so "
                        "the list elements of the finished subtasks would be lost"
                    )
        return None

    def completed(self, job_id: JobId, graph: ExecutionGraph) -> CompletedCheckpoint:
        """Return what is to be stored, made from all acknowledgements."""
        operators = tuple(
            operator
            for job_vertex in graph.job_vertices
            for operator in self.operators_of(job_vertex)
        )
        return CompletedCheckpoint(
            self.checkpoint_id,
            job_id,
            self.checkpoint_type,
            self.timestamp_ms,
            operators,
            target_directory=self.request.target_directory,
        )

    def ended(
        self,
        location: str | None,
        reason: CheckpointFailureReason | None = None,
        text: str = "",
        metadata_bytes: int = 0,
    ) -> CheckpointEnded:
        """Return the event of its end, for people."""
        most = {
            field.name: max((getattr(one, field.name) for one in self.metrics.values()), default=0)
            for field in fields(CheckpointMetrics)
        }
        return CheckpointEnded(
            self.checkpoint_id,
            self.checkpoint_type,
            self.timestamp_ms,
            sum(state.size_bytes for state in self.states.values()),
            CheckpointMetrics(**most),
            location,
            reason,
            text,
            sum(one.written_bytes for one in self.metrics.values()),
            metadata_bytes,
        )

    def stored(self, location: str) -> CompletedCheckpoint:
        """Return the stored checkpoint with its location."""
        assert self.checkpoint is not None
        return replace(self.checkpoint, location=location)

    def operators_of(self, job_vertex: ExecutionJobVertex) -> list[OperatorCheckpoint]:
        model = job_vertex.job_vertex
        done = self._finished_of(job_vertex)
        is_at_end = all(map(self._is_at_end, job_vertex.vertices))
        states = [self._operators_by_uid(v.execution.attempt_id) for v in job_vertex.vertices]
        return [
            OperatorCheckpoint(
                operator.uid,
                operator.name,
                model.parallelism,
                model.max_parallelism,
                tuple(
                    None if index in done else state.get(operator.uid)
                    for index, state in enumerate(states)
                ),
                is_fully_finished=len(done) == len(job_vertex.vertices),
                is_at_end=is_at_end,
                coordinator_state=self.coordinator_states.get(operator.uid),
            )
            for operator in model.operators
        ]

    def _operators_by_uid(self, attempt_id: AttemptId) -> Mapping[str, OperatorSubtaskState]:
        state = self._state_of(attempt_id)
        return {} if state is None else dict(state.operators)

    def _state_of(self, attempt_id: AttemptId) -> SubtaskState | None:
        return self.states.get(attempt_id) or self.plan.ended.get(attempt_id)

    def _finished_of(self, job_vertex: ExecutionJobVertex) -> set[int]:
        """Return the subtasks that had ended, or were at the end of their data without state when
        they acknowledged.

        A subtask with state is not finished: what a sink prepared is committed when the checkpoint
        completes, when the job ends, or after a restore.
        """
        found = set()
        for vertex in job_vertex.vertices:
            state = self._state_of(vertex.execution.attempt_id)
            has_state = state is not None and any(any(one.handles) for _, one in state.operators)
            if self._is_at_end(vertex) and not has_state:
                found.add(vertex.subtask)
        return found

    def _is_at_end(self, vertex: ExecutionVertex) -> bool:
        state = self._state_of(vertex.execution.attempt_id)
        return vertex.vertex_id in self.plan.finished or (state is not None and state.is_finished)


def _union_list_of(state: SubtaskState) -> str | None:
    """Return name and operator of a union list in the state; None: there is none."""
    for uid, operator in state.operators:
        for one in operator.lists:
            if one.mode is RedistributionMode.UNION:
                return f"state '{one.name}' of operator '{uid}'"
    return None


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """`triggered`: vertices that run and have no running producer. `running`: vertices that must
    acknowledge and are notified of the end.

    `finished`: had ended before the plan was made. `ended`: the states of those of them whose
    output is not committed yet.
    """

    triggered: tuple[ExecutionVertex, ...]
    running: dict[AttemptId, ExecutionVertex]
    finished: frozenset[ExecutionVertexId]
    ended: Mapping[AttemptId, SubtaskState] = field(default_factory=dict)


def plan_of(graph: ExecutionGraph, settings: CheckpointSettings) -> CheckpointPlan | str:
    """Return which tasks of a checkpoint are triggered, waited for, and notified of its end.

    Knows no checkpoint. Source: Flink DefaultCheckpointPlanCalculator, CheckpointPlan
    (docs/spec/checkpoints.md#coordinator, #finished-tasks). Differs: the running producers of a
    group of consumers are looked up once for the whole group.

    The result is the plan, or the reason as text why no checkpoint is possible now. Every task must
    be RUNNING, or FINISHED where that is allowed.
    """
    finished: set[ExecutionVertexId] = set()
    running: dict[AttemptId, ExecutionVertex] = {}
    ended: dict[AttemptId, SubtaskState] = {}
    for vertex in graph.vertices:
        state = vertex.state
        if state is ExecutionState.RUNNING:
            running[vertex.execution.attempt_id] = vertex
        elif state is not ExecutionState.FINISHED:
            return f"task {vertex} is {state}, not RUNNING"
        elif not settings.are_finished_tasks_allowed:
            return (
                f"task {vertex} is FINISHED, and 'execution.checkpointing."
                "checkpoints-after-tasks-finish' is off"
            )
        else:
            finished.add(vertex.vertex_id)
            if vertex.execution.final_state is not None:
                ended[vertex.execution.attempt_id] = vertex.execution.final_state
    if not running:
        return "all tasks are FINISHED"
    has_running: dict[int, bool] = {}
    triggered = tuple(
        vertex
        for vertex in running.values()
        if not any(_has_running(group, has_running) for group in vertex.consumed_groups)
    )
    return CheckpointPlan(triggered, running, frozenset(finished), ended)


def _has_running(group: ConsumedPartitionGroup, known: dict[int, bool]) -> bool:
    found = known.get(id(group))
    if found is None:
        known[id(group)] = found = any(
            partition.producer.state is ExecutionState.RUNNING for partition in group.partitions
        )
    return found
