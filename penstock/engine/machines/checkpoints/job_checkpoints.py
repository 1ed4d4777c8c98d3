"""Checkpoints in the life of one job: the coordinator follows the job's status, and restarts begin
with the latest checkpoint.

This module decides when; `coordinator.py` takes checkpoints, and `restore.py` plans what attempts
begin with. Source: Flink CheckpointCoordinatorDeActivator, SchedulerBase.restoreState
(docs/spec/checkpoints.md#coordinator, #finished-tasks). A job with blocking results, or of type
BATCH, takes none: data in a blocking result would be in no snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from penstock.engine.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.engine.machines.checkpoints.coordinator_state import (
    CheckpointCourse,
    CompletedCheckpointStore,
    Handover,
)
from penstock.engine.machines.checkpoints.gateway import Emit
from penstock.engine.machines.checkpoints.restore import RestorePlan
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import CompletedCheckpoint
from penstock.engine.model.graph.job_graph import JobGraph, JobType
from penstock.engine.model.ids import VertexId
from penstock.engine.model.states import JobStatus


class JobCheckpoints:
    """`coordinator` None: this job takes no checkpoints, but restores the one that it was started from."""

    def __init__(
        self,
        graph: ExecutionGraph,
        settings: CheckpointSettings | None,
        completed: Sequence[CompletedCheckpoint],
        emit: Emit,
        coordinator_state: CheckpointCourse | None = None,
    ) -> None:
        """`coordinator_state`: what the former generation of the job left; `completed` does not count then.

        Raises: ConfigurationError: the program does not fit the last completed checkpoint.
        """
        used = settings or CheckpointSettings()
        if coordinator_state is None:
            self.store = CompletedCheckpointStore(used.num_retained, used.retention, completed)
        else:
            self.store = coordinator_state.store
        self.coordinator: CheckpointCoordinator | None = None
        self._graph = graph
        self._settings = used
        self._emit = emit
        self._plan: RestorePlan | None = None
        self._is_over = False
        if settings is not None and can_be_snapshotted(graph.job_graph):
            self.coordinator = CheckpointCoordinator(
                graph, settings, self.store, emit, coordinator_state
            )
        self.restore(graph.vertices)

    @property
    def is_storing(self) -> bool:
        """Whether a restart must wait because it is not known yet which checkpoint is the latest."""
        return self.coordinator is not None and self.coordinator.is_storing

    @property
    def handover(self) -> Handover:
        """Whether this generation of the job hands over to the next one."""
        return Handover() if self.coordinator is None else self.coordinator.handover

    @property
    def coordinator_state(self) -> CheckpointCourse:
        """What the next generation of the job continues with."""
        if self.coordinator is not None:
            return self.coordinator.coordinator_state
        return CheckpointCourse(self.store, self._settings.first_id)

    def hand_over(self, now_ms: int, kept: frozenset[VertexId] = frozenset()) -> None:
        """Take the checkpoint with which the next generation begins. Only for a job that takes checkpoints. `kept`: vertices that do not stop."""
        assert self.coordinator is not None, "a job without checkpoints cannot hand over"
        self.coordinator.hand_over(now_ms, kept)

    # ------------------------------------------------------------------ events

    def take_one(self, now_ms: int) -> None:
        if self.coordinator is not None:
            self.coordinator.take_one(now_ms)

    def take(self, event: messages.CheckpointEvent) -> None:
        coordinator = self.coordinator
        if coordinator is None:
            self._refuse(event)
            return
        match event:
            case messages.CheckpointAcknowledged():
                coordinator.on_acknowledged(event.message)
            case messages.CheckpointDeclined():
                coordinator.on_declined(event.message)
            case messages.FinalCheckpointAwaited():
                coordinator.on_awaited(event.attempt_id, event.now_ms)
            case messages.CoordinatorsSnapshotted():
                coordinator.on_coordinators_snapshotted(event)
            case messages.CheckpointStored():
                coordinator.on_stored(event)
            case messages.CheckpointNotStored():
                coordinator.on_not_stored(event)
            case messages.TriggerSavepoint():
                coordinator.on_savepoint_wanted(event)
            case _:
                assert_never(event)

    def take_after_end(
        self, event: messages.CheckpointStored | messages.CheckpointNotStored, status: JobStatus
    ) -> None:
        """A checkpoint was being written when the job ended with `status`."""
        if self.coordinator is not None:
            self.coordinator.on_outcome_after_end(event, status)

    def on_timer(self, timer: str, now_ms: int) -> None:
        if self.coordinator is not None:
            self.coordinator.on_timer(timer, now_ms)

    def on_attempt_ended(self, vertex: ExecutionVertex, now_ms: int) -> None:
        if self.coordinator is not None:
            self.coordinator.on_attempt_ended(vertex, now_ms)

    # ------------------------------------------------------------------ the job's life

    def follow(self, status: JobStatus, now_ms: int) -> None:
        """Take checkpoints while the job is RUNNING."""
        if self.coordinator is None or self._is_over:
            return
        if status.is_terminal:
            self._is_over = True
            self.coordinator.shut_down(status)
        elif status is JobStatus.RUNNING:
            self.coordinator.start(now_ms)
        else:
            self.coordinator.stop()

    def settle(self, status: JobStatus, now_ms: int) -> messages.FailureInfo | None:
        """Trigger or write what is possible now; called after each event. Returns: a failure of the job."""
        self.follow(status, now_ms)
        if self.coordinator is None:
            return None
        return self.coordinator.settle(now_ms)

    # ------------------------------------------------------------------ restarts

    def restore(self, vertices: Sequence[ExecutionVertex]) -> int | None:
        """Make these attempts begin with the latest checkpoint. Returns: its id; None: there is none."""
        plan = self.latest_plan()
        for vertex in vertices:
            vertex.execution.restore = None if plan is None else plan.of(vertex.vertex_id)
        return None if plan is None else plan.checkpoint.checkpoint_id

    def drop_damaged(self, checkpoint_id: int) -> bool:
        """An attempt could not read its checkpoint. Returns: whether there is an earlier one instead."""
        latest = self.store.latest
        if latest is None or latest.checkpoint_id != checkpoint_id:
            return True  # Another attempt has reported it before.
        dropped = self.store.drop_latest()
        if dropped is None:
            return False
        if not dropped.checkpoint_type.is_savepoint:
            self._emit(messages.DiscardCheckpoint(dropped))
        return True

    def restore_coordinators(self, kept: frozenset[VertexId] = frozenset()) -> None:
        """Make all operators' coordinators begin with the latest checkpoint, if there is one, but those of vertices that are `kept`."""
        plan = self.latest_plan()
        if plan is not None:
            states = plan.coordinator_states
            self._emit(messages.RestoreCoordinators(plan.checkpoint.checkpoint_id, states, kept))

    def latest_plan(self) -> RestorePlan | None:
        latest = self.store.latest
        if latest is not None and (self._plan is None or self._plan.checkpoint is not latest):
            self._plan = RestorePlan(
                self._graph.job_graph,
                latest,
                is_unclaimed_state_ignored=self._settings.is_unclaimed_state_ignored,
                allows_double=self._settings.allows_double,
            )
        return self._plan

    def _refuse(self, event: messages.CheckpointEvent) -> None:
        if isinstance(event, messages.TriggerSavepoint):
            text = (
                "this job takes no checkpoints: it is a BATCH job, has blocking results, or has "
                "no storage for checkpoints"
            )
            failure = messages.FailureInfo("CheckpointFailed", text)
            self._emit(messages.SavepointAnswered(event.request_id, None, failure))


def can_be_snapshotted(job_graph: JobGraph) -> bool:
    """Whether the job is neither of type BATCH nor has a blocking result."""
    if job_graph.job_type is not JobType.STREAMING:
        return False
    results = (data for vertex in job_graph.vertices.values() for data in vertex.outputs)
    return not any(data.result_type.is_blocking for data in results)
