"""Laws of second attempts (docs/spec/elasticity.md#second-attempts): whatever happens, each subtask is committed once."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.machines.books.job_settings import JobSettings
from penstock.machines.execution.slow_tasks import SlowTaskSettings, SpeculationSettings
from penstock.machines.failover.restart_backoff import FixedDelayRestart
from penstock.model.ids import AttemptId, ResourceId, VertexId
from penstock.model.messages import (
    CancelTask,
    Committable,
    DeployTask,
    FinalizeJob,
    FreeSlot,
    NotEnoughResources,
    TaskReported,
    TaskStateChanged,
)
from penstock.model.states import ExecutionState as S
from tests.tools.machines.job_bench import BROKEN, Bench
from tests.tools.machines.job_graphs import job_graph

SUBTASKS = 4
MOVES = ("finish", "fail", "run", "check", "offer", "lose", "restart", "full", "canceled")


class World(Bench):
    """What the TaskManagers do: they run what they were told to, and may be late."""

    def __init__(self, most: int, block_ms: int) -> None:
        slow = SlowTaskSettings(0.25, 1.0, 0)
        speculation = SpeculationSettings(frozenset({VertexId("Copy")}), slow, 10, most, block_ms)
        job = JobSettings(speculation=speculation, make_backoff=lambda: FixedDelayRestart(10**6, 0))
        self.running: dict[AttemptId, str] = {}
        self.committed: tuple[Committable, ...] | None = None
        self.taskmanagers = 0
        self.deployed: Counter[AttemptId] = Counter()
        super().__init__(job_graph({"Copy": SUBTASKS}, []), job)
        self.start()

    def step(self, event):
        effects = super().step(event)
        for one in effects:
            if isinstance(one, DeployTask):
                attempt_id = one.deployment.attempt_id
                self.deployed[attempt_id] += 1
                self.running[attempt_id] = str(one.resource_id)
            elif isinstance(one, FinalizeJob):
                assert self.committed is None, "a job is committed once"
                self.committed = one.committables
            elif isinstance(one, CancelTask | FreeSlot):
                assert one.resource_id not in self.job.books.attempts.gone
        return effects

    def tell(self, attempt_id: AttemptId, state: S, failure=None) -> None:
        done = (Committable(1, str(attempt_id)),) if state is S.FINISHED else ()
        self.step(TaskReported(TaskStateChanged(attempt_id, state, failure, done), self.now_ms))
        if state.is_terminal:
            self.running.pop(attempt_id, None)

    def act(self, move: str, choice: int) -> None:
        self.now_ms += 7
        if move == "check":
            self._ring("slow-tasks")
        elif move == "restart":
            self._ring("restart")
        elif move == "offer":
            self.taskmanagers += 1
            self.offer(f"tm{self.taskmanagers}", 2)
        elif move == "full":
            self.step(NotEnoughResources(0, "full", self.now_ms, is_final=True))
        elif move == "lose" and self.taskmanagers:
            name = f"tm{1 + choice % self.taskmanagers}"
            if ResourceId(name) not in self.job.books.attempts.gone:
                self.running = {one: at for one, at in self.running.items() if at != name}
                self.lose(name)
        elif self.running:
            attempt_id = sorted(self.running, key=str)[choice % len(self.running)]
            if move == "run":
                self.tell(attempt_id, S.INITIALIZING)
                self.tell(attempt_id, S.RUNNING)
            elif move == "finish":
                self.tell(attempt_id, S.FINISHED)
            elif move == "fail":
                self.tell(attempt_id, S.FAILED, BROKEN)
            elif move == "canceled" and self._is_cancelled(attempt_id):
                self.tell(attempt_id, S.CANCELED)

    def _is_cancelled(self, attempt_id: AttemptId) -> bool:
        vertex = self.job.execution_graph.vertex(attempt_id.execution_vertex_id)
        counts = vertex.execution.attempt_id == attempt_id
        is_rival = self.job.books.attempts.rivals.find(attempt_id) is not None
        return vertex.state is S.CANCELING if counts else not is_rival

    def _ring(self, prefix: str) -> None:
        if any(timer.startswith(prefix) for timer in self.timers):
            self.fire(prefix)

    def end_well(self) -> None:
        """No more trouble: there is room, and everything that runs finishes."""
        for _ in range(4 * SUBTASKS):
            self.act("offer", 0)
            self.act("restart", 0)
            for attempt_id in list(self.running):
                if self._is_cancelled(attempt_id):
                    self.tell(attempt_id, S.CANCELED)
                else:
                    self.tell(attempt_id, S.FINISHED)


@settings(max_examples=150)
@given(
    st.integers(1, 3),
    st.sampled_from([0, 50, 10**6]),
    st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 50)), max_size=60),
)
def test_each_subtask_is_committed_once_by_an_attempt_that_was_deployed_once(
    most, block_ms, moves
) -> None:
    world = World(most, block_ms)
    for move, choice in moves:
        world.act(move, choice)
        for vertex in world.job.execution_graph.vertices:
            rivals = world.job.books.attempts.rivals.of(vertex)
            assert len(rivals) < max(most, 1)
            assert not rivals or not vertex.state.is_terminal
    world.end_well()
    assert world.committed is not None
    subtasks = Counter(str(one.payload).rsplit("_", 1)[0] for one in world.committed)
    assert len(subtasks) == len(world.committed) == SUBTASKS
    assert set(world.deployed.values()) == {1}
