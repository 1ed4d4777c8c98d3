"""The data of a task and of a result of the simulated TaskManagers. Knows no TaskManager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from penstock.engine.model.deployment import ShuffleDescriptor, TaskDeployment
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, ResourceId, ResultPartitionId
from penstock.engine.model.messages import AcknowledgeCheckpoint, FailureInfo
from penstock.engine.model.states import ExecutionState


class TaskOwner(Protocol):
    """The TaskManager that a task runs in."""

    resource_id: ResourceId

    def after(self, delay_ms: int, kind: str, call: Callable[[], None]) -> None: ...
    def can_reach(self, resource_id: ResourceId) -> bool: ...
    def task_runs(self, task: SimTask) -> None: ...
    def end_task(
        self, task: SimTask, state: ExecutionState, failure: FailureInfo | None = None
    ) -> None: ...
    def snapshot_taken(self, task: SimTask, message: AcknowledgeCheckpoint) -> None: ...
    def wait_for_final_checkpoint(self, task: SimTask) -> None: ...


@dataclass(eq=False, slots=True)
class SimTask:
    """One attempt in a TaskManager. `open`: pipelined inputs that have more data. `unread`: inputs
    that have not ended yet.

    `held_at`: the checkpoint behind which it waits for another generation. `holds`: those whose barriers tell it to. `aborted`: the newest checkpoint that it has heard the abort of.

    `final_checkpoint`: the first checkpoint that began at the task's end. `is_covered`: it or a
    later one is complete, or none is needed.
    """

    deployment: TaskDeployment
    host: TaskOwner
    state: ExecutionState = ExecutionState.DEPLOYING
    is_cancelled: bool = False
    is_at_end: bool = False
    is_covered: bool = False
    final_checkpoint: int | None = None
    open: dict[ResultPartitionId, None] = field(default_factory=dict)
    unread: dict[ResultPartitionId, None] = field(default_factory=dict)
    missing: dict[ResultPartitionId, None] = field(default_factory=dict)
    barriers: dict[int, set[ResultPartitionId]] = field(default_factory=dict)
    last_checkpoint: int = -1
    held_at: int | None = None
    holds: set[int] = field(default_factory=set)
    aborted: int = -1
    has_put_off_end: bool = False

    @property
    def attempt_id(self) -> AttemptId:
        return self.deployment.attempt_id

    def inputs(self) -> Iterator[tuple[ShuffleDescriptor, ResultPartitionType]]:
        for gate in self.deployment.gates:
            for channel in gate.channels:
                yield channel, gate.result_type

    def outputs(self) -> Iterator[tuple[ResultPartitionId, ResultPartitionType, int]]:
        for made in self.deployment.partitions:
            result_id = ResultPartitionId(made.partition_id, self.attempt_id)
            yield result_id, made.result_type, made.subpartitions


@dataclass(eq=False, slots=True)
class SimResult:
    """A result partition in its TaskManager. `readers`: attempts that have connected. `has_read`:
    vertices that have read it completely.
    """

    result_id: ResultPartitionId
    result_type: ResultPartitionType
    subpartitions: int
    host: TaskOwner
    producer: SimTask
    is_complete: bool = False
    readers: dict[AttemptId, SimTask] = field(default_factory=dict)
    has_read: set[ExecutionVertexId] = field(default_factory=set)
