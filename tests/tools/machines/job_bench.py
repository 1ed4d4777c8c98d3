"""A JobMaster on the bench: offers, reports and effects in short words; checked after every
step."""

from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.checkpoints import SubtaskState
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.ids import AllocationId, ResourceId, TaskManagerLocation
from penstock.engine.model.messages import (
    CancelTask,
    Committable,
    DeployTask,
    FailureInfo,
    JobEffect,
    JobEvent,
    JobStatusChanged,
    SetTimer,
    SlotOffer,
    SlotsOffered,
    StartScheduling,
    TaskManagerGone,
    TaskReported,
    TaskStateChanged,
    TimerFired,
)
from penstock.engine.model.states import ExecutionState as S
from simulation.bookkeeping import check_job
from tests.tools.machines.job_graphs import word_count

USER = FailureInfo("ValueError", "boom", is_user_code=True)
BROKEN = FailureInfo("PartitionConnectionError", "connection reset")


class Bench:
    def __init__(self, graph: JobGraph, settings: JobSettings | None = None) -> None:
        self.job = JobMaster(graph, settings or JobSettings(), 0)
        self.now_ms = 0
        self.effects: list[JobEffect] = []
        self.timers: dict[str, int] = {}

    def step(self, event: JobEvent) -> list[JobEffect]:
        self.effects = self.job.step(event)
        check_job(self.job)
        for effect in self.effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.timer] = effect.at_ms
        return self.effects

    def start(self) -> list[JobEffect]:
        return self.step(StartScheduling(self.now_ms))

    def offer(self, name: str, slots: int = 1) -> list[JobEffect]:
        location = TaskManagerLocation(ResourceId(name), f"host-{name}", 7)
        offers = tuple(SlotOffer(AllocationId(f"{name}/{i}"), i) for i in range(slots))
        return self.step(SlotsOffered(location, offers, self.now_ms))

    def vertex(self, name: str) -> ExecutionVertex:
        return next(v for v in self.job.state.graph.vertices if str(v) == name)

    def report(
        self,
        name: str,
        state: S,
        failure: FailureInfo | None = None,
        final_state: SubtaskState | None = None,
    ) -> list[JobEffect]:
        attempt_id = self.vertex(name).execution.attempt_id
        done = (Committable(1, str(attempt_id)),) if state is S.FINISHED else ()
        told = TaskStateChanged(attempt_id, state, failure, done, final_state=final_state)
        return self.step(TaskReported(told, self.now_ms))

    def run_all(self) -> None:
        for vertex in self.job.state.graph.vertices:
            if vertex.state is S.DEPLOYING:
                self.report(str(vertex), S.INITIALIZING)
                self.report(str(vertex), S.RUNNING)

    def finish(self, *names: str) -> list[JobEffect]:
        found: list[JobEffect] = []
        for name in names:
            found += self.report(name, S.FINISHED)
        return found

    def finish_all(self) -> list[JobEffect]:
        return self.finish(*(str(v) for v in self.job.state.graph.vertices))

    def confirm_cancels(self) -> list[JobEffect]:
        found: list[JobEffect] = []
        for vertex in self.job.state.graph.vertices:
            if vertex.state is S.CANCELING:
                found += self.report(str(vertex), S.CANCELED)
        return found

    def lose(self, name: str) -> list[JobEffect]:
        return self.step(TaskManagerGone(ResourceId(name), "killed", self.now_ms))

    def fire(self, prefix: str) -> list[JobEffect]:
        """Let the newest timer of that name ring."""
        timer = max(t for t in self.timers if t.startswith(prefix))
        self.now_ms = max(self.now_ms, self.timers.pop(timer))
        return self.step(TimerFired(timer, self.now_ms))


def deployed(effects: list[JobEffect]) -> dict[str, str]:
    """Task -> TaskManager."""
    return {
        f"{e.deployment.vertex_name}[{e.deployment.attempt_id.subtask}]": str(e.resource_id)
        for e in effects
        if isinstance(e, DeployTask)
    }


def cancelled(effects: list[JobEffect]) -> int:
    return sum(isinstance(e, CancelTask) for e in effects)


def statuses(effects: list[JobEffect]) -> list[str]:
    return [str(e.status) for e in effects if isinstance(e, JobStatusChanged)]


def running_word_count(settings: JobSettings | None = None) -> Bench:
    """All tasks run, on two TaskManagers."""
    bench = Bench(word_count(), settings)
    bench.start()
    bench.offer("tm1")
    bench.offer("tm2")
    bench.run_all()
    return bench
