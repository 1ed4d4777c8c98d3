"""Bugs planted into the machines, one at a time: each must break an invariant within 2,000 seeds.

`python -m tests.sim.planted` plants them all and prints which seed and which invariant caught each. Nothing in the package
imports this.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from penstock.engine.machines import failover
from penstock.engine.machines.execution import regions
from penstock.engine.machines.execution.execution import TABLE, Consequence, ExecutionEvent
from penstock.engine.machines.execution.execution_graph import (
    Execution,
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
)
from penstock.engine.machines.failover import (
    RestartRegions,
    Restarts,
    in_topological_order,
)
from penstock.engine.machines.job.failure_handler import FailureHandler
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job.job_state import JobTransitions
from penstock.engine.machines.job_state import job_status
from penstock.engine.machines.job_state.attempts import Attempts
from penstock.engine.machines.job_state.job_slots import JobSlots
from penstock.engine.machines.job_state.job_status import JobStatusEvent
from penstock.engine.machines.leases import Liveness
from penstock.engine.machines.resources.registered_taskmanagers import SlotOfTaskManager
from penstock.engine.machines.resources.resource_manager import ResourceManager
from penstock.engine.machines.scheduling import task_deployments
from penstock.engine.machines.scheduling.bulks import BulkCheck, Bulks, BulkTimeout
from penstock.engine.machines.scheduling.scheduling import PipelinedRegionScheduling
from penstock.engine.machines.slots.shared_slots import SharedSlots
from penstock.engine.machines.slots.slot_pool import SlotPool
from penstock.engine.model.ids import AllocationId, AttemptId, ResourceId
from penstock.engine.model.messages import ExecutionStateChanged, RequestSlot, StopTaskManager
from penstock.engine.model.states import ExecutionState, JobStatus
from simulation.world import run_seed
from tests.sim import planted_checkpoints, planted_taskmanagers

SEEDS = 2000
PLANTS: dict[str, Callable[[ExitStack], None]] = {
    **planted_checkpoints.PLANTS,
    **planted_taskmanagers.PLANTS,
}


def plant(bug: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
    PLANTS[bug.__name__] = bug
    return bug


@contextmanager
def planted(name: str) -> Generator[None]:
    with ExitStack() as stack:
        PLANTS[name](stack)
        yield


def swap(stack: ExitStack, owner: object, name: str, broken: object) -> None:
    stack.enter_context(patch.object(owner, name, broken))


# ---------------------------------------------------------------------- attempts


@plant
def stale_reports_count(stack):
    """A report of a past attempt moves the current one."""
    swap(
        stack,
        ExecutionGraph,
        "current",
        lambda self, attempt_id: self._by_id.get(attempt_id.execution_vertex_id),
    )


@plant
def attempt_number_is_not_raised(stack):
    real = ExecutionVertex.reset

    def reset(self):
        number = self.execution.attempt_id
        real(self)
        self.execution.attempt_id = number

    swap(stack, ExecutionVertex, "reset", reset)


@plant
def cancel_does_not_wait_for_the_task(stack):
    running = (ExecutionState.RUNNING, ExecutionEvent.CANCEL)
    stack.enter_context(
        patch.dict(TABLE, {running: (ExecutionState.CANCELED, Consequence.SEND_CANCEL)})
    )


@plant
def an_attempt_moves_past_its_table(stack):
    """INITIALIZING is skipped."""
    real = Execution.apply

    def apply(self, event, now_ms):
        consequence = real(self, event, now_ms)
        if event is ExecutionEvent.DEPLOY:
            self.state = ExecutionState.RUNNING
        return consequence

    swap(stack, Execution, "apply", apply)


# ---------------------------------------------------------------------- restarts


@plant
def restart_leaves_the_region_running(stack):
    """Only the tasks that failed start again, not those joined to them."""
    swap(
        stack,
        RestartRegions,
        "to_restart",
        lambda self, failed, unreadable=None: in_topological_order(failed),
    )


@plant
def restart_does_not_cancel_those_that_read(stack):
    real = FailureHandler.begin_restart

    def begin_restart(self, vertices, *, is_global):
        def cancel(vertex):
            if self._lifecycle.status is not JobStatus.RESTARTING or not vertex.consumed_groups:
                Attempts.cancel(self._attempts, vertex)

        with patch.object(self._attempts, "cancel", cancel):
            real(self, vertices, is_global=is_global)

    swap(stack, FailureHandler, "begin_restart", begin_restart)


@plant
def restart_does_not_wait_for_the_old_attempts(stack):
    real = Restarts.take_ready

    def take_ready(self):
        for restart in self._restarts.values():
            restart.alive.clear()
        return real(self)

    swap(stack, Restarts, "take_ready", take_ready)


@plant
def restart_timer_is_forgotten(stack):
    swap(stack, Restarts, "on_timer", lambda self, timer: None)


@plant
def two_restarts_at_once_restart_the_job_twice(stack):
    """As it was before the simulator found it."""

    def carry_out(self):
        for restart in self._restarts.take_ready():
            vertices = restart.valid
            if not vertices:
                continue
            self._transitions.reset(vertices, is_global=restart.is_global)
            if restart.is_global:
                self._lifecycle.root.clear()
                self._lifecycle.move(JobStatusEvent.REBUILT)
                self._lifecycle.move(JobStatusEvent.START)
            elif not self._restarts.is_any_waiting:
                self._lifecycle.root.clear()
                self._lifecycle.move(JobStatusEvent.RESTARTED)
            self._transitions.allocate(self._scheduling.restart(vertices))

    swap(stack, FailureHandler, "_carry_out_restarts", carry_out)


# ---------------------------------------------------------------------- slots of the job


@plant
def a_freed_slot_is_not_returned(stack):
    real = SharedSlots.leave

    def leave(self, vertex, now_ms):
        with patch.object(self.pool, "release", lambda request_id, now: False, create=True):
            real(self, vertex, now_ms)

    swap(stack, SharedSlots, "leave", leave)


@plant
def slots_of_a_lost_task_manager_stay(stack):
    swap(stack, SlotPool, "release_task_manager", lambda self, resource_id: [])


@plant
def waiting_requests_are_not_served(stack):
    """A slot that comes later helps nobody who waits."""
    swap(stack, SlotPool, "serve_pending", lambda self: [])


@plant
def a_bulk_never_times_out(stack):
    swap(stack, BulkTimeout, "check", lambda self, now_ms, **state: BulkCheck.PENDING)


@plant
def a_slot_that_was_freed_elsewhere_stays(stack):
    """As it was before the simulator found it."""
    swap(stack, JobSlots, "lose_slot", lambda self, allocation_id: [])


@plant
def requirements_are_not_lowered_at_the_end(stack):
    real = JobSlots.declare

    def declare(self):
        if self.pool.total_required > 0:
            real(self)

    swap(stack, JobSlots, "declare", declare)


@plant
def a_bulk_is_remembered_for_ever(stack):
    real = Bulks.drop

    def drop(self, bulk):
        real(self, bulk)
        self._by_timer[bulk.timer] = bulk

    swap(stack, Bulks, "drop", drop)


# ---------------------------------------------------------------------- regions and results


@plant
def regions_in_a_circle_wait_for_each_other(stack):
    """As it was before the simulator found it."""
    swap(stack, regions, "_without_cycles", lambda graph, logical: logical)


@plant
def a_region_does_not_wait_for_its_input(stack):
    swap(stack, PipelinedRegionScheduling, "_is_consumable", lambda *args: True)


@plant
def results_are_dropped_while_they_are_read(stack):
    """As it was before the simulator found it: idle TaskManagers go with what lies on them."""
    swap(stack, ResultPartition, "is_wanted", False)


@plant
def a_result_of_a_lost_task_manager_counts_as_there(stack):
    """Released with its task's restart, and still given to those that read it."""
    real = JobTransitions.reset

    def reset(self, vertices, *, is_global):
        for vertex in vertices:
            for group in vertex.consumed_groups:
                for partition in group.partitions:
                    was_there = partition.is_available
                    self._state.results.release(partition.producer, (partition,))
                    partition.is_available = was_there
        real(self, vertices, is_global=is_global)

    swap(stack, JobTransitions, "reset", reset)


