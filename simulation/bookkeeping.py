"""Whether the counters and tables of a machine agree with each other, after any step of it.

Reads a machine, also its private state, and changes nothing. Each function raises BrokenInvariant, with the name of what
does not hold and the story of the machine. The simulator and the tests of machines call them; no job does.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from penstock.engine.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.engine.machines.checkpoints.pending import Phase
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job.job_state import JobState
from penstock.engine.machines.resources.resource_manager import ResourceManager
from penstock.engine.machines.slots.slot_pool import SlotPool
from penstock.engine.machines.taskmanager.task_executor import TaskExecutor, TaskSlots
from penstock.engine.machines.workers import Worker, WorkerPool, WorkerState
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.ids import JobId
from penstock.engine.model.states import ExecutionState, JobStatus, SlotState

_HAS_SLOT: Final = frozenset({
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
    ExecutionState.CANCELING,
})


def _expect(name: str, what: object, holds: object) -> None:
    if not holds:
        raise BrokenInvariant(f"'{name}' does not hold for {what}.")


def _equal(name: str, counted: object, found: object) -> None:
    if counted != found:
        raise BrokenInvariant(f"{name}: the counters say {counted}, the entries say {found}.")


# ---------------------------------------------------------------------- jobs


def check_job(job: JobMaster) -> None:
    state = job.state
    check_pool(state.slots.pool)
    if state.checkpoints.coordinator is not None:
        check_checkpoints(state.checkpoints.coordinator)
    with job.story:
        _check_seats(state)
        _check_rule_of_one(state)
        _check_job_counters(state)
        _check_status(state)


def _check_seats(job: JobState) -> None:
    for vertex in job.graph.vertices:
        slot = job.slots.shared_slots.slot_of(vertex)
        if vertex.state in _HAS_SLOT:
            held = slot is not None and slot.allocation_id == vertex.execution.allocation_id
            _expect("every deployed task sits in a slot that the job holds", vertex, held)
        elif vertex.state is ExecutionState.SCHEDULED:
            waiting = job.bulks.is_waiting(vertex)
            _expect("every scheduled task waits in a bulk", vertex, waiting)
        else:
            seat = job.slots.shared_slots.shared_slot_of(vertex)
            _expect("no other task has a seat", vertex, seat is None)


def _check_rule_of_one(job: JobState) -> None:
    for shared in job.slots.shared_slots:
        kinds = Counter(id(vertex.job_vertex) for vertex in shared.members.values())
        _expect("two subtasks of one vertex never share a slot", shared, max(kinds.values()) == 1)
        groups = {vertex.job_vertex.slot_sharing_group for vertex in shared.members.values()}
        _expect("a slot serves one slot sharing group", shared, len(groups) == 1)


def _check_job_counters(job: JobState) -> None:
    for job_vertex in job.graph.job_vertices:
        finished = sum(v.state is ExecutionState.FINISHED for v in job_vertex.vertices)
        _expect("finished subtasks are counted", job_vertex.name, finished == job_vertex.finished)
    for group in job.graph.consumed_groups:
        unfinished = sum(not partition.is_all_data_produced for partition in group.partitions)
        _expect("unfinished partitions are counted", group.edge, unfinished == group.unfinished)


def _check_status(job: JobState) -> None:
    status = job.lifecycle.status
    if status.is_terminal:
        _expect(
            "all tasks of an ended job have ended",
            status,
            all(one.state.is_terminal for one in job.graph.vertices),
        )
        _expect("an ended job holds no slot", status, not job.slots.pool.slots)
    if status is JobStatus.FINISHED:
        _expect("all tasks of a finished job have finished", status, job.graph.is_finished)
    _expect(
        "a job is restarting while tasks wait for their restart",
        status,
        job.lifecycle.awaits_next or job.restarts.is_any_waiting == job.lifecycle.is_restarting,
    )


def check_checkpoints(coordinator: CheckpointCoordinator) -> None:
    pending, next_id = coordinator.pending, coordinator.coordinator_state.next_id
    with coordinator.story:
        ids = list(pending)
        _expect("ids rise", ids, ids == sorted(ids) and all(i < next_id for i in ids))
        storing = [p.checkpoint_id for p in pending.values() if p.phase is Phase.STORING]
        _expect("one checkpoint is written at a time", storing, len(storing) <= 1)
        idle = [p.checkpoint_id for p in pending.values() if p.phase is Phase.READY]
        _expect("a whole checkpoint waits for another one only", idle, storing or not idle)
        for checkpoint in pending.values():
            number = checkpoint.checkpoint_id
            is_whole = checkpoint.states.keys() == checkpoint.plan.running.keys()
            is_known = checkpoint.states.keys() <= checkpoint.plan.running.keys()
            is_acknowledged = is_known and is_whole != checkpoint.is_under_way
            _expect("what is written was acknowledged by all, each once", number, is_acknowledged)
            is_kept = coordinator.is_active or checkpoint.phase is Phase.STORING
            _expect("only a running job takes checkpoints", number, is_kept)


# ---------------------------------------------------------------------- slots and TaskManagers


def check_pool(pool: SlotPool) -> None:
    with pool.story:
        fulfilled = Counter(slot.counts_for for slot in pool.slots.values())
        used = Counter(slot.counts_for for slot in pool._by_request.values())
        waiting = Counter(request.profile for request in pool.pending.values())
        _equal("fulfilled requirements", +pool.fulfilled, fulfilled)
        _equal("required slots", +pool.required, used + waiting)
        _equal("free slots", len(pool.free_slots), len(pool.slots) - len(pool._by_request))
        per_task_manager = Counter(slot.resource_id for slot in pool.free_slots)
        _equal("free per TaskManager", +pool._free_per_task_manager, per_task_manager)
        for slot in pool.slots.values():
            is_free = slot.allocation_id in pool.free_slots
            _equal(f"{slot.allocation_id} is free", slot.serves is None, is_free)


def allocated_to(manager: ResourceManager, job_id: JobId) -> int:
    """Return how many slots the job has."""
    return sum(count for (owner, _), count in manager._allocated.items() if owner == job_id)


def check_resources(manager: ResourceManager) -> None:
    known, starting = manager.taskmanagers, manager.starting
    with manager.story:
        both = known.keys() & starting.since_ms.keys()
        _expect("no TaskManager is registered and starting", sorted(both), not both)
        count = known.staying + len(starting)
        is_allowed = manager.most is None or count <= manager.most
        _expect("there are no more TaskManagers than may be", count, is_allowed)
        taken = [(one, slot) for one in known.values() for slot in one.slots if slot.job_id]
        owners = Counter((slot.job_id, one.size) for one, slot in taken)
        _equal("slots per job", +manager._allocated, owners)
        names = {slot.allocation_id for _, slot in taken}
        _expect("one allocation id names one slot", names, len(taken) == len(names))
        with_free = {name for name, one in known.items() if one.free_slots and not one.is_leaving}
        _equal("TaskManagers with free slots", known.with_free_slots, with_free)
        slots = sum(len(one.slots) for one in known.values())
        _equal("slots by size", known.slots_of_size.total(), slots)


def check_task_executor(executor: TaskExecutor) -> None:
    with executor.story:
        _check_task_slots(executor.slots)
        seats = {attempt: slot for slot in executor.slots for attempt in slot.attempts}
        _equal("every task sits in one slot", executor._slot_of, seats)


def _check_task_slots(slots: TaskSlots) -> None:
    places = [slot.index for slot in slots]
    _expect("a place has one allocation", places, len(places) == len(set(places)))
    is_mutual = {s.allocation_id for s in slots._by_index.values()} == set(slots._by_allocation)
    _expect("every allocation has its place", slots._by_index, is_mutual)
    for slot in slots:
        _expect("what is counted as taken is not free", slot, slot.state is not SlotState.FREE)
        is_new = slot.allocation_id not in slots._past
        _expect("an allocation that is over stays over", slot, is_new)
        may_run = slot.state in {SlotState.ACTIVE, SlotState.RELEASING} or not slot.attempts
        _expect("tasks sit in slots that a job has taken", slot, may_run)
        is_busy = slot.state is not SlotState.RELEASING or slot.attempts
        _expect("a slot that is being released has tasks", slot, is_busy)
        _expect("no task runs after its end", slot, not slot.attempts & slot.ended)


# ---------------------------------------------------------------------- workers of a session


def check_workers(pool: WorkerPool) -> None:
    with pool.story:
        hosted = [start for one in pool.workers.values() for start in one.starts]
        _expect("a start is hosted once", hosted, len(set(map(id, hosted))) == len(hosted))
        for one in pool.workers.values():
            _check_worker(one)
        for start_id, start in pool.starts.items():
            is_waiting = start.worker is None
            is_hosted = any(start is one for one in hosted)
            _expect("a start is hosted, or waits", start_id, is_waiting != is_hosted)
            is_held = start.planned is None and bool(start.wanted.after_sized)
            is_planned = not is_waiting or is_held or start.planned in pool.workers
            _expect("who waits, waits for a worker", start_id, is_planned)


def _check_worker(one: Worker) -> None:
    _expect("no more slots are given than there are", one.worker_id, one.free_slots >= 0)
    is_same = all(start.wanted.kind == one.kind for start in one.starts)
    _expect("a worker hosts TaskManagers of its kind", one.worker_id, is_same)
    is_known = one.is_idle == (one.idle_since_ms is not None)
    _expect("of the idle ones it is known since when", one.worker_id, is_known)
    may_host = one.state is not WorkerState.STARTING or not one.starts
    _expect("nobody is hosted before the worker has started", one.worker_id, may_host)
