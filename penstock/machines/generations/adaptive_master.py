"""The master of one job over all its generations: events in, effects out, as a JobMaster.

A generation is a JobMaster, whose graph never changes. This master replaces it by the next one when the job gets
another parallelism: after a handover, or at a restart. A job that is not elastic has one generation, and this master
does nothing but pass events on. Source: Flink AdaptiveScheduler (docs/spec/elasticity.md); differs: a change of a
running job repeats nothing, because the former generation hands over. Every job can become elastic while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.machines.adaptive.requirements import changed_vertices, default_requirements
from penstock.machines.adaptive.transition_manager import (
    TRANSITION_TIMER,
    Prospect,
    TransitionManager,
)
from penstock.machines.books.job_settings import FailoverMode, JobSettings
from penstock.machines.generations.chronicle import Chronicle
from penstock.machines.generations.demand import Demand
from penstock.machines.generations.departure import Departure, why_it_stays
from penstock.machines.generations.scope import beside, running_on
from penstock.machines.generations.submission import (
    check_elastic,
    no_slots,
)
from penstock.machines.job.job_master import JobMaster
from penstock.machines.job.succession_events import (
    GiveUpKept,
    HandOver,
    HandoverFailureNoted,
    HoldSlots,
    LeaveFreeSlots,
    LeaveRestarts,
    TakeOver,
    WaitForSlots,
)
from penstock.model.completed_checkpoint import CompletedCheckpoint
from penstock.model.elastic.parallelism_bounds import JobResourceRequirements, ParallelismBounds
from penstock.model.elastic.rescales import RescaleCause, RescaleEnd
from penstock.model.errors import ConfigurationError, GraphError
from penstock.model.graph.job_graph import JobGraph, JobType
from penstock.model.graph.rescaling import parallelism_of, rescaled
from penstock.model.ids import ResourceId, VertexId
from penstock.model.messages import (
    FailJob,
    FailureInfo,
    JobEffect,
    JobEvent,
    NotEnoughResources,
    RescaleJob,
    RescalesChanged,
    SetTimer,
    StartScheduling,
    TaskManagerGone,
    TaskManagersLeaving,
    TimerFired,
)
from penstock.model.states import JobStatus

WAIT_TIMER: Final = "adaptive-wait"


class AdaptiveMaster:
    """`generation`: the JobMaster that runs the job now. `submitted`: the graph as the program has it. `demand` None: the job is not
    elastic. `chronicle`: of its rescales. `leaving`: TaskManagers that the host takes away soon. `settings`: of the next generation.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobSettings,
        now_ms: int,
        completed: Sequence[CompletedCheckpoint] = (),
        requirements: JobResourceRequirements | None = None,
    ) -> None:
        """`requirements`: what was asked of an earlier driver; None: nothing.

        Raises: as JobMaster. ConfigurationError: the job is to be elastic, but cannot be.
        """
        elastic = settings.elastic
        is_streaming = job_graph.job_type is JobType.STREAMING
        is_elastic = is_streaming and (elastic.is_adaptive or requirements is not None)
        if is_elastic:
            check_elastic(job_graph)
            settings = replace(settings, failover=FailoverMode.FULL)
        self.generation = JobMaster(
            job_graph, settings, now_ms, completed, leaves_restarts=is_elastic
        )
        self.submitted = job_graph
        self.demand: Demand | None = None
        self.settings = settings
        self._now_ms = now_ms
        self._manager: TransitionManager | None = None
        self._held = 0
        self.leaving: set[ResourceId] = set()
        self._departure = Departure()
        self._is_more_coming = True
        self._is_due = False
        self._is_waiting = False
        self._timer_ms: int | None = None
        self.chronicle = Chronicle(job_graph.job_id, elastic.history_size)
        if is_elastic:
            vertices = job_graph.vertices.values()
            found = default_requirements(vertices, is_reactive=elastic.is_reactive)
            self.demand = Demand(job_graph, found if requirements is None else requirements)

    # ------------------------------------------------------------------ step

    def step(self, event: JobEvent) -> list[JobEffect]:
        """Take one event; returns the effects to carry out, in order."""
        self._now_ms = getattr(event, "now_ms", self._now_ms)
        if isinstance(event, TaskManagersLeaving):
            self.leaving.update(event.resource_ids)
        elif isinstance(event, TaskManagerGone):
            self.leaving.discard(event.resource_id)
        if isinstance(event, RescaleJob):
            effects = self._on_rescale(event)
        elif isinstance(event, StartScheduling) and self.demand is not None:
            effects = self._wait()
        else:
            effects = self.generation.step(event)
        if self._is_waiting and isinstance(event, TaskManagersLeaving):
            # What is free there counts for nothing, and others may come instead.
            effects += self.generation.step(LeaveFreeSlots(frozenset(event.resource_ids)))
        if self.demand is not None and not self.generation.status.is_terminal:
            effects += self._settle(self.demand, event)
        elif self._is_departing:
            effects += self._depart()
        if self.chronicle.is_open:
            self.chronicle.end_with(self.generation.status, self._now_ms)
        rescales = None if self.demand is None else self.chronicle.take_news()
        if rescales is not None:
            effects.append(RescalesChanged(rescales))
        return effects

    @property
    def why_it_stays(self) -> str | None:
        """Why the job does not move from TaskManagers that leave; None: it does if there is room."""
        return None if self.demand is not None else why_it_stays(self.generation)

    @property
    def _is_departing(self) -> bool:
        """Whether a job of a fixed size leaves TaskManagers, or has begun to."""
        succession = self.generation.succession
        return bool(self.leaving or succession.slots_wanted or succession.is_over)

    def _on_rescale(self, event: RescaleJob) -> list[JobEffect]:
        if self.generation.status.is_terminal:
            return []
        was_elastic = self.demand is not None
        bounds = {one: ParallelismBounds(lower, upper) for one, lower, upper in event.bounds}
        if self.demand is not None and not changed_vertices(self.demand.bounds, bounds):
            return []
        self.demand = demand = Demand(self.submitted, bounds)
        self._is_more_coming = True
        effects: list[JobEffect] = []
        if not was_elastic:
            self.settings = replace(self.settings, failover=FailoverMode.FULL)
            effects += self.generation.step(LeaveRestarts())
        effects += self.generation.step(HoldSlots(demand.desired))
        self._tell(RescaleCause.UPDATE_REQUIREMENT)
        if self._manager is None:
            self._enter_executing()
        self._manager_says(lambda manager, now: manager.on_change(now, self._prospect()))
        return effects

    def _settle(self, demand: Demand, event: JobEvent) -> list[JobEffect]:
        """Do what follows from the event: the next generation begins, or this one is to hand over."""
        if isinstance(event, NotEnoughResources) and event.is_final:
            self._is_more_coming = False
        effects: list[JobEffect] = []
        succession = self.generation.succession
        if succession.handover.has_failed:
            cause, history = succession.handover.cause, self.chronicle.history
            effects += self.generation.step(HandoverFailureNoted())
            history.end(RescaleEnd.EXCEPTION_OCCURRED, self._now_ms, cause)
            self._enter_executing()
        if succession.is_over and not self._is_waiting:
            effects += self._begin_or_wait(demand)
        self._look(event)
        if self._is_due:
            effects += self._change(demand)
        return effects + self._timers()

    def _timers(self) -> list[JobEffect]:
        wakes_at_ms = None if self._manager is None else self._manager.wakes_at_ms
        if wakes_at_ms is None or wakes_at_ms == self._timer_ms:
            return []
        self._timer_ms = wakes_at_ms
        return [SetTimer(TRANSITION_TIMER, max(self._now_ms, wakes_at_ms))]

    # ------------------------------------------------------------------ when

    @property
    def _usable(self) -> int:
        """How many slots the job holds on TaskManagers that stay."""
        return self.generation.succession.slots_outside(self.leaving)

    def _prospect(self) -> Prospect:
        demand = self.demand
        assert demand is not None, "only for an elastic job"
        held = self._usable
        found = demand.parallelism(held)
        is_change = self._is_waiting or found != parallelism_of(self.generation.job_graph)
        is_change = is_change or self.generation.succession.is_seated_on(self.leaving)
        return Prospect(
            found is not None and is_change,
            held >= demand.desired and is_change,
            self._is_more_coming,
        )

    def _look(self, event: JobEvent) -> None:
        """Tell the manager what has changed."""
        held = self._usable
        if held != self._held or isinstance(event, NotEnoughResources):
            self._held = held
            if self._prospect().is_sufficient and not self.chronicle.is_open:
                self._tell(RescaleCause.NEW_RESOURCE_AVAILABLE)
            self._manager_says(lambda manager, now: manager.on_change(now, self._prospect()))
        if isinstance(event, TaskManagersLeaving) and not self._is_waiting:
            # They may be gone at any time, so it waits for nothing.
            self._is_due = self._is_due or self._prospect().is_sufficient
        if isinstance(event, TimerFired):
            if event.timer == TRANSITION_TIMER:
                self._timer_ms = None
                self._manager_says(lambda manager, now: manager.on_timer(now, self._prospect()))
            elif event.timer == WAIT_TIMER and self._is_waiting:
                self._is_due = True

    def _manager_says(self, call: Callable[[TransitionManager, int], bool]) -> None:
        """After each change it may go on at once: the checkpoint for it is taken when the time has come, so every moment is as good."""
        manager = self._manager
        if manager is None:
            return
        now_ms, prospect = self._now_ms, self._prospect()
        is_now = call(manager, now_ms) or manager.on_trigger(now_ms, prospect)
        is_now = is_now or manager.on_timer(now_ms, prospect)
        if is_now or manager.on_trigger(now_ms, prospect):
            self._is_due = True

    def _enter_executing(self) -> None:
        timings = replace(self.settings.elastic.executing, max_trigger_delay_ms=0)
        self._enter(TransitionManager(timings, self._now_ms))

    def _enter(self, manager: TransitionManager) -> None:
        self._manager, self._is_due = manager, False
        self._held = self._usable
        self._manager_says(lambda one, now: one.on_change(now, self._prospect()))

    def _wait(self) -> list[JobEffect]:
        """Nothing runs until there are enough slots, or the time is over."""
        assert self.demand is not None, "only for an elastic job"
        is_first = self.generation.status is JobStatus.CREATED
        first, again = RescaleCause.INITIAL_SCHEDULE, RescaleCause.RECOVERABLE_FAILOVER
        self._tell(first if is_first else again, "WaitingForResources")
        self._is_waiting = True

        wait = WaitForSlots(self.demand.desired, frozenset(self.leaving))
        effects = self.generation.step(wait)
        elastic = self.settings.elastic
        if elastic.wait_timeout_ms is not None:
            effects.append(SetTimer(WAIT_TIMER, self._now_ms + elastic.wait_timeout_ms))
        self._enter(TransitionManager(elastic.submission, self._now_ms))
        return effects

    # ------------------------------------------------------------------ what

    def _change(self, demand: Demand) -> list[JobEffect]:
        """The time has come: begin with the slots that there are, or hand over."""
        succession = self.generation.succession
        if self._is_waiting:
            return self._begin_waiting(demand) if succession.may_begin else []
        if self.generation.status is not JobStatus.RUNNING:
            return []
        if not self._prospect().is_sufficient:
            end = RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE
            self.chronicle.history.end(end, self._now_ms)
            self._enter_executing()
            return []
        if not succession.can_hand_over:
            return []
        self._is_due = False
        if not self.chronicle.is_open:
            self._tell(RescaleCause.NEW_RESOURCE_AVAILABLE)
        self.chronicle.history.enter("Restarting", self._now_ms)
        kept = running_on(self.generation, demand, self.leaving)
        return self.generation.step(HandOver(kept))

    def _tell(self, cause: RescaleCause, state: str = "Executing") -> None:
        """A rescale begins."""
        assert self.demand is not None, "only for an elastic job"
        is_running = self.generation.status is JobStatus.RUNNING
        before = parallelism_of(self.generation.job_graph) if is_running else None
        self.chronicle.begin(cause, self.demand, before, self._now_ms)
        self.chronicle.history.enter(state, self._now_ms)

    def _begin_or_wait(self, demand: Demand) -> list[JobEffect]:
        """The generation is over. After a handover there are the slots that it was made for, unless some are gone.

        If these do not suffice beside what runs on, all that does so ends too.
        """
        if self.generation.status is JobStatus.RUNNING:
            found = beside(self.generation, self.submitted, demand, self.leaving)
            if found is not None:
                return self._begin(found)
            if self.generation.succession.kept:
                return self.generation.step(GiveUpKept())
        return self._wait()

    def _begin_waiting(self, demand: Demand) -> list[JobEffect]:
        held = self._usable
        found = demand.parallelism(held)
        if found is None:
            failure = no_slots(self.generation.job_graph.name, demand, held)
            return self.generation.step(FailJob(failure, self._now_ms))
        return self._begin(found)

    def _begin(self, parallelism: Mapping[VertexId, int]) -> list[JobEffect]:
        """Begin the next generation. If it cannot begin with its checkpoint, the job ends."""
        former = self.generation
        self._is_waiting = False
        effects = self._succeed(rescaled(self.submitted, parallelism))
        if self.generation is former:
            return effects
        assert self.demand is not None, "only for an elastic job"
        self.chronicle.succeed(self.demand, parallelism, self._now_ms)
        self._enter_executing()
        return effects

    def _succeed(self, job_graph: JobGraph) -> list[JobEffect]:
        former, left = self.generation, self.generation.succession.inheritance()
        try:
            self.generation = JobMaster(
                job_graph,
                self.settings,
                self._now_ms,
                left=left,
                leaves_restarts=self.demand is not None,
            )
        except (ConfigurationError, GraphError) as error:
            failure = FailureInfo(type(error).__name__, str(error), is_recoverable=False)
            return former.step(FailJob(failure, self._now_ms))
        return self.generation.step(TakeOver(left, frozenset(self.leaving)))

    def _depart(self) -> list[JobEffect]:
        """The size of the job is fixed, and some of its TaskManagers leave."""
        effects: list[JobEffect] = []
        if self.generation.succession.is_over:
            effects += self._succeed(self.generation.job_graph)
        return effects + self._departure.settle(self.generation, self.leaving, self._now_ms)
