"""The master of one job over all its generations: events in, effects out, as a JobMaster.

A generation is a JobMaster, whose graph never changes. This master replaces it by the next one when the job gets
another parallelism: after a handover, or at a restart. `AdaptiveMaster.TABLE` has what an elastic job does in each
state. A job that is not elastic has one generation, which takes all events. Source: Flink AdaptiveScheduler
(docs/spec/elasticity.md); differs: a rescale repeats nothing, because the former generation hands over, and every job
can become elastic while it runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar, Final

from penstock.engine.machines.generations.desired_resources import (
    DesiredResources,
    check_elastic,
    no_slots,
    parallelism_with_kept,
    refusal_of_sizes,
    running_on,
)
from penstock.engine.machines.job.handover_changes import GenerationChange, HandoverChanges
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.rescaling.requirements import changed_vertices, default_requirements
from penstock.engine.machines.rescaling.rescale_history import RescaleHistory
from penstock.engine.machines.rescaling.transition_manager import (
    TRANSITION_TIMER,
    Prospect,
    TransitionManager,
)
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import CompletedCheckpoint
from penstock.engine.model.elastic import (
    JobResourceRequirements,
    ParallelismBounds,
    RescaleCause,
    RescaleEnd,
    Rescales,
)
from penstock.engine.model.errors import ConfigurationError, GraphError
from penstock.engine.model.graph.job_graph import JobGraph, JobType
from penstock.engine.model.graph.rescaling import parallelism_of, rescaled
from penstock.engine.model.ids import JobId, ResourceId, VertexId
from penstock.engine.model.options.scheduling import FailoverMode
from penstock.engine.model.states import JobStatus

WAIT_TIMER: Final = "adaptive-wait"


class State(StrEnum):
    """States of Flink's adaptive scheduler. In its other states only the generation acts."""

    CREATED = "Created"
    WAITING_FOR_RESOURCES = "WaitingForResources"
    EXECUTING = "Executing"
    RESTARTING = "Restarting"


class Trigger(StrEnum):
    """What an event means for the next generation; one event may have several, in this order."""

    START = "start"
    TASKMANAGERS_LEAVE = "TaskManagers leave"
    HANDOVER_FAILED = "the handover failed"
    GENERATION_ENDED = "the generation ended"
    RESOURCES_CHANGED = "the resources changed"
    TIMER_FIRED = "the transition manager's timer fired"
    WAIT_TIMED_OUT = "the wait for slots timed out"
    TRANSITION_DUE = "the transition is due"


