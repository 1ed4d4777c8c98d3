"""A running job whose checkpoints are taken in short words: a bench that acknowledges and stores."""

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.failover import FixedDelayRestart
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.checkpoints import (
    CheckpointMetrics,
    CheckpointType,
    InlineHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskState,
)
from penstock.engine.model.graph.job_graph import JobGraph, OperatorInfo
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointFailureReason,
    CheckpointNotStored,
    CheckpointStored,
    CoordinatorsSnapshotted,
    DeclineCheckpoint,
    JobEffect,
    StoreCheckpoint,
    TriggerCheckpoint,
    TriggerSavepoint,
)
from tests.tools.machines.job_bench import Bench
from tests.tools.machines.job_graphs import word_count

EVERY_SECOND = CheckpointSettings(interval_ms=1000)
ALL = ("Source[0]", "FlatMap[0]", "FlatMap[1]", "KeyAggSink[0]", "KeyAggSink[1]")


def with_operators(graph: JobGraph, coordinated: tuple[str, ...] = ()) -> JobGraph:
    """One operator for each vertex, its uid the vertex's name in small letters."""
    for place, vertex in enumerate(graph.vertices.values()):
        uid = vertex.name.lower()
        info = OperatorInfo(place, vertex.name, uid, has_coordinator=vertex.name in coordinated)
        vertex.operators = (info,)
    return graph


class CheckpointBench(Bench):
    """The word count on two TaskManagers, all tasks RUNNING."""

    def __init__(
        self,
        checkpoints: CheckpointSettings = EVERY_SECOND,
        graph: JobGraph | None = None,
        coordinated: tuple[str, ...] = (),
    ) -> None:
        settings = JobSettings(
            checkpoints=checkpoints, make_backoff=lambda: FixedDelayRestart(9, 100)
        )
        super().__init__(with_operators(graph or word_count(), coordinated), settings)
        self.start()
        self.offer("tm1")
        self.offer("tm2")
        self.run_all()

    def attempt(self, name: str):
        return self.vertex(name).execution.attempt_id

    def trigger(self) -> int:
        """The timer rings; the id of the checkpoint that this triggers."""
        (checkpoint_id,) = ids_of(self.fire("checkpoint-trigger"), TriggerCheckpoint)
        return checkpoint_id

    def ack(
        self, checkpoint_id: int, *names: str, state: SubtaskState | None = None, attempt=None
    ) -> list[JobEffect]:
        found: list[JobEffect] = []
        for name in names:
            own = state or state_of(name.split("[")[0].lower())
            message = AcknowledgeCheckpoint(
                attempt or self.attempt(name), checkpoint_id, own, CheckpointMetrics()
            )
            found += self.step(CheckpointAcknowledged(message, self.now_ms))
        return found

    def decline(
        self, checkpoint_id: int, name: str, reason=CheckpointFailureReason.CHECKPOINT_DECLINED
    ) -> list[JobEffect]:
        message = DeclineCheckpoint(self.attempt(name), checkpoint_id, reason, "no room")
        return self.step(CheckpointDeclined(message, self.now_ms))

    def stored(self, checkpoint_id: int) -> list[JobEffect]:
        return self.step(CheckpointStored(checkpoint_id, f"chk-{checkpoint_id}", self.now_ms))

    def not_stored(self, checkpoint_id: int) -> list[JobEffect]:
        return self.step(CheckpointNotStored(checkpoint_id, "disk full", self.now_ms))

    def coordinators_done(self, checkpoint_id: int, failure: str | None = None) -> list[JobEffect]:
        states = (("source", b"enumerator"),)
        return self.step(CoordinatorsSnapshotted(checkpoint_id, states, self.now_ms, failure))

    def complete(self, checkpoint_id: int | None = None) -> int:
        """Triggered unless it is, acknowledged by all that run, stored."""
        number = self.trigger() if checkpoint_id is None else checkpoint_id
        self.ack(number, *(str(v) for v in self.job.state.graph.vertices if v.state == "RUNNING"))
        self.stored(number)
        return number

    def savepoint(
        self, kind: CheckpointType = CheckpointType.SAVEPOINT, directory: str | None = "sp"
    ) -> list[JobEffect]:
        return self.step(TriggerSavepoint("me", kind, directory, self.now_ms))


def state_of(uid: str, *lists: ListStateHandle) -> SubtaskState:
    return SubtaskState(((uid, OperatorSubtaskState(lists=lists)),))


def list_handle(
    elements: int, mode: RedistributionMode = RedistributionMode.SPLIT, name: str = "s"
) -> ListStateHandle:
    return ListStateHandle(name, mode, tuple(range(elements)), InlineHandle(b"x" * elements, 0))


def keyed_handle(first: int, last: int) -> KeyedStateHandle:
    return KeyedStateHandle(first, last, (0,) * (last - first + 1), InlineHandle(b"", 0))


def ids_of(effects: list[JobEffect], kind: type) -> set[int]:
    return {effect.checkpoint_id for effect in effects if isinstance(effect, kind)}


def told(effects: list[JobEffect], kind: type) -> list[str]:
    """Names of the vertices that are told so."""
    found = [e for e in effects if isinstance(e, kind)]
    return sorted(str(one.execution_vertex_id) for e in found for one in e.attempt_ids)


def only(effects: list[JobEffect], kind: type):
    (effect,) = (e for e in effects if isinstance(e, kind))
    return effect


def written(effects: list[JobEffect]):
    return only(effects, StoreCheckpoint).checkpoint
