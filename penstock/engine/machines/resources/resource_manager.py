"""The ResourceManager: how many TaskManagers are needed, which slots go to which job, and when
TaskManagers may end.

Knows no processes: it asks for TaskManagers, and events report them. Source: Flink
ActiveResourceManager, FineGrainedSlotManager (docs/spec/slots.md#resourcemanager). Differs:
resource and allocation ids are counted here, requirements are checked at once instead of after a
delay, and slots are spread over starting TaskManagers too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import assert_never

from penstock.engine.machines.resources.registered_taskmanagers import (
    Need,
    Registered,
    SlotOfTaskManager,
    Starting,
    slots_profile,
)
from penstock.engine.machines.resources.resource_allocation import (
    AllocationRules,
    Worker,
    WorkerSpec,
    plan_allocation,
)
from penstock.engine.machines.slots.resource_profile import UNKNOWN
from penstock.engine.machines.story import Story
from penstock.engine.model import messages
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import AllocationId, JobId, ResourceId
from penstock.engine.model.options.cluster import ResourceOptions, TaskManagerOptions
from penstock.engine.model.options.option import INT_MAX
from penstock.engine.model.slot_size import UNSIZED, SlotSize, cores_of, describe
from penstock.engine.model.texts.amounts import counted

MINUTE_MS = 60_000
SPREAD_WAIT_MS = 10_000
"""How long free slots wait for TaskManagers that were asked for, so that they are spread over these too."""


@dataclass(frozen=True, slots=True)
class ResourceSettings:
    """`load_balance`: NONE, SLOTS, TASKS or MIN_RESOURCES."""

    load_balance: str = "NONE"
    idle_timeout_ms: int = 30_000
    start_timeout_ms: int = 300_000
    max_start_failures_per_minute: float = 10.0
    start_retry_ms: int = 3_000
    redundant_taskmanagers: int = 0
    report_after_ms: int = 10_000
    report_interval_ms: int = 30_000


def resource_settings_of(settings: Settings) -> ResourceSettings:
    """Read the options."""
    started = min(
        settings.get(ResourceOptions.REGISTRATION_TIMEOUT),
        settings.get(TaskManagerOptions.START_TIMEOUT),
    )
    is_spread = settings.get(TaskManagerOptions.EVENLY_SPREAD_OUT_SLOTS)
    return ResourceSettings(
        load_balance="SLOTS"
        if is_spread
        else (settings.get(TaskManagerOptions.LOAD_BALANCE_MODE) or "NONE").upper(),
        idle_timeout_ms=settings.get(ResourceOptions.TASKMANAGER_TIMEOUT),
        start_timeout_ms=started,
        max_start_failures_per_minute=settings.get(ResourceOptions.MAX_START_FAILURE_RATE),
        start_retry_ms=settings.get(ResourceOptions.START_RETRY_INTERVAL),
        redundant_taskmanagers=settings.get(ResourceOptions.REDUNDANT_TASKMANAGERS),
        report_after_ms=settings.get(ResourceOptions.REPORT_AFTER),
        report_interval_ms=settings.get(ResourceOptions.REPORT_INTERVAL),
    )


@dataclass(slots=True)
class JobNeed:
    """`unmet_since_ms`: since when slots are missing. `reported`: what was last reported about that."""

    required: int = 0
    unmet_since_ms: int | None = None
    reported_at_ms: int | None = None
    reported: messages.ResourcesMissing | None = None

    def is_due(self, now_ms: int, settings: ResourceSettings) -> bool:
        """Whether it is time to report that slots are missing."""
        if self.unmet_since_ms is None:
            self.unmet_since_ms = now_ms
        if self.reported_at_ms is None:
            return now_ms - self.unmet_since_ms >= settings.report_after_ms
        return now_ms - self.reported_at_ms >= settings.report_interval_ms


@dataclass(slots=True)
class StartFailures:
    """Failed starts of the last minute, and until when no new start is tried. `count`: all that there were."""

    times: deque[int] = field(default_factory=deque)
    paused_until_ms: int = 0
    last_cause: str = ""
    count: int = 0

    def is_recent(self, now_ms: int) -> bool:
        """Whether a start has failed within the last minute."""
        return bool(self.times) and now_ms - self.times[-1] < MINUTE_MS

    def note(self, now_ms: int, cause: str, settings: ResourceSettings) -> None:
        self.last_cause = cause
        self.count += 1
        self.times.append(now_ms)
        while self.times and now_ms - self.times[0] >= MINUTE_MS:
            self.times.popleft()
        if len(self.times) > settings.max_start_failures_per_minute:
            self.paused_until_ms = now_ms + settings.start_retry_ms


class ResourceManager:
    """All TaskManagers of one application. `slots_each`: slots of one TaskManager. `most`: the
    largest number of TaskManagers; None: no limit.
    """

    def __init__(
        self,
        slots_per_taskmanager: int,
        max_taskmanagers: int | None = None,
        settings: ResourceSettings | None = None,
        now_ms: int = 0,
    ) -> None:
        """Raises ConfigurationError: less than one slot, or less than one TaskManager."""
        if slots_per_taskmanager < 1 or (max_taskmanagers is not None and max_taskmanagers < 1):
            raise ConfigurationError(
                f"a ResourceManager of {slots_per_taskmanager} slots per TaskManager and at "
                f"most {max_taskmanagers} TaskManagers has no slots to give; both must be at "
                "least 1. Change taskmanager.numberOfTaskSlots or penstock.taskmanager.max."
            )
        self.slots_each = slots_per_taskmanager
        self.most = max_taskmanagers
        self._settings = settings or ResourceSettings()
        self._now_ms = now_ms
        self.taskmanagers = Registered()
        self.starting = Starting()
        self.story = Story("ResourceManager")
        self.needs: dict[Need, JobNeed] = {}
        self._next_taskmanager = 1
        self._next_allocation = 1
        self.start_failures = StartFailures()
        self._allocated: Counter[Need] = Counter()
        self._effects: list[messages.ResourceEffect] = []

    def step(self, event: messages.ResourceEvent) -> list[messages.ResourceEffect]:
        """Take one event; returns the effects to carry out, in order."""
        if not isinstance(event, messages.SlotFreed):
            self._now_ms = max(self._now_ms, event.now_ms)
        with self.story:
            self._take(event)
        effects, self._effects = self._effects, []
        name = type(event).__name__
        for effect in effects:
            self.story.add(name, effect)
        return effects

    def _take(self, event: messages.ResourceEvent) -> None:
        if not isinstance(event, messages.ResourceTick):
            self.story.add(type(event).__name__, event)
        match event:
            case messages.DeclareRequirements():
                self._on_declared(event)
            case messages.TaskManagerRegistered():
                self._on_registered(event)
            case messages.TaskManagerLostEvent():
                self._on_lost(event.resource_id, event.cause)
            case messages.TaskManagersLeaving():
                self._on_leaving(event)
            case messages.TaskManagersAllowed(most):
                self.most = None if self.most is None else max(self.most, most)
            case messages.TaskManagerStartFailed():
                self._on_start_failed(event.resource_id, event.cause)
            case messages.SlotFreed():
                self._on_slot_freed(event)
            case messages.ResourceTick():
                self._on_tick()
            case _:
                assert_never(event)
        self._meet_needs()
        if isinstance(event, messages.ResourceTick):
            self.release_idle()

    @property
    def slots_registered(self) -> int:
        return sum(len(known.slots) for known in self.taskmanagers.values())

    @property
    def slots_max(self) -> int | None:
        """How many slots there can be; None: any number."""
        return None if self.most is None else self.most * self.slots_each

    @property
    def is_full(self) -> bool:
        """Whether jobs miss slots, and no more TaskManagers are allowed: all have come that may."""
        if self.most is None or self.starting or self.taskmanagers.staying < self.most:
            return False
        return any(need.required > self._allocated[key] for key, need in self.needs.items())

    @property
    def _are_slots_kept(self) -> bool:
        """Whether free slots wait for TaskManagers that are to come: slots are to be spread, and the first one would be filled.

        They wait as long as a start usually takes, and for none that comes in place of one that has failed: there may be no room for it.
        """
        is_spread = self._settings.load_balance == "SLOTS"
        return is_spread and self.starting.are_awaited(self._now_ms - SPREAD_WAIT_MS)

    # ------------------------------------------------------------------ events

    def _on_declared(self, event: messages.DeclareRequirements) -> None:
        for (job_id, _), need in self.needs.items():
            if job_id == event.job_id:
                need.required = 0
        for size, slots in ((UNSIZED, event.slots), *event.sized):
            self.needs.setdefault((event.job_id, size), JobNeed()).required = slots

    def _on_registered(self, event: messages.TaskManagerRegistered) -> None:
        resource_id = event.location.resource_id
        was_asked_for = self.starting.pop(resource_id)
        if resource_id in self.taskmanagers:
            return
        known = self.taskmanagers.staying + len(self.starting)
        if not was_asked_for and self.most is not None and known >= self.most:
            reason = f"there are {self.most} TaskManagers already (penstock.taskmanager.max)"
            self._effects.append(messages.StopTaskManager(resource_id, reason))
            return
        self.taskmanagers.register(event, self._now_ms)

    def _on_lost(self, resource_id: ResourceId, cause: str) -> None:
        if resource_id in self.starting:
            self._on_start_failed(resource_id, cause)
        known = self.taskmanagers.forget(resource_id)
        if known is not None:
            for slot in known.slots:
                self._set_free(slot, known.size)

    def _on_leaving(self, event: messages.TaskManagersLeaving) -> None:
        for resource_id in event.resource_ids:
            self.taskmanagers.leave(resource_id)
            self._end_if_left(resource_id)

    def _end_if_left(self, resource_id: ResourceId) -> None:
        """One that leaves ends as soon as its last slot is free."""
        if self.taskmanagers.has_left(resource_id):
            self.taskmanagers.forget(resource_id)
            self._effects.append(messages.StopTaskManager(resource_id, "its executor leaves"))

    def _on_start_failed(self, resource_id: ResourceId, cause: str) -> None:
        if self.starting.pop(resource_id):
            self.start_failures.note(self._now_ms, cause, self._settings)

    def _on_slot_freed(self, event: messages.SlotFreed) -> None:
        known = self.taskmanagers.get(event.resource_id)
        if known is None or not 0 <= event.slot_index < len(known.slots):
            return
        slot = known.slots[event.slot_index]
        if slot.allocation_id == event.allocation_id:
            self._set_free(slot, known.size)
            self.taskmanagers.freed(event.resource_id, self._now_ms)
            self._end_if_left(event.resource_id)

    def _set_free(self, slot: SlotOfTaskManager, size: SlotSize) -> None:
        if slot.job_id is not None:
            self._allocated[slot.job_id, size] -= 1
        slot.allocation_id = slot.job_id = None

    def _on_tick(self) -> None:
        for resource_id in self.starting.since(self._now_ms - self._settings.start_timeout_ms):
            seconds = self._settings.start_timeout_ms / 1000
            cause = f"it did not register within {seconds:g} s (penstock.taskmanager.start-timeout)"
            self._effects.append(messages.StopTaskManager(resource_id, cause))
            self._on_start_failed(resource_id, cause)

    # ------------------------------------------------------------------ needs

    def _meet_needs(self) -> None:
        """Give free slots to the jobs in order, ask for TaskManagers for the rest, report what is missing."""
        for key, need in list(self.needs.items()):
            if need.required == 0 and self._allocated[key] == 0:
                del self.needs[key]
        asked = dict.fromkeys(size for _, size in self.needs if size)
        # Large slots are harder to place, so they come first.
        sizes = (*sorted(asked, key=cores_of, reverse=True), UNSIZED)
        self._report({size for size in sizes if self._is_short_after_meeting(size)})

    def _is_short_after_meeting(self, size: SlotSize) -> bool:
        """Meet needs for slots of one size. TaskManagers of a given size have one slot, and serve
        no other size.

        Returns: whether slots will still be missing.
        """
        missing = [
            (job_id, max(0, need.required - self._allocated[job_id, size]))
            for (job_id, wanted), need in self.needs.items()
            if wanted == size
        ]
        count = sum(of_job for _, of_job in missing)
        redundant = self._settings.redundant_taskmanagers if self.needs and not size else 0
        if not count and not redundant:
            return False
        is_waiting = self._are_slots_kept
        plan = plan_allocation(
            {UNKNOWN: count} if count else {},
            [] if is_waiting else self.taskmanagers.workers(size),
            self._as_one(size, with_registered=is_waiting),
            WorkerSpec(slots_profile(self._slots_in(size)), slots_profile(1)),
            AllocationRules(self._settings.load_balance, redundant, self._may_start()),
        )
        for _ in plan.new_workers:
            self._start(size)
        if not self._are_slots_kept:
            jobs = chain.from_iterable(repeat(*of_job) for of_job in missing)
            for job_id, worker in zip(jobs, plan.on_registered, strict=False):
                self._request_slot(ResourceId(worker.name), job_id)
        return len(plan.on_registered) + plan.on_pending < count

    def _slots_in(self, size: SlotSize) -> int:
        return 1 if size else self.slots_each

    def _as_one(self, size: SlotSize, *, with_registered: bool) -> list[Worker]:
        """Return one worker for all slots of starting TaskManagers, because it does not matter
        which of them gives a slot.

        `with_registered`: the worker also has the free slots of registered ones, when none of them
        is to be taken.
        """
        count = self.starting.of_size[size] * self._slots_in(size)
        if with_registered:
            taken = sum(held for (_, wanted), held in self._allocated.items() if wanted == size)
            count += self.taskmanagers.to_give(size, taken)
        return (
            [Worker("together", slots_profile(count), slots_profile(count), slots_profile(1))]
            if count
            else []
        )

    def _may_start(self) -> int | None:
        """Return how many more TaskManagers may be asked for now; None: any number."""
        if self._now_ms < self.start_failures.paused_until_ms:
            return 0
        if self.most is None:
            return None
        return max(0, self.most - self.taskmanagers.staying - len(self.starting))

    def _request_slot(self, resource_id: ResourceId, job_id: JobId) -> None:
        allocation_id = AllocationId(f"alloc-{self._next_allocation}")
        self._next_allocation += 1
        slot = SlotOfTaskManager(allocation_id, job_id)
        index = self.taskmanagers.occupy(resource_id, slot)
        self._allocated[job_id, self.taskmanagers[resource_id].size] += 1
        self._effects.append(messages.RequestSlot(resource_id, index, allocation_id, job_id))

    def _start(self, size: SlotSize) -> None:
        resource_id = ResourceId(f"tm-{self._next_taskmanager}")
        self._next_taskmanager += 1
        is_awaited = not self.start_failures.is_recent(self._now_ms)
        self.starting.add(resource_id, size, self._now_ms, is_awaited=is_awaited)
        self._effects.append(messages.StartTaskManager(resource_id, self._slots_in(size), size))

    def _report(self, short: AbstractSet[SlotSize]) -> None:
        """Report missing slots: at once if no more can come, else after some seconds; then repeatedly."""
        for (job_id, size), need in self.needs.items():
            held, is_short = self._allocated[job_id, size], size in short
            if held >= need.required:
                need.unmet_since_ms = need.reported_at_ms = need.reported = None
                continue
            if need.is_due(self._now_ms, self._settings) or (is_short and need.reported is None):
                reason = _reason(self, size, is_short=is_short)
                message = messages.ResourcesMissing(job_id, need.required, held, reason, is_short)
                need.reported_at_ms, need.reported = self._now_ms, message
                self._effects.append(message)

    # ------------------------------------------------------------------ release

    def release_idle(self) -> None:
        """Stop TaskManagers that have been unused for a while, except the redundant ones."""
        idle = self.taskmanagers.idle_since(self._now_ms - self._settings.idle_timeout_ms)
        if not idle:
            return
        free = sum(known.free_slots for known in self.taskmanagers.values())
        kept = self._settings.redundant_taskmanagers * self.slots_each if self.needs else 0
        for resource_id, known in idle:
            if free - len(known.slots) < kept:
                break
            free -= len(known.slots)
            self.taskmanagers.forget(resource_id)
            reason = "idle longer than resourcemanager.taskmanager-timeout"
            self._effects.append(messages.StopTaskManager(resource_id, reason))


def _reason(resources: ResourceManager, size: SlotSize, *, is_short: bool) -> str:
    """Say why slots of this size are missing."""
    known, coming = len(resources.taskmanagers), len(resources.starting)
    parts = [
        f"registered: {counted(known, 'TaskManager')}",
        counted(resources.slots_registered, "slot"),
        f"starting: {coming}, {counted(resources.slots_each, 'slot')} each",
    ]
    if size:
        parts.insert(0, f"these slots were asked for with {describe(size)}")
    if is_short and resources.most is not None and known + coming >= resources.most:
        parts.append(
            f"and at most {resources.most} TaskManagers are allowed: give Spark more cores, "
            "raise penstock.taskmanager.max or taskmanager.numberOfTaskSlots, or lower "
            "the parallelism"
        )
    if resources.start_failures.last_cause and not known + coming:
        parts.append(f"the last one failed to start: {resources.start_failures.last_cause}")
    return ", ".join(parts)


def max_taskmanagers_of(settings: Settings) -> int | None:
    """Return the smaller of penstock.taskmanager.max and what slotmanager.number-of-slots.max allows."""
    limits: list[int] = []
    most = settings.get(TaskManagerOptions.MAX_TASKMANAGERS)
    if most is not None:
        limits.append(most)
    most_slots = settings.get(ResourceOptions.MAX_SLOTS)
    if most_slots < INT_MAX:
        limits.append(max(1, most_slots // settings.get(TaskManagerOptions.SLOTS)))
    return min(limits) if limits else None
