"""A job over its generations, on the bench: `job` is the JobMaster of the current one. Checked after every step."""

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.failover import FixedDelayRestart
from penstock.engine.machines.generations.adaptive_master import AdaptiveMaster
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.machines.rescaling.transition_manager import (
    TRANSITION_TIMER,
    TransitionTimings,
)
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import (
    DeclareRequirements,
    GraphReplaced,
    JobEffect,
    JobEvent,
    NotEnoughResources,
    RescaleJob,
    SetTimer,
    TaskManagersLeaving,
    TimerFired,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState as S
from simulation.bookkeeping import check_job
from tests.tools.machines.checkpoint_bench import (
    EVERY_SECOND,
    CheckpointBench,
    ids_of,
    with_operators,
)
from tests.tools.machines.job_graphs import word_count

AT_ONCE = TransitionTimings()
COOLDOWN = TransitionTimings(cooldown_ms=10_000)
STABLE = TransitionTimings(stabilization_ms=5_000)


class GenerationBench(CheckpointBench):
    """The word count. Not started: call `begin`."""

    def __init__(
        self,
        elastic: AdaptiveSettings | None = None,
        graph: JobGraph | None = None,
        checkpoints: CheckpointSettings | None = EVERY_SECOND,
        coordinated: tuple[str, ...] = (),
        *,
        is_local_recovery: bool = False,
    ) -> None:
        settings = JobSettings(
            is_local_recovery=is_local_recovery,
            checkpoints=checkpoints,
            make_backoff=lambda: FixedDelayRestart(9, 100),
            elastic=elastic or AdaptiveSettings(executing=AT_ONCE, submission=AT_ONCE),
        )
        made = with_operators(graph or word_count(), coordinated)
        self.master = AdaptiveMaster(made, settings, 0)
        self.now_ms = 0
        self.effects: list[JobEffect] = []
        self.timers: dict[str, int] = {}

    @property
    def job(self) -> JobMaster:
        return self.master.generation

    def step(self, event: JobEvent) -> list[JobEffect]:
        self.effects = self.master.step(event)
        check_job(self.job)
        for effect in self.effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.timer] = effect.at_ms
        return self.effects

    def begin(self, *taskmanagers: str) -> None:
        """Start, and run on these TaskManagers of one slot."""
        self.start()
        for name in taskmanagers:
            self.offer(name)
        self.run_all()

    def rescale(self, **bounds: tuple[int, int]) -> list[JobEffect]:
        """Ask for these bounds; the other vertices may have 1 to what they have now."""
        known = {one: (1, count) for one, count in parallelism_of(self.job.job_graph).items()}
        asked = {**known, **bounds}
        found = tuple((vertex, *both) for vertex, both in asked.items())
        return self.step(RescaleJob(found, self.now_ms))

    def hand_over(self, effects: list[JobEffect] | None = None) -> list[JobEffect]:
        """All tasks acknowledge the checkpoint that these effects trigger, it is stored, and the tasks end."""
        (checkpoint_id,) = held(self.effects if effects is None else effects)
        self.ack_all(checkpoint_id)
        self.stored(checkpoint_id)
        return self.end_all()

    def ack_all(self, checkpoint_id: int) -> None:
        self.ack(checkpoint_id, *self.names(S.RUNNING))

    def end_all(self) -> list[JobEffect]:
        found: list[JobEffect] = []
        former = self.job
        for name in self.names(S.RUNNING):
            if self.job is former:
                found += self.report(name, S.FINISHED)
        return found

    def names(self, *states: S) -> list[str]:
        return [str(one) for one in self.job.state.graph.vertices if one.state in states]

    def pass_time(self, ms: int) -> list[JobEffect]:
        """Let time go by; the timer of the transitions rings if it is due."""
        self.now_ms += ms
        due_ms = self.timers.get(TRANSITION_TIMER)
        if due_ms is None or due_ms > self.now_ms:
            return []
        del self.timers[TRANSITION_TIMER]
        return self.step(TimerFired(TRANSITION_TIMER, self.now_ms))

    def leave(self, *taskmanagers: str) -> list[JobEffect]:
        """The host will take these TaskManagers away."""
        names = tuple(map(ResourceId, taskmanagers))
        return self.step(TaskManagersLeaving(names, "decommissioned", self.now_ms))

    def no_more_slots(self) -> list[JobEffect]:
        held_now = len(self.job.state.slots.pool.slots)
        return self.step(NotEnoughResources(held_now, "no cores", self.now_ms, is_final=True))

    @property
    def parallelism(self) -> dict[str, int]:
        return {str(one): count for one, count in parallelism_of(self.job.job_graph).items()}


def held(effects: list[JobEffect]) -> set[int]:
    """The ids of checkpoints behind which the tasks stop."""
    triggers = [
        one for one in effects if isinstance(one, TriggerCheckpoint) and one.options.is_held
    ]
    return ids_of(triggers, TriggerCheckpoint)


def replaced(effects: list[JobEffect]) -> list[GraphReplaced]:
    return [one for one in effects if isinstance(one, GraphReplaced)]


def declared(effects: list[JobEffect]) -> list[int]:
    return [one.slots for one in effects if isinstance(one, DeclareRequirements)]


TWO_EACH = {"Source": 1, "FlatMap": 2, "KeyAggSink": 2}


def running(**more) -> GenerationBench:
    bench = GenerationBench(**more)
    bench.begin("tm1", "tm2")
    assert bench.parallelism == TWO_EACH
    return bench


def grown() -> GenerationBench:
    """Asked for 3 subtasks of the last vertex, with the slots for them; the checkpoint of the handover is triggered."""
    bench = running()
    bench.rescale(KeyAggSink=(1, 3))
    bench.offer("tm3")
    return bench


def places(bench):
    return {str(one.execution.location.resource_id) for one in bench.job.state.graph.vertices}