@plant
def former_attempts_are_committed_too(stack):
    real = JobMaster._finalize

    def finalize(self):
        for vertex in self.graph.vertices:
            for former in vertex.history:
                vertex.execution.committables += former.committables
        real(self)

    swap(stack, JobMaster, "_finalize", finalize)


# ---------------------------------------------------------------------- ResourceManager, TaskManagers


@plant
def heartbeat_timeouts_are_not_noticed(stack):
    swap(stack, Liveness, "tick", lambda self, now_ms: [])


@plant
def a_lost_task_manager_is_not_told_to_the_job(stack):
    swap(stack, JobMaster, "_on_task_manager_gone", lambda self, event: None)


@plant
def the_resource_manager_keeps_lost_task_managers(stack):
    swap(stack, ResourceManager, "_on_lost", lambda self, resource_id, cause: None)


@plant
def one_slot_is_given_twice(stack):
    """The first slot of a TaskManager, whoever has it."""

    def request_slot(self, resource_id, job_id):
        known = self.taskmanagers[resource_id]
        allocation_id = AllocationId(f"alloc-{self._next_allocation}")
        self._next_allocation += 1
        known.slots[0] = SlotOfTaskManager(allocation_id, job_id)
        self._allocated[job_id] += 1
        known.idle_since_ms = None
        self._effects.append(RequestSlot(resource_id, 0, allocation_id, job_id))

    swap(stack, ResourceManager, "_request_slot", request_slot)


