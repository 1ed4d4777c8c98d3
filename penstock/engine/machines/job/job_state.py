"""State of one job, and its creation. Source: the parts of Flink's DefaultScheduler.

Each part changes only itself. `job_transitions.py` has changes of several parts, and `job_master.py`
decides when they happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engine.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.execution.partition_release import PartitionRelease
from penstock.engine.machines.failover.restarts import Restarts
from penstock.engine.machines.job.deployer import Deployer
from penstock.engine.machines.job.handed_over import HandedOver
from penstock.engine.machines.job_state.attempts import Attempts
from penstock.engine.machines.job_state.event_log import EventLog
from penstock.engine.machines.job_state.job_lifecycle import JobLifecycle
from penstock.engine.machines.job_state.job_settings import JobSettings, LoadBalanceMode
from penstock.engine.machines.job_state.job_slots import JobSlots, SlotSizes
from penstock.engine.machines.job_state.results import JobResults
from penstock.engine.machines.scheduling.bulks import Bulks
from penstock.engine.machines.scheduling.task_deployments import TaskDeployments
from penstock.engine.machines.slots.shared_slots import SharedSlots
from penstock.engine.machines.slots.slot_pool import SlotPool
from penstock.engine.machines.slots.slot_sharing import (
    SharingGroup,
    local_input_preferred,
    task_balanced,
)
from penstock.engine.machines.story import Story
from penstock.engine.model.completed_checkpoint import CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class JobState:
    """The parts of one job's state."""

    graph: ExecutionGraph
    event_log: EventLog
    restarts: Restarts
    lifecycle: JobLifecycle
    checkpoints: JobCheckpoints
    bulks: Bulks
    attempts: Attempts
    slots: JobSlots
    results: JobResults
    deployer: Deployer


def job_state_of(
    graph: ExecutionGraph,
    settings: JobSettings,
    now_ms: int,
    completed: Sequence[CompletedCheckpoint],
    policy: PartitionRelease,
    left: HandedOver | None = None,
) -> JobState:
    """`left`: by the generation before; None: this is the first one.

    Raises: ConfigurationError: the program does not fit the last checkpoint.
    """
    job_graph, is_balanced = graph.job_graph, settings.load_balance is LoadBalanceMode.TASKS
    restarts, bulks, sizes = Restarts(), Bulks(), SlotSizes(job_graph)
    if left is None:
        event_log = EventLog(Story(f"JobMaster of {job_graph.job_id}", settings.story_size), now_ms)
        pool = SlotPool(settings.matching, settings.selection, settings.slot_idle_timeout_ms)
        lifecycle = JobLifecycle(event_log, restarts)
    else:
        event_log, pool = left.event_log, left.pool
        lifecycle = JobLifecycle(event_log, restarts, left.status)
    groups = _groups_of(graph, left, is_balanced=is_balanced)
    shared_slots = SharedSlots(
        groups, pool, are_free_slots_taken=not is_balanced, profile_of_group=sizes.wanted
    )
    checkpoints = JobCheckpoints(
        graph,
        settings.checkpoints,
        completed,
        event_log.emit,
        None if left is None else left.checkpoints,
    )
    deployments = TaskDeployments(job_graph, graph)
    attempts = Attempts(graph, event_log, bulks, shared_slots, restarts, checkpoints, deployments)
    slots = JobSlots(graph, pool, shared_slots, sizes, attempts, event_log)
    deployer = Deployer(job_graph, settings, slots, bulks, attempts, deployments, event_log)
    _go_on_with(left, slots, attempts, restarts, deployer)
    return JobState(
        graph,
        event_log,
        restarts,
        lifecycle,
        checkpoints,
        bulks,
        attempts,
        slots,
        JobResults(graph, policy, event_log),
        deployer,
    )


def _groups_of(
    graph: ExecutionGraph, left: HandedOver | None, *, is_balanced: bool
) -> list[SharingGroup]:
    """The subtasks that are to share slots, but for those that run on in theirs."""
    share = task_balanced if is_balanced else local_input_preferred
    return share(graph, frozenset() if left is None else left.kept)


def _go_on_with(
    left: HandedOver | None,
    slots: JobSlots,
    attempts: Attempts,
    restarts: Restarts,
    deployer: Deployer,
) -> None:
    if left is not None:
        slots.freed, slots.declared = left.freed, left.declared
        attempts.gone.update(left.gone)
        deployer.next_bulk, restarts.next_number, slots.shared_slots.next_request = left.numbers
