"""Stores the checkpoints of a simulated job, and checks that they are correct.

Stands for the storage and for the coordinators of operators. Both answer after a while, and writing
sometimes fails. It keeps its own books of what was written and discarded, and has its own random
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from penstock.engine.hosting.jobmanager.checkpoint_writer import Coordination, Keeping
from penstock.engine.model.checkpoints import (
    CompletedCheckpoint,
    InlineHandle,
    OperatorCheckpoint,
    OperatorSubtaskState,
    SubtaskState,
)
from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.ids import ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointNotStored,
    CheckpointStored,
    CoordinatorsSnapshotted,
    DeployTask,
    DiscardCheckpoint,
    DiscardStates,
    JobEvent,
    NotifyCheckpointComplete,
    SavepointAnswered,
    SnapshotCoordinators,
    StoreCheckpoint,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState
from simulation.barriers import snapshot_of
from simulation.clock import SimClock
from simulation.invariants import Invariants, Name
from simulation.master import Master
from simulation.scenario import Moment
from simulation.takeover import Left

_STORES_MS: Final = (1, 20, 400, 5_000)
_ANSWERS_MS: Final = (0, 1, 30)
_STORE_FAILS: Final = 0.03
_DECLINES: Final = 0.003
_COORDINATOR_FAILS: Final = 0.01


class SimCheckpoints:
    """`latest`: the checkpoint that a new driver would begin with, from what was written."""

    def __init__(
        self,
        clock: SimClock,
        master: Callable[[], Master],
        invariants: Invariants,
        on_moment: Callable[[Moment, ResourceId | None], None],
        trace: Callable[[str], None],
        left: Left | None = None,
    ) -> None:
        """`left`: what a former driver has written."""
        left = left or Left(newest_id=-1)
        self.latest: CompletedCheckpoint | None = left.latest
        self.completed = 0
        self._clock = clock
        self._master = master
        self._invariants = invariants
        self._on_moment = on_moment
        self._trace = trace
        self._chance = Random(clock.now_ms)
        self._acknowledged: dict[tuple[str, int], SubtaskState] = {}
        self._written = set() if left.latest is None else {left.latest.checkpoint_id}
        self._ended = set(left.ended)
        self._newest_id = left.newest_id

    def left(self, requirements: str | None) -> Left:
        """Return what the next driver of the job finds. `requirements`: what was asked for."""
        newest_id = max(0, self._newest_id)
        return Left(self.latest, newest_id, requirements, frozenset(self._ended))

    # ------------------------------------------------------------------ tasks

    def is_declining(self) -> bool:
        return self._chance.random() < _DECLINES

    def on_snapshot(self, message: AcknowledgeCheckpoint) -> None:
        self._acknowledged[str(message.attempt_id), message.checkpoint_id] = message.state

    def on_send(self, message: object) -> None:
        """Check a message to a task."""
        if isinstance(message, NotifyCheckpointComplete):
            is_written = message.checkpoint_id in self._written
            self._invariants.expect(Name.NOTIFIED_IF_COMPLETE, is_written, message)
        elif isinstance(message, DeployTask):
            self._deployed(message.deployment)
        elif isinstance(message, TriggerCheckpoint):
            self._on_moment(Moment.TRIGGER_TO_ACK, message.resource_id)

    def _deployed(self, deployment: TaskDeployment) -> None:
        if self._master().shell.job_master.checkpoints.coordinator is None:
            return
        latest = None if self.latest is None else self.latest.checkpoint_id
        restore = deployment.restore
        begins = None if restore is None else restore.checkpoint_id
        self._begins_as_it_ended(deployment)
        data = [
            share.state.handle.data
            for _, operator in (() if restore is None else restore.operators)
            for share in operator.lists
            if isinstance(share.state.handle, InlineHandle)
        ]
        is_of_it = all(one.endswith(f"@{latest}".encode()) for one in data)
        self._invariants.expect(
            Name.RESTORES_LATEST,
            begins == latest and is_of_it,
            f"{deployment.attempt_id} begins with {begins} {data}, the latest is {latest}",
            is_trivial=latest is None,
        )

    def _begins_as_it_ended(self, deployment: TaskDeployment) -> None:
        """Check a task that is restored as finished: in the latest checkpoint, all subtasks of its
        vertex had ended without state.
        """
        restore, latest = deployment.restore, self.latest
        if restore is None or latest is None or not restore.is_finished:
            return
        uid = deployment.attempt_id.vertex_id
        subtasks = next(operator.subtasks for operator in latest.operators if operator.uid == uid)
        has_ended = all(
            (latest.checkpoint_id, uid, subtask) in self._ended for subtask in range(len(subtasks))
        )
        self._invariants.expect(Name.ENDED_STAYS_ENDED, has_ended, deployment.attempt_id)

    # ------------------------------------------------------------------ the shell's port

    def keep(self, effect: Keeping) -> None:
        if isinstance(effect, StoreCheckpoint):
            self._store(effect.checkpoint)
        elif isinstance(effect, DiscardCheckpoint):
            is_latest = effect.checkpoint.checkpoint_id == self._latest_id
            is_over = self._master().shell.job_master.status.is_terminal
            self._expect_kept(not is_latest or is_over, effect)
        else:
            self._discard_states(effect)

    def coordinate(self, effect: Coordination) -> None:
        if not isinstance(effect, SnapshotCoordinators):
            return
        checkpoint_id = effect.checkpoint_id
        is_rising = checkpoint_id > self._newest_id
        self._invariants.expect(Name.CHECKPOINT_IDS_RISE, is_rising, checkpoint_id)
        self._newest_id = checkpoint_id
        failure = "no answer" if self._chance.random() < _COORDINATOR_FAILS else None
        self._answer_later(
            _ANSWERS_MS,
            lambda: CoordinatorsSnapshotted(checkpoint_id, (), self._clock.now_ms, failure),
        )

    def answer(self, answered: SavepointAnswered) -> None:
        """Does nothing: no savepoints are asked for here."""

    @property
    def _latest_id(self) -> int | None:
        return None if self.latest is None else self.latest.checkpoint_id

    def _store(self, checkpoint: CompletedCheckpoint) -> None:
        self._trace(f"storing checkpoint {checkpoint.checkpoint_id}")
        for operator in checkpoint.operators:
            self._is_whole(checkpoint.checkpoint_id, operator)
        self._on_moment(Moment.ACK_TO_COMPLETE, None)
        self._answer_later(_STORES_MS, lambda: self._outcome(checkpoint))

    def _outcome(self, checkpoint: CompletedCheckpoint) -> JobEvent:
        checkpoint_id = checkpoint.checkpoint_id
        if self._chance.random() < _STORE_FAILS:
            return CheckpointNotStored(checkpoint_id, "disk full", self._clock.now_ms)
        is_rising = self.latest is None or checkpoint_id > self.latest.checkpoint_id
        self._invariants.expect(Name.CHECKPOINT_IDS_RISE, is_rising, checkpoint_id)
        self._written.add(checkpoint_id)
        self.latest = checkpoint
        self.completed += 1
        self._on_moment(Moment.COMPLETE_TO_NOTIFY, None)
        return CheckpointStored(checkpoint_id, f"chk-{checkpoint_id}", self._clock.now_ms)

    def _is_whole(self, checkpoint_id: int, operator: OperatorCheckpoint) -> None:
        """Check that each subtask had finished, or that its current attempt made its state for this checkpoint."""
        graph = self._master().shell.job_master.state.graph
        for subtask, state in enumerate(operator.subtasks):
            vertex = graph.vertex(ExecutionVertexId(VertexId(operator.uid), subtask))
            attempt_id = vertex.execution.attempt_id
            acknowledged = self._acknowledged.get((str(attempt_id), checkpoint_id))
            if state is None:
                has_nothing = acknowledged is not None and not acknowledged.operators
                is_good = has_nothing or vertex.state is ExecutionState.FINISHED
                self._ended.add((checkpoint_id, VertexId(operator.uid), subtask))
            else:
                made = snapshot_of(attempt_id, checkpoint_id).operators[0][1]
                is_good = acknowledged is not None and state == made
            what = f"checkpoint {checkpoint_id}, {attempt_id}: {state}"
            self._invariants.expect(Name.CHECKPOINT_WHOLE, is_good, what)

    def _discard_states(self, effect: DiscardStates) -> None:
        latest = set() if self.latest is None else _contents(self.latest)
        lost = [one for state in effect.states for one in _parts(state) if one in latest]
        self._expect_kept(not lost, lost)

    def _expect_kept(self, is_kept: bool, what: object) -> None:
        self._invariants.expect(Name.LATEST_IS_KEPT, is_kept, what, is_trivial=self.latest is None)

    def _answer_later(self, delays_ms: tuple[int, ...], make: Callable[[], JobEvent]) -> None:
        delay_ms = self._chance.choice(delays_ms)
        feed = self._master().feed_soon
        self._clock.later(delay_ms, "Answer", lambda: feed("Answer", make()))


def _parts(state: SubtaskState) -> list[OperatorSubtaskState]:
    return [operator for _, operator in state.operators]


def _contents(checkpoint: CompletedCheckpoint) -> set[OperatorSubtaskState]:
    return {s for operator in checkpoint.operators for s in operator.subtasks if s is not None}
