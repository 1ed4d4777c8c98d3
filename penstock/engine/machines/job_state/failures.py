"""Failures that the control plane itself finds, with complete texts; and which failure is the root
cause.

Knows no strategy. Source: Flink FailureHandlingResult, NoResourceAvailableException; differs: a
broken connection between tasks never hides the failure that broke it.
"""

from __future__ import annotations

from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.failover import OUT_OF_MEMORY, is_infrastructure
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.scheduling.bulks import Bulk
from penstock.engine.machines.slots.slot_pool import PooledSlot
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.messages import FailureInfo, NotEnoughResources, TaskManagerGone
from penstock.engine.model.states import ExecutionState

_SECONDARY = frozenset({"PartitionConnectionError", "PartitionNotFound", "ProducerFailed"})


class RootCause:
    """The first failure that is not merely a consequence of another one."""

    def __init__(self) -> None:
        self.failure: FailureInfo | None = None

    def note(self, failure: FailureInfo) -> None:
        """Keep this failure if it is the first, or if it explains the one that is kept."""
        if self.failure is None or explains(failure, self.failure):
            self.failure = failure

    def clear(self) -> None:
        self.failure = None

    @property
    def is_infrastructure(self) -> bool:
        return is_infrastructure(self.failure)


def explains(later: FailureInfo, earlier: FailureInfo) -> bool:
    """Whether the earlier failure is only a consequence of the later one."""
    return _rank(later) > _rank(earlier)


def _rank(failure: FailureInfo) -> int:
    """Return a rank: a task's own failure explains a lost TaskManager, and that explains broken connections."""
    if not is_infrastructure(failure):
        return 2
    return 0 if failure.kind in _SECONDARY else 1


def lost_task_manager(event: TaskManagerGone) -> FailureInfo:
    return FailureInfo(
        kind=OUT_OF_MEMORY if event.for_memory else "TaskManagerLost",
        text=f"TaskManager {event.resource_id} is lost: {event.cause}",
        lost_task_manager=event.resource_id,
    )


def lost_slot(slot: PooledSlot) -> FailureInfo:
    return FailureInfo(
        kind="SlotLost",
        text=(
            f"slot {slot.allocation_id} of TaskManager {slot.resource_id} was freed there "
            "before the TaskManager heard that the job takes it (taskmanager.slot.timeout)."
        ),
    )


def canceled_unasked(vertex: ExecutionVertex) -> FailureInfo:
    location = vertex.execution.location
    where = location.resource_id if location else "an unknown TaskManager"
    return FailureInfo(
        kind="TaskManagerLost",
        text=(
            f"{vertex} was cancelled on {where}, though the job did not ask for it: the "
            "TaskManager is shutting down."
        ),
        lost_task_manager=location.resource_id if location else None,
    )


def unexpected_report(
    vertex: ExecutionVertex, before: ExecutionState, reported: ExecutionState
) -> FailureInfo:
    return FailureInfo(
        kind="UnexpectedReport",
        text=(
            f"{vertex} (attempt {vertex.execution.attempt_id}) was {before}, but its "
            f"TaskManager reported {reported}. The two sides do not agree; see the story of "
            "the job."
        ),
    )


def no_resources(
    job_graph: JobGraph,
    settings: JobSettings,
    bulk: Bulk,
    slots_held: int,
    shortage: NotEnoughResources | None,
) -> FailureInfo:
    """Say what was asked for, what is there, and which setting to change."""
    asked = len(bulk.shared)
    missing = len(bulk.waits_for)
    tasks = ", ".join(str(vertex) for vertex in list(bulk.vertices.values())[:4])
    more = f" and {len(bulk.vertices) - 4} more" if len(bulk.vertices) > 4 else ""
    reason = f" The ResourceManager says: {shortage.reason}." if shortage else ""
    seconds = settings.slot_request_timeout_ms / 1000
    return FailureInfo(
        kind="NoResourceAvailable",
        text=(
            f"Slot request bulk is not fulfillable! Job '{job_graph.name}' asked for {asked} "
            f"slots for {len(bulk.vertices)} tasks ({tasks}{more}); {missing} of them did not "
            f"come within {seconds:g} s (slot.request.timeout), and the job holds "
            f"{slots_held} slots.{reason} Give the cluster more cores, lower "
            "parallelism.default, or raise taskmanager.numberOfTaskSlots."
        ),
    )