class AdaptiveMaster:
    """`generation`: the JobMaster that runs the job now. `submitted`: the graph as the program has it. `desired` None: the
    job is not elastic. `timeline`: of its rescales. `leaving`: TaskManagers that the host takes away soon. `settings`:
    of the next generation.
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
        self.desired: DesiredResources | None = None
        self.settings = settings
        self.state = State.CREATED
        self._now_ms = now_ms
        self._manager: TransitionManager | None = None
        self._held = 0
        self.leaving: set[ResourceId] = set()
        self._decommission = Decommission()
        self._is_more_coming = True
        self._is_due = False
        self._timer_ms: int | None = None
        self.timeline = RescaleTimeline(job_graph.job_id, elastic.history_size)
        if is_elastic:
            vertices = job_graph.vertices.values()
            found = default_requirements(vertices, is_reactive=elastic.is_reactive)
            self.desired = DesiredResources(
                job_graph, found if requirements is None else requirements
            )

    # ------------------------------------------------------------------ step

    def step(self, event: messages.JobEvent) -> list[messages.JobEffect]:
        """Take one event; returns the effects to carry out, in order."""
        self._now_ms = getattr(event, "now_ms", self._now_ms)
        if isinstance(event, messages.TaskManagersLeaving):
            self.leaving.update(event.resource_ids)
        elif isinstance(event, messages.TaskManagerGone):
            self.leaving.discard(event.resource_id)
        elif isinstance(event, messages.NotEnoughResources) and event.is_final:
            self._is_more_coming = False
        if isinstance(event, messages.RescaleJob):
            effects = self._on_rescale(event)
        elif isinstance(event, messages.StartScheduling) and self.desired is not None:
            effects = self._fire(Trigger.START)
        else:
            effects = self.generation.step(event)
        if self.desired is None:
            effects += self._depart()
        elif not self.generation.status.is_terminal:
            for trigger in self._triggers(event):
                effects += self._fire(trigger)
            effects += self._timers()
        effects += self._save_before_they_go(event)
        if self.timeline.is_open:
            self.timeline.end_with(self.generation.status, self._now_ms)
        rescales = None if self.desired is None else self.timeline.take_news()
        if rescales is not None:
            effects.append(messages.RescalesChanged(rescales))
        return effects

    def _save_before_they_go(self, event: messages.JobEvent) -> list[messages.JobEffect]:
        """TaskManagers that leave may be gone at any time. As long as tasks stay there, for there is no room elsewhere,
        frequent checkpoints keep small what is repeated then.
        """
        is_due = isinstance(event, messages.TimerFired) and event.timer == SAVE_TIMER
        is_news = is_due or isinstance(event, messages.TaskManagersLeaving)
        if not is_news or self.generation.checkpoints.coordinator is None:
            return []
        if not self.generation.handover_view.is_seated_on(self.leaving):
            return []
        effects: list[messages.JobEffect] = []
        if is_due:
            effects += self.generation.step(GenerationChange(HandoverChanges.take_checkpoint))
        return [*effects, messages.SetTimer(SAVE_TIMER, self._now_ms + _SAVE_MS)]

    def _triggers(self, event: messages.JobEvent) -> Iterator[Trigger]:
        """Yield what the event means, each time after the effects of the former one."""
        if isinstance(event, messages.TaskManagersLeaving):
            yield Trigger.TASKMANAGERS_LEAVE
        if self.generation.handover_view.handover.has_failed:
            yield Trigger.HANDOVER_FAILED
        if self.generation.handover_view.is_over:
            yield Trigger.GENERATION_ENDED
        if self._usable != self._held or isinstance(event, messages.NotEnoughResources):
            yield Trigger.RESOURCES_CHANGED
        if isinstance(event, messages.TimerFired) and event.timer == TRANSITION_TIMER:
            yield Trigger.TIMER_FIRED
        if isinstance(event, messages.TimerFired) and event.timer == WAIT_TIMER:
            yield Trigger.WAIT_TIMED_OUT
        if self._is_due:
            yield Trigger.TRANSITION_DUE

    def _fire(self, trigger: Trigger) -> list[messages.JobEffect]:
        action = self.TABLE.get((self.state, trigger))
        return [] if action is None else action(self)

    @property
    def why_it_stays(self) -> str | None:
        """Why the job does not move from TaskManagers that leave; None: it does if there is room."""
        return None if self.desired is not None else why_it_stays(self.generation)

    def _on_rescale(self, event: messages.RescaleJob) -> list[messages.JobEffect]:
        """Take new requirements, in any state; the first ones make the job elastic."""
        if self.generation.status.is_terminal:
            return []
        was_elastic = self.desired is not None
        bounds = {one: ParallelismBounds(lower, upper) for one, lower, upper in event.bounds}
        if self.desired is not None and not changed_vertices(self.desired.bounds, bounds):
            return []
        self.desired = DesiredResources(self.submitted, bounds)
        self._is_more_coming = True
        effects: list[messages.JobEffect] = []
        if not was_elastic:
            self.settings = replace(self.settings, failover=FailoverMode.FULL)
            effects += self.generation.step(GenerationChange(HandoverChanges.leave_restarts))
        effects += self.generation.step(
            GenerationChange(HandoverChanges.hold_slots, self.desired.desired_slots)
        )
        self._begin_rescale(RescaleCause.UPDATE_REQUIREMENT, State.EXECUTING)
        if not was_elastic and self.generation.status is not JobStatus.CREATED:
            self._execute()
        # They may never come, and until then the job can hand nothing over.
        if self.generation.handover_view.waits_for_slots:
            return effects + self.generation.step(GenerationChange(HandoverChanges.give_up))
        self._ask_manager(lambda manager, now: manager.on_change(now, self._prospect()))
        return effects

    # ------------------------------------------------------------------ when

    @property
    def _elastic(self) -> DesiredResources:
        assert self.desired is not None, "only for an elastic job"
        return self.desired

    @property
    def _usable(self) -> int:
        """How many slots the job holds on TaskManagers that stay."""
        return self.generation.handover_view.slots_outside(self.leaving)

    def _prospect(self) -> Prospect:
        held = self._usable
        found = self._elastic.parallelism(held)
        is_change = (
            self.state is State.WAITING_FOR_RESOURCES
            or found != parallelism_of(self.generation.job_graph)
            or self.generation.handover_view.is_seated_on(self.leaving)
        )
        return Prospect(
            found is not None and is_change,
            held >= self._elastic.desired_slots and is_change,
            self._is_more_coming,
        )

    def _ask_manager(
        self, call: Callable[[TransitionManager, int], bool]
    ) -> list[messages.JobEffect]:
        """Let the transition manager decide. Its trigger follows each change at once, because the checkpoint is taken when the
        transition is due, so every moment is as good as any other.
        """
        manager = self._manager
        if manager is None:
            return []
        now_ms, prospect = self._now_ms, self._prospect()
        is_now = call(manager, now_ms) or manager.on_trigger(now_ms, prospect)
        is_now = is_now or manager.on_timer(now_ms, prospect)
        if is_now or manager.on_trigger(now_ms, prospect):
            self._is_due = True
        return []

    def _on_resources(self) -> list[messages.JobEffect]:
        self._held = self._usable
        if self._prospect().is_sufficient and not self.timeline.is_open:
            self._begin_rescale(RescaleCause.NEW_RESOURCE_AVAILABLE, State.EXECUTING)
        return self._ask_manager(lambda manager, now: manager.on_change(now, self._prospect()))

    def _on_timer(self) -> list[messages.JobEffect]:
        self._timer_ms = None
        return self._ask_manager(lambda manager, now: manager.on_timer(now, self._prospect()))

    def _on_wait_timeout(self) -> list[messages.JobEffect]:
        self._is_due = True
        return []

    def _leave_soon(self) -> list[messages.JobEffect]:
        """Do not wait: the TaskManagers may be gone at any time."""
        self._is_due = self._is_due or self._prospect().is_sufficient
        return []

    def _timers(self) -> list[messages.JobEffect]:
        wakes_at_ms = None if self._manager is None else self._manager.wakes_at_ms
        if wakes_at_ms is None or wakes_at_ms == self._timer_ms:
            return []
        self._timer_ms = wakes_at_ms
        return [messages.SetTimer(TRANSITION_TIMER, max(self._now_ms, wakes_at_ms))]

    def _enter(self, state: State, manager: TransitionManager) -> None:
        self.state, self._manager, self._is_due = state, manager, False
        self._held = self._usable
        self._ask_manager(lambda one, now: one.on_change(now, self._prospect()))

    def _execute(self) -> None:
        timings = replace(self.settings.elastic.executing, max_trigger_delay_ms=0)
        self._enter(State.EXECUTING, TransitionManager(timings, self._now_ms))

    # ------------------------------------------------------------------ what

    def _wait(self) -> list[messages.JobEffect]:
        """Run nothing until there are enough slots, or the time is over."""
        is_first = self.generation.status is JobStatus.CREATED
        cause = RescaleCause.INITIAL_SCHEDULE if is_first else RescaleCause.RECOVERABLE_FAILOVER
        self._begin_rescale(cause, State.WAITING_FOR_RESOURCES)
        effects = self.generation.step(
            GenerationChange(
                HandoverChanges.wait_for_slots, self._elastic.desired_slots, self.leaving
            )
        )
        elastic = self.settings.elastic
        if elastic.wait_timeout_ms is not None:
            effects.append(messages.SetTimer(WAIT_TIMER, self._now_ms + elastic.wait_timeout_ms))
        manager = TransitionManager(elastic.submission, self._now_ms)
        self._enter(State.WAITING_FOR_RESOURCES, manager)
        return effects

    def _give_back(self) -> list[messages.JobEffect]:
        """Give back what is free on TaskManagers that leave: it counts for nothing, and other slots may come instead."""
        return self.generation.step(
            GenerationChange(HandoverChanges.leave_free_slots, self.leaving)
        )

    def _begin_with_what_there_is(self) -> list[messages.JobEffect]:
        if not self.generation.handover_view.may_begin:
            return []
        held = self._usable
        found = self._elastic.parallelism(held)
        if found is None:
            failure = no_slots(self.generation.job_graph.name, self._elastic, held)
            return self.generation.step(messages.FailJob(failure, self._now_ms))
        return self._begin(found)

    def _hand_over(self) -> list[messages.JobEffect]:
        if self.generation.status is not JobStatus.RUNNING:
            return []
        if not self._prospect().is_sufficient:
            end = RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE
            self.timeline.history.end(end, self._now_ms)
            self._execute()
            return []
        if not self.generation.handover_view.can_hand_over:
            return []
        self._is_due = False
        if not self.timeline.is_open:
            self._begin_rescale(RescaleCause.NEW_RESOURCE_AVAILABLE, State.EXECUTING)
        self.state, self._manager = State.RESTARTING, None
        self.timeline.history.enter(self.state, self._now_ms)
        kept = running_on(self.generation, self._elastic, self.leaving)
        return self.generation.step(GenerationChange(HandoverChanges.hand_over, kept))

    def _after_failed_handover(self) -> list[messages.JobEffect]:
        cause = self.generation.handover_view.handover.cause
        effects = self.generation.step(GenerationChange(HandoverChanges.note_handover_failure))
        self.timeline.history.end(RescaleEnd.EXCEPTION_OCCURRED, self._now_ms, cause)
        self._execute()
        return effects

    def _after_generation(self) -> list[messages.JobEffect]:
        """Begin with the slots for which the handover was made, unless some are gone.

        If these do not suffice together with what runs on, that ends too.
        """
        if self.generation.status is JobStatus.RUNNING:
            found = parallelism_with_kept(
                self.generation, self.submitted, self._elastic, self.leaving
            )
            if found is not None:
                return self._begin(found)
            if self.generation.handover_view.kept:
                return self.generation.step(GenerationChange(HandoverChanges.give_up))
        return self._wait()

    def _begin_rescale(self, cause: RescaleCause, state: State) -> None:
        is_running = self.generation.status is JobStatus.RUNNING
        before = parallelism_of(self.generation.job_graph) if is_running else None
        self.timeline.begin(cause, self._elastic, before, self._now_ms)
        self.timeline.history.enter(state, self._now_ms)

    def _begin(self, parallelism: Mapping[VertexId, int]) -> list[messages.JobEffect]:
        """Begin the next generation. If it cannot begin with its checkpoint, the job ends."""
        former = self.generation
        effects = self._succeed(rescaled(self.submitted, parallelism))
        if self.generation is not former:
            self.timeline.succeed(self._elastic, parallelism, self._now_ms)
            self._execute()
        return effects

    def _succeed(self, job_graph: JobGraph) -> list[messages.JobEffect]:
        former, left = self.generation, self.generation.handover_view.handed_over()
        try:
            self.generation = JobMaster(
                job_graph,
                self.settings,
                self._now_ms,
                left=left,
                leaves_restarts=self.desired is not None,
            )
        except (ConfigurationError, GraphError) as error:
            failure = messages.FailureInfo(type(error).__name__, str(error), is_recoverable=False)
            return former.step(messages.FailJob(failure, self._now_ms))
        return self.generation.step(GenerationChange(HandoverChanges.take_over, left, self.leaving))

    def _depart(self) -> list[messages.JobEffect]:
        """Move a job of a fixed size from TaskManagers that leave."""
        handover_view = self.generation.handover_view
        effects: list[messages.JobEffect] = []
        if not (self.leaving or handover_view.slots_wanted or handover_view.is_over):
            return effects
        if handover_view.is_over:
            effects += self._succeed(self.generation.job_graph)
        return effects + self._decommission.settle(self.generation, self.leaving, self._now_ms)

    TABLE: ClassVar[
        Mapping[tuple[State, Trigger], Callable[[AdaptiveMaster], list[messages.JobEffect]]]
    ] = {
        (State.CREATED, Trigger.START): _wait,
        (State.WAITING_FOR_RESOURCES, Trigger.TASKMANAGERS_LEAVE): _give_back,
        (State.WAITING_FOR_RESOURCES, Trigger.RESOURCES_CHANGED): _on_resources,
        (State.WAITING_FOR_RESOURCES, Trigger.TIMER_FIRED): _on_timer,
        (State.WAITING_FOR_RESOURCES, Trigger.WAIT_TIMED_OUT): _on_wait_timeout,
        (State.WAITING_FOR_RESOURCES, Trigger.TRANSITION_DUE): _begin_with_what_there_is,
        (State.EXECUTING, Trigger.TASKMANAGERS_LEAVE): _leave_soon,
        (State.EXECUTING, Trigger.HANDOVER_FAILED): _after_failed_handover,
        (State.EXECUTING, Trigger.GENERATION_ENDED): _after_generation,
        (State.EXECUTING, Trigger.RESOURCES_CHANGED): _on_resources,
        (State.EXECUTING, Trigger.TIMER_FIRED): _on_timer,
        (State.EXECUTING, Trigger.TRANSITION_DUE): _hand_over,
        (State.RESTARTING, Trigger.HANDOVER_FAILED): _after_failed_handover,
        (State.RESTARTING, Trigger.GENERATION_ENDED): _after_generation,
    }
    """What is done, by the state and the trigger. A pair that is missing changes nothing: the trigger is too late, or too early."""


_ENDS: Final[Mapping[JobStatus, RescaleEnd]] = {
    JobStatus.FINISHED: RescaleEnd.JOB_FINISHED,
    JobStatus.FAILED: RescaleEnd.JOB_FAILED,
    JobStatus.CANCELED: RescaleEnd.JOB_CANCELED,
}


class RescaleTimeline:
    """Rescales of one job, with ids that are drawn without chance, so that the same events give the same records.

    Source: Flink RescaleTimeline, which draws ids (docs/spec/elasticity.md#rescale-history).

    `history`: read only.
    """

    def __init__(self, job_id: JobId, size: int) -> None:
        self.history = RescaleHistory(size)
        self._job_id = job_id
        self._rescales = 0
        self._requirements = 0
        self._last_changes = -1

    @property
    def is_open(self) -> bool:
        """Whether a rescale is under way."""
        return self.history.current is not None

    def take_news(self) -> Rescales | None:
        """All that is known, if it has changed since the last call."""
        if self._last_changes == self.history.changes:
            return None
        self._last_changes = self.history.changes
        return self.history.snapshot()

    def begin(
        self,
        cause: RescaleCause,
        desired: DesiredResources,
        before: Mapping[VertexId, int] | None,
        now_ms: int,
    ) -> None:
        """A rescale begins. `before`: the parallelism of what runs; None: nothing does."""
        self._rescales += 1
        if cause is RescaleCause.UPDATE_REQUIREMENT:
            self._requirements += 1
        ids = self._id("rescale", self._rescales), self._id("requirements", self._requirements)
        shape = None if before is None else desired.shape(before)
        self.history.begin(ids, cause, now_ms, desired.groups, shape)

    def succeed(
        self, desired: DesiredResources, parallelism: Mapping[VertexId, int], now_ms: int
    ) -> None:
        """The next generation begins."""
        self.history.enter("CreatingExecutionGraph", now_ms)
        self.history.decide(desired.shape(parallelism))
        self.history.enter("Executing", now_ms)
        self.history.end(RescaleEnd.SUCCEEDED, now_ms)

    def end_with(self, status: JobStatus, now_ms: int) -> None:
        """The job has ended."""
        end = _ENDS.get(status)
        if end is not None:
            self.history.end(end, now_ms)

    def _id(self, kind: str, number: int) -> str:
        return hashlib.sha256(f"{self._job_id} {kind} {number}".encode()).hexdigest()[:32]


SAVE_TIMER: Final = "save before they go"
_SAVE_MS: Final = 5000
"""Kubernetes gives a pod 30 s to end."""
DECOMMISSION_TIMER: Final = "decommission"
_RETRY_MS: Final = 10_000


class Decommission:
    """Moves a job of a fixed size away from TaskManagers that the host takes away, with a handover
    checkpoint of all tasks.

    It asks for as many slots elsewhere as the job has there. The job runs until they have come.
    Source: none; in Flink the tasks fail with their TaskManager
    (docs/spec/elasticity.md#taskmanagers-that-leave).

    Asked after each event while TaskManagers leave.
    """

    def __init__(self) -> None:
        self._not_before_ms = 0

    def settle(
        self, generation: JobMaster, leaving: Collection[ResourceId], now_ms: int
    ) -> list[messages.JobEffect]:
        """Ask for the slots that are missing, or hand over if they are there. After a failed checkpoint it is tried again later."""
        handover_view = generation.handover_view
        if generation.status.is_terminal or why_it_stays(generation) is not None:
            return []
        if handover_view.handover.keeps_others_waiting:
            return []
        effects: list[messages.JobEffect] = []
        if handover_view.handover.has_failed:
            effects += generation.step(GenerationChange(HandoverChanges.note_handover_failure))
            self._not_before_ms = now_ms + _RETRY_MS
            effects.append(messages.SetTimer(DECOMMISSION_TIMER, self._not_before_ms))
        used, there = handover_view.slots_used(), handover_view.slots_used(leaving)
        is_running = generation.status is JobStatus.RUNNING
        wanted = used + there if there and is_running else 0
        if wanted != handover_view.slots_wanted:
            effects += generation.step(
                GenerationChange(HandoverChanges.hold_slots, wanted, leaving)
            )
        has_room = handover_view.slots_outside(leaving) >= used
        if there and has_room and handover_view.can_hand_over and now_ms >= self._not_before_ms:
            effects += generation.step(GenerationChange(HandoverChanges.hand_over))
        return effects


def why_it_stays(generation: JobMaster) -> str | None:
    """Return why the tasks of a job do not move to other TaskManagers; None: they do."""
    if generation.checkpoints.coordinator is None:
        return "the job takes no checkpoints"
    return refusal_of_sizes(generation.job_graph)
