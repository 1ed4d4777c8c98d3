"""Creates the books of one job. Source: the parts of Flink's DefaultScheduler.

Each book changes only itself. `moves.py` has changes that affect all books, and `job_master.py`
decides when they happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.machines.books.attempts import Attempts
from penstock.machines.books.job_settings import JobSettings, LoadBalanceMode
from penstock.machines.books.journal import Journal
from penstock.machines.books.life import JobLife
from penstock.machines.books.results import JobResults
from penstock.machines.books.slots import JobSlots, SlotSizes
from penstock.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.machines.execution.execution_graph import ExecutionGraph
from penstock.machines.execution.partition_release import PartitionRelease
from penstock.machines.failover.restarts import Restarts
from penstock.machines.job.deployer import Deployer
from penstock.machines.job.inheritance import Inheritance
from penstock.machines.scheduling.bulks import Bulks
from penstock.machines.scheduling.task_deployments import TaskDeployments
from penstock.machines.slots.shared_slots import SharedSlots
from penstock.machines.slots.slot_pool import SlotPool
from penstock.machines.slots.slot_sharing import SharingGroup, local_input_preferred, task_balanced
from penstock.machines.story import Story
from penstock.model.completed_checkpoint import CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class JobBooks:
    """One of each."""

    graph: ExecutionGraph
    journal: Journal
    restarts: Restarts
    life: JobLife
    checkpoints: JobCheckpoints
    bulks: Bulks
    attempts: Attempts
    slots: JobSlots
    results: JobResults
    deployer: Deployer


def books_of(
    graph: ExecutionGraph,
    settings: JobSettings,
    now_ms: int,
    completed: Sequence[CompletedCheckpoint],
    policy: PartitionRelease,
    left: Inheritance | None = None,
) -> JobBooks:
    """`left`: by the generation before; None: this is the first one.

    Raises: ConfigurationError: the program does not fit the last checkpoint.
    """
    job_graph, is_balanced = graph.job_graph, settings.load_balance is LoadBalanceMode.TASKS
    restarts, bulks, sizes = Restarts(), Bulks(), SlotSizes(job_graph)
    if left is None:
        journal = Journal(Story(f"JobMaster of {job_graph.job_id}", settings.story_size), now_ms)
        pool = SlotPool(settings.matching, settings.selection, settings.slot_idle_timeout_ms)
        life = JobLife(journal, restarts)
    else:
        journal, pool = left.journal, left.pool
        life = JobLife(journal, restarts, left.status)
    groups = _groups_of(graph, left, is_balanced=is_balanced)
    shared_slots = SharedSlots(
        groups, pool, are_free_slots_taken=not is_balanced, profile_of_group=sizes.wanted
    )
    checkpoints = JobCheckpoints(
        graph,
        settings.checkpoints,
        completed,
        journal.emit,
        None if left is None else left.checkpoints,
    )
    deployments = TaskDeployments(job_graph, graph, settings.with_rivals)
    attempts = Attempts(graph, journal, bulks, shared_slots, restarts, checkpoints, deployments)
    slots = JobSlots(graph, pool, shared_slots, sizes, attempts, journal)
    deployer = Deployer(job_graph, settings, slots, bulks, attempts, deployments, journal)
    _go_on_with(left, slots, attempts, restarts, deployer)
    return JobBooks(
        graph,
        journal,
        restarts,
        life,
        checkpoints,
        bulks,
        attempts,
        slots,
        JobResults(graph, policy, journal),
        deployer,
    )


def _groups_of(
    graph: ExecutionGraph, left: Inheritance | None, *, is_balanced: bool
) -> list[SharingGroup]:
    """The subtasks that are to share slots, but for those that run on in theirs."""
    share = task_balanced if is_balanced else local_input_preferred
    return share(graph, frozenset() if left is None else left.kept)


def _go_on_with(
    left: Inheritance | None,
    slots: JobSlots,
    attempts: Attempts,
    restarts: Restarts,
    deployer: Deployer,
) -> None:
    if left is not None:
        slots.freed, slots.declared = left.freed, left.declared
        attempts.gone.update(left.gone)
        deployer.next_bulk, restarts.next_number, slots.shared_slots.next_request = left.numbers