@plant
def a_slot_that_is_freed_stays_taken(stack):
    swap(stack, ResourceManager, "_on_slot_freed", lambda self, event: None)


@plant
def a_start_that_never_ends_is_waited_for(stack):
    swap(stack, ResourceManager, "_on_tick", lambda self: None)


@plant
def a_busy_task_manager_is_let_go(stack):
    real = ResourceManager.release_idle

    def release_idle(self):
        real(self)
        for resource_id, known in list(self.taskmanagers.items()):
            if known.location.resource_id.endswith("2") and self._now_ms > 100_000:
                for slot in known.slots:
                    self._set_free(slot, known.size)
                del self.taskmanagers[resource_id]
                self._effects.append(StopTaskManager(ResourceId(resource_id), "idle, it seems"))

    swap(stack, ResourceManager, "release_idle", release_idle)


# ---------------------------------------------------------------------- books, statuses, reasons


@plant
def a_slot_that_is_gone_still_fulfils(stack):
    real = SlotPool._forget

    def forget(self, slot):
        real(self, slot)
        self.fulfilled[slot.counts_for] += 1

    swap(stack, SlotPool, "_forget", forget)


@plant
def a_restart_forgets_that_the_job_is_restarting(stack):
    failed = (JobStatus.RUNNING, JobStatusEvent.RESTARTABLE_FAILURE)
    stack.enter_context(patch.dict(job_status.TABLE, {failed: JobStatus.CREATED}))


@plant
def an_attempt_number_is_left_out(stack):
    real = ExecutionVertex.reset

    def reset(self):
        real(self)
        left_out = self.execution.attempt_id.attempt + 1
        self.execution.attempt_id = AttemptId(self.vertex_id, left_out)

    swap(stack, ExecutionVertex, "reset", reset)


@plant
def a_task_is_not_told_where_to_read(stack):
    real = task_deployments.pack_producers
    swap(
        stack,
        task_deployments,
        "pack_producers",
        lambda data_set_id, vertex_id, first, producers: real(
            data_set_id, vertex_id, first, [(attempt, None) for attempt, _ in producers]
        ),
    )


@plant
def the_end_of_a_cancelled_attempt_is_told_to_nobody(stack):
    real = JobMaster.step

    def step(self, event):
        return [
            effect
            for effect in real(self, event)
            if not isinstance(effect, ExecutionStateChanged)
            or effect.old is not ExecutionState.CANCELING
            or self.status not in {JobStatus.CANCELLING, JobStatus.CANCELED}
        ]

    swap(stack, JobMaster, "step", step)


@plant
def a_broken_connection_ends_the_job(stack):
    swap(
        stack,
        failover,
        "is_infrastructure",
        lambda failure: failure is not None and failure.kind == "TaskManagerLost",
    )


# ---------------------------------------------------------------------- catching them


@dataclass(frozen=True)
class Catch:
    """`seeds`: run until it was caught, count; `by`: the invariant or error; None: it was not caught."""

    name: str
    seeds: int
    by: str | None
    text: str = ""


def hunt(name: str, seeds: int = SEEDS, first: int = 0) -> Catch:
    """Run seeds with the bug until one catches it: an invariant of ours, or of a machine's own."""
    with planted(name):
        for seed in range(first, first + seeds):
            violation = run_seed(seed).violation
            if violation is not None:
                misfit = violation[0] in {"TypeError", "AttributeError"}
                assert not misfit, f"{name} does not fit the machines any more: {violation[1]}"
                return Catch(name, seed - first + 1, violation[0], violation[1])
    return Catch(name, seeds, None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted", description=__doc__)
    parser.add_argument("names", nargs="*", default=sorted(PLANTS))
    names = parser.parse_args().names
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        catches = list(pool.imap(hunt, names))
    for catch in catches:
        by = f"caught by seed {catch.seeds - 1}: {catch.by}" if catch.by else "NOT CAUGHT"
        print(f"{catch.name}: {by}")
    caught = sum(catch.by is not None for catch in catches)
    print(f"{caught} of {len(catches)} caught, {time.monotonic() - started:.0f} s")
    return 0 if caught == len(catches) else 1


if __name__ == "__main__":
    sys.exit(main())
