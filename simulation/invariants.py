"""What must hold in a simulated world, by name. Counts how often each was evaluated on a state that
could break it.

Reads the machines and TaskManagers, and changes nothing. The allowed moves are written down here
again, from docs/spec/execution-graph.md#states-of-a-job, #states-of-an-attempt, because the tables
of the machines are what is checked.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

from penstock.engine.machines.failover import (
    FixedDelayRestart,
    InfrastructureOnlyRestart,
)
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.resources.resource_manager import SPREAD_WAIT_MS, ResourceManager
from penstock.engine.machines.taskmanager.task_executor import TaskExecutor
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import AllocationId, AttemptId, ExecutionVertexId
from penstock.engine.model.messages import (
    FENCED,
    CancelTask,
    ExecutionStateChanged,
    JobStatusChanged,
    SlotFreed,
    SlotTimedOut,
    TaskManagerEffect,
    TaskManagerEvent,
)
from penstock.engine.model.options.cluster import LoadBalanceMode
from penstock.engine.model.slot_size import SlotSize
from penstock.engine.model.states import ExecutionState, JobStatus, SlotState
from simulation.bookkeeping import check_job, check_resources, check_task_executor
from simulation.scenario import FEW_RESTARTS
from simulation.taskmanager import SimTaskManager


class Name(StrEnum):
    """All invariants."""

    JOB_BOOKS = "the books of the JobMaster agree"
    RESOURCE_BOOKS = "the books of the ResourceManager agree"
    ONE_OWNER = "a slot has one owner"
    ONE_ATTEMPT = "a vertex has at most one live attempt"
    TASK_MOVES = "an attempt moves by the table only"
    JOB_MOVES = "a job moves by the table only"
    RISING_ATTEMPTS = "attempts are numbered one after the other and deployed once"
    KNOWN_PRODUCERS = "a task is told where its producers are"
    RESULT_IS_THERE = "a result that is to be read is there and complete"
    ONE_RESTART = "tasks joined by a pipeline are of one restart"
    SEATED = "a task runs in a slot that its TaskManager has given"
    TASKMANAGER_BOOKS = "the books of a TaskManager agree"
    FENCED = "what a deposed leader says changes nothing"
    CANCELLED = "a task that is to end, or whose slot is released, is cancelled"
    FREED_ONCE = "a slot is given back once, and empty"
    TIMEOUT_SPARES = "a slot that its job has taken does not time out"
    NO_GHOSTS = "no task is sent to a TaskManager that is over"
    IDLE_IS_IDLE = "a TaskManager that is let go runs nothing"
    KEPT_FOR_READERS = "a TaskManager with results that are to be read is kept"
    NO_NEEDLESS_WAIT = "nobody waits while a slot is free"
    WAITS_END = "a wait for slots ends in time"
    SILENCE_NOTICED = "a silent TaskManager is noticed in time"
    FAILS_FOR_REASON = "a job fails only for what its restart strategy does not restart after"
    COMMITTED_ONCE = "what the last attempts made is committed, once"
    CHECKPOINT_WHOLE = "a checkpoint is one snapshot of each running subtask, made for it"
    NOTIFIED_IF_COMPLETE = "tasks hear of completed checkpoints only"
    RESTORES_LATEST = "a restart begins with the latest completed checkpoint"
    LATEST_IS_KEPT = "what a restart would begin with is not discarded"
    CHECKPOINT_IDS_RISE = "ids of checkpoints rise"
    LAST_AT_ONCE = "when all have read their input the last checkpoint is taken at once"
    ENDED_STAYS_ENDED = "only who had ended in the checkpoint begins at its end"
    ATTEMPTS_END = "every attempt ends"
    RECOVERS = "60 s after the faults the job runs or has ended"
    GIVEN_BACK = "slots and TaskManagers are given back after the end"
    NOTHING_LEFT = "nothing is left in timers and queues"


_S, _J = ExecutionState, JobStatus
_RUNNABLE: Final = (_S.DEPLOYING, _S.INITIALIZING, _S.RUNNING)
_LIVE: Final = (_J.CREATED, _J.RUNNING, _J.RESTARTING, _J.FAILING, _J.CANCELLING)
TASK_MOVES: Final = frozenset({
    (_S.CREATED, _S.SCHEDULED),
    (_S.SCHEDULED, _S.DEPLOYING),
    (_S.DEPLOYING, _S.INITIALIZING),
    (_S.INITIALIZING, _S.RUNNING),
    (_S.CREATED, _S.CANCELED),
    (_S.CREATED, _S.FAILED),
    (_S.SCHEDULED, _S.CANCELED),
    (_S.SCHEDULED, _S.FAILED),
    (_S.CANCELING, _S.CANCELED),
    *((state, end) for state in _RUNNABLE for end in (_S.FINISHED, _S.CANCELED, _S.FAILED)),
    *((state, _S.CANCELING) for state in _RUNNABLE),
})
JOB_MOVES: Final = frozenset({
    (_J.CREATED, _J.RUNNING),
    (_J.RUNNING, _J.RESTARTING),
    (_J.RESTARTING, _J.RUNNING),
    (_J.RUNNING, _J.FINISHED),
    (_J.FAILING, _J.FAILED),
    (_J.CANCELLING, _J.CANCELED),
    (_J.FAILING, _J.RESTARTING),
    *((status, _J.SUSPENDED) for status in _LIVE),
    (_J.RESTARTING, _J.CREATED),
    *((status, _J.FAILING) for status in (_J.CREATED, _J.RUNNING, _J.RESTARTING, _J.CANCELLING)),
    *((status, _J.CANCELLING) for status in (_J.CREATED, _J.RUNNING, _J.RESTARTING, _J.FAILING)),
})
_LATE_MS: Final = 3_000
_COMMIT: Final = frozenset({"CommitFailed"})
_NO_SLOTS: Final = frozenset({"NoResourceAvailable"})
_USER: Final = frozenset({"ValueError", "CheckpointFailed"})
_WORLD: Final = frozenset({
    "TaskManagerLost",
    "SlotLost",
    "PartitionConnectionError",
    "PartitionNotFound",
    "ProducerFailed",
})


def _seats(executor: TaskExecutor) -> dict[AllocationId, tuple[object, ...]]:
    """Return the state and the tasks of each allocation."""
    return {
        slot.allocation_id: (slot.state, slot.index, slot.job_id, tuple(sorted(slot.attempts)))
        for slot in executor.slots
    }


def _could_serve(job: JobMaster) -> bool:
    """Whether a request waits although a slot could serve it. Mode TASKS serves all requests or none."""
    pool = job.state.slots.pool
    requests, free = list(pool.pending.values()), pool.free
    if job.settings.load_balance is LoadBalanceMode.TASKS:
        if len({request.profile for request in requests}) != 1:
            return False
        good = sum(slot.profile.is_matching(requests[0].profile) for slot in free)
        return good >= len(requests)
    return any(slot.profile.is_matching(r.profile) for slot in free for r in requests)


class Violation(AssertionError):
    """An invariant does not hold. `name`: the invariant."""

    def __init__(self, name: Name | str, what: str) -> None:
        super().__init__(f"'{name}' does not hold: {what}")
        self.name = str(name)


def violation_of(run: Callable[[], None]) -> tuple[str, str] | None:
    """Run a world. Returns: name and text of the invariant that broke, or of an error, which would have ended the driver; None: all held."""
    try:
        run()
    except Violation as violation:
        return violation.name, str(violation)
    except EngineBug as error:
        return type(error).__name__, str(error)
    except Exception as error:  # Whatever a machine raises.
        return type(error).__name__, "".join(traceback.format_exception(error))
    return None


class Invariants:
    """Checks for one world. `evaluated`: how often, by name, on states that are not trivial."""

    def __init__(self) -> None:
        self.evaluated: Counter[Name] = Counter()

    def expect(
        self, name: Name, holds: bool, what: object = "", *, is_trivial: bool = False
    ) -> None:
        if not holds:
            raise Violation(name, str(what))
        if not is_trivial:
            self.evaluated[name] += 1

    # ------------------------------------------------------------------ after each step of a machine

    def after_job_step(self, job: JobMaster, now_ms: int) -> None:
        try:
            check_job(job)
        except EngineBug as error:
            raise Violation(Name.JOB_BOOKS, str(error)) from error
        pool = job.state.slots.pool
        self.evaluated[Name.JOB_BOOKS] += bool(pool.slots)
        places = [(slot.resource_id, slot.slot_index) for slot in pool.slots.values()]
        self.expect(
            Name.ONE_OWNER, len(places) == len(set(places)), places, is_trivial=len(places) < 2
        )
        waits = bool(pool.pending)
        if not job.status.is_terminal:
            self.expect(
                Name.NO_NEEDLESS_WAIT, not _could_serve(job), pool.free, is_trivial=not waits
            )
        self._one_restart(job)
        self._waits_end(job, now_ms)

    def _one_restart(self, job: JobMaster) -> None:
        """Check that the producers of a running task's pipelined inputs run too, or have finished."""
        for vertex in job.state.graph.vertices:
            if vertex.state not in _RUNNABLE:
                continue
            for group in vertex.consumed_groups:
                if not group.result_type.must_be_pipelined_consumed:
                    continue
                for partition in group.partitions:
                    state = partition.producer.state
                    is_good = state in _RUNNABLE or state is _S.FINISHED
                    # Its restart waits for the report of its own producer.
                    is_good = is_good or partition.producer in job._failures.deferred_failures
                    self.expect(
                        Name.ONE_RESTART, is_good, f"{vertex} runs, {partition.producer} is {state}"
                    )

    def _waits_end(self, job: JobMaster, now_ms: int) -> None:
        """Check that waits for slots end in time.

        Only for streaming jobs, whose tasks do not wait for each other's slots; mode TASKS waits
        for all slots.
        """
        is_balanced = job.settings.load_balance is LoadBalanceMode.TASKS
        if job.job_graph.job_type is not JobType.STREAMING or is_balanced:
            return
        limit_ms = job.settings.slot_request_timeout_ms + _LATE_MS
        for vertex in job.state.graph.vertices:
            if vertex.state is _S.SCHEDULED:
                since_ms = vertex.execution.since_ms[_S.SCHEDULED]
                self.expect(Name.WAITS_END, now_ms - since_ms <= limit_ms, vertex)

    def after_resource_step(self, resources: ResourceManager) -> None:
        try:
            check_resources(resources)
        except EngineBug as error:
            raise Violation(Name.RESOURCE_BOOKS, str(error)) from error
        self.evaluated[Name.RESOURCE_BOOKS] += len(resources.taskmanagers) > 1
        is_spread = resources._settings.load_balance == "SLOTS"
        times = resources.starting.since_ms.values()
        if is_spread and any(one > resources._now_ms - SPREAD_WAIT_MS for one in times):
            return  # Slots are spread when all TaskManagers have come, which must not take long.
        free: Counter[SlotSize] = Counter()
        for known in resources.taskmanagers.values():
            free[known.size] += 0 if known.is_leaving else known.free_slots
        for (job_id, size), need in resources.needs.items():
            lacks = need.required - resources._allocated[job_id, size]
            self.expect(
                Name.NO_NEEDLESS_WAIT,
                lacks <= 0 or not free[size],
                (size, lacks, free),
                is_trivial=lacks <= 0,
            )

    # ------------------------------------------------------------------ TaskManagers

    def taskmanager_steps(
        self, taskmanager: SimTaskManager, event: TaskManagerEvent
    ) -> Callable[[list[TaskManagerEffect]], None]:
        """Called before a step of a TaskManager's machine. Returns: a function that gets the step's effects."""
        executor = taskmanager.executor
        token = getattr(event, "fencing_token", executor.leader)
        is_stale = type(event) in FENCED and token != executor.leader
        is_looked_at = is_stale or isinstance(event, SlotTimedOut)
        before = _seats(executor) if is_looked_at else {}

        def after(effects: list[TaskManagerEffect]) -> None:
            if is_stale:
                same = not effects and _seats(executor) == before
                self.expect(Name.FENCED, same, event, is_trivial=not before)
            if not taskmanager.is_alive:
                return
            self._slots_are_freed_once(taskmanager, effects)
            try:
                check_task_executor(executor)
            except EngineBug as error:
                raise Violation(Name.TASKMANAGER_BOOKS, str(error)) from error
            self.evaluated[Name.TASKMANAGER_BOOKS] += bool(len(executor.slots))
            if isinstance(event, SlotTimedOut):
                was = before.get(event.allocation_id, (SlotState.FREE,))[0]
                is_spared = was is not SlotState.ACTIVE or _seats(executor) == before
                self.expect(Name.TIMEOUT_SPARES, is_spared, event, is_trivial=not before)
            elif not is_stale:
                self._ends_are_heard(taskmanager, event)

        return after

    def _slots_are_freed_once(
        self, taskmanager: SimTaskManager, effects: list[TaskManagerEffect]
    ) -> None:
        for effect in effects:
            if isinstance(effect, SlotFreed):
                allocation_id = effect.allocation_id
                tasks = taskmanager.tasks.values()
                runs = [t for t in tasks if t.deployment.allocation_id == allocation_id]
                is_once = allocation_id not in taskmanager.freed and not runs
                self.expect(Name.FREED_ONCE, is_once, (effect, runs))
                taskmanager.freed.add(allocation_id)

    def _ends_are_heard(self, taskmanager: SimTaskManager, event: TaskManagerEvent) -> None:
        for task in taskmanager.tasks.values():
            slot = taskmanager.executor.slots.slot(task.deployment.allocation_id)
            is_to_end = isinstance(event, CancelTask) and event.attempt_id == task.attempt_id
            if is_to_end or (slot is not None and slot.state is SlotState.RELEASING):
                self.expect(Name.CANCELLED, task.is_cancelled, task.attempt_id)

    # ------------------------------------------------------------------ after each event at a TaskManager

    def after_task_event(self, taskmanagers: Iterable[SimTaskManager]) -> None:
        """Check TaskManagers that are not over. A fenced one may still run tasks that were given up."""
        live: dict[ExecutionVertexId, AttemptId] = {}
        for taskmanager in taskmanagers:
            owners: dict[int, str] = {}
            for task in taskmanager.tasks.values():
                slot = taskmanager.executor.slots.slot(task.deployment.allocation_id)
                is_seated = slot is not None and task.attempt_id in slot.attempts
                self.expect(Name.SEATED, is_seated, task.attempt_id)
                if slot is not None:
                    owner = owners.setdefault(slot.index, slot.allocation_id)
                    is_one = owner == slot.allocation_id and slot.state is not SlotState.FREE
                    self.expect(Name.ONE_OWNER, is_one, slot)
                vertex_id = task.attempt_id.execution_vertex_id
                other = live.setdefault(vertex_id, task.attempt_id)
                same = other == task.attempt_id
                self.expect(Name.ONE_ATTEMPT, same, f"{other} and {task.attempt_id}")

    # ------------------------------------------------------------------ moves

    def task_moved(self, change: ExecutionStateChanged, before: ExecutionState) -> None:
        is_good = change.old is before and (change.old, change.new) in TASK_MOVES
        self.expect(Name.TASK_MOVES, is_good, f"{change}, which was {before}")

    def job_failed(self, job: JobMaster, change: JobStatusChanged) -> None:
        """Check the cause of a job's failure. A kind that is not listed cannot be caused by anything in this world."""
        backoff = job.settings.make_backoff()
        may_end = _COMMIT | _NO_SLOTS
        if isinstance(backoff, InfrastructureOnlyRestart):
            may_end |= _USER
        elif isinstance(backoff, FixedDelayRestart) and backoff.attempts <= FEW_RESTARTS:
            may_end |= _USER | _WORLD
        kind = change.failure.kind if change.failure is not None else "nothing"
        self.expect(Name.FAILS_FOR_REASON, kind in may_end, (kind, backoff))

    def job_moved(self, change: JobStatusChanged, before: JobStatus) -> None:
        self.expect(Name.JOB_MOVES, (before, change.status) in JOB_MOVES, (before, change.status))
