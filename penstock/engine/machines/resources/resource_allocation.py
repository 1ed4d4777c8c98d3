"""Decides where missing slots are taken from: registered TaskManagers, starting ones, or new ones.

Knows no events. Source: Flink DefaultResourceAllocationStrategy, DefaultResourceReconciler
(docs/spec/slots.md#resourcemanager). Pure: takes the workers as they are, and returns a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from penstock.engine.machines.slots.resource_profile import UNKNOWN, ZERO, ResourceProfile

UNBOUNDED = 2**31


@dataclass(slots=True)
class Worker:
    """A TaskManager's resources. `free` shrinks as the plan grows."""

    name: str
    total: ResourceProfile
    free: ResourceProfile
    default_slot: ResourceProfile

    def capacity(self, request: ResourceProfile) -> int:
        """Return how many such slots still fit. UNKNOWN takes slots of the default size."""
        wanted = self.default_slot if request == UNKNOWN else request
        if not self.free.has_at_least(wanted):
            return 0
        amounts = wanted.as_dict().items()
        return min((int(self.free.amount(n) / a) for n, a in amounts if a), default=UNBOUNDED)

    def take(self, request: ResourceProfile, count: int) -> int:
        """Take up to `count` such slots. Returns: how many were taken."""
        taken = min(count, self.capacity(request))
        if taken > 0:
            wanted = self.default_slot if request == UNKNOWN else request
            self.free = self.free.subtract(wanted.multiply(taken))
        return taken

    @property
    def utilization(self) -> float:
        used = [
            1 - float(self.free.amount(name) / self.total.amount(name))
            for name in ("cpu", "heap")
            if self.total.amount(name)
        ]
        return max(used, default=0.0)


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The resources of a new TaskManager."""

    total: ResourceProfile
    default_slot: ResourceProfile

    def make(self, name: str) -> Worker:
        return Worker(name, self.total, self.total, self.default_slot)


@dataclass(slots=True)
class AllocationPlan:
    """`on_registered`: the worker of each slot to request now. `is_unfulfillable`: a request fits no worker."""

    on_registered: list[Worker] = field(default_factory=list)
    on_pending: int = 0
    new_workers: list[Worker] = field(default_factory=list)
    is_unfulfillable: bool = False


@dataclass(frozen=True, slots=True)
class AllocationRules:
    """`order`: NONE and TASKS fill one worker before the next; SLOTS takes the emptiest one,
    MIN_RESOURCES the fullest."""

    order: str = "NONE"
    redundant_workers: int = 0
    max_new_workers: int | None = None


def plan_allocation(
    missing: Mapping[ResourceProfile, int],
    registered: Sequence[Worker],
    pending: Sequence[Worker],
    spec: WorkerSpec,
    rules: AllocationRules | None = None,
) -> AllocationPlan:
    """Plan slots for the missing profiles, as far as the rules allow. Changes the workers' `free`."""
    rules = rules or AllocationRules()
    plan = AllocationPlan()
    for request, count in missing.items():
        left = count - _take_registered(plan, registered, request, count, rules.order)
        for worker in (*pending, *plan.new_workers):
            taken = worker.take(request, left)
            plan.on_pending += taken
            left -= taken
        if left and not spec.make("").capacity(request):
            plan.is_unfulfillable = True
            continue
        while left and (started := _start(plan, spec, rules)) is not None:
            taken = started.take(request, left)
            plan.on_pending += taken
            left -= taken
    _keep_redundancy(plan, [*registered, *pending], spec, rules)
    return plan


def _take_registered(
    plan: AllocationPlan,
    workers: Sequence[Worker],
    request: ResourceProfile,
    count: int,
    order: str,
) -> int:
    """Take slots of registered workers: one worker after the other, or one slot at a time by load."""
    before = len(plan.on_registered)
    if order not in {"SLOTS", "MIN_RESOURCES"}:
        for worker in workers:
            taken = worker.take(request, count + before - len(plan.on_registered))
            plan.on_registered.extend([worker] * taken)
        return len(plan.on_registered) - before
    sign = 1 if order == "SLOTS" else -1
    heap = [(sign * worker.utilization, place) for place, worker in enumerate(workers)]
    heapify(heap)
    while heap and len(plan.on_registered) - before < count:
        _, place = heappop(heap)
        worker = workers[place]
        if worker.take(request, 1):
            plan.on_registered.append(worker)
            heappush(heap, (sign * worker.utilization, place))
    return len(plan.on_registered) - before


def _start(plan: AllocationPlan, spec: WorkerSpec, rules: AllocationRules) -> Worker | None:
    if rules.max_new_workers is not None and len(plan.new_workers) >= rules.max_new_workers:
        return None
    worker = spec.make(f"new-{len(plan.new_workers)}")
    plan.new_workers.append(worker)
    return worker


def _keep_redundancy(
    plan: AllocationPlan, workers: Sequence[Worker], spec: WorkerSpec, rules: AllocationRules
) -> None:
    """Add workers until the free resources of all workers equal the redundant ones."""
    wanted = spec.total.multiply(rules.redundant_workers)
    free = ZERO
    for worker in (*workers, *plan.new_workers):
        free = free.merge(worker.free)
    while not free.has_at_least(wanted) and (started := _start(plan, spec, rules)) is not None:
        free = free.merge(started.free)
