"""Which tasks take part in a checkpoint: which are triggered, waited for, and told of its end.

Knows no checkpoint. Source: Flink DefaultCheckpointPlanCalculator, CheckpointPlan
(docs/spec/checkpoints.md#coordinator, #finished-tasks). Differs: the running producers of a group
of consumers are looked up once for the whole group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.execution.execution_graph import (
    ConsumedPartitionGroup,
    ExecutionGraph,
    ExecutionVertex,
)
from penstock.engine.model.checkpoints import SubtaskState
from penstock.engine.model.ids import AttemptId, ExecutionVertexId
from penstock.engine.model.states import ExecutionState


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """`triggered`: run and have no running producer. `running`: must acknowledge, and are told of
    the end.

    `finished`: had ended before the plan was made. `ended`: the states of those of them whose output is not committed yet.
    """

    triggered: tuple[ExecutionVertex, ...]
    running: dict[AttemptId, ExecutionVertex]
    finished: frozenset[ExecutionVertexId]
    ended: Mapping[AttemptId, SubtaskState] = field(default_factory=dict)


def plan_of(graph: ExecutionGraph, settings: CheckpointSettings) -> CheckpointPlan | str:
    """Return the plan; or, as text, why no checkpoint is possible now.

    Every task must be RUNNING, or FINISHED where that is allowed.
    """
    finished: set[ExecutionVertexId] = set()
    running: dict[AttemptId, ExecutionVertex] = {}
    ended: dict[AttemptId, SubtaskState] = {}
    for vertex in graph.vertices:
        state = vertex.state
        if state is ExecutionState.RUNNING:
            running[vertex.execution.attempt_id] = vertex
        elif state is not ExecutionState.FINISHED:
            return f"task {vertex} is {state}, not RUNNING"
        elif not settings.are_finished_tasks_allowed:
            return (
                f"task {vertex} is FINISHED, and 'execution.checkpointing."
                "checkpoints-after-tasks-finish' is off"
            )
        else:
            finished.add(vertex.vertex_id)
            if vertex.execution.final_state is not None:
                ended[vertex.execution.attempt_id] = vertex.execution.final_state
    if not running:
        return "all tasks are FINISHED"
    has_running: dict[int, bool] = {}
    triggered = tuple(
        vertex
        for vertex in running.values()
        if not any(_has_running(group, has_running) for group in vertex.consumed_groups)
    )
    return CheckpointPlan(triggered, running, frozenset(finished), ended)


def _has_running(group: ConsumedPartitionGroup, known: dict[int, bool]) -> bool:
    found = known.get(id(group))
    if found is None:
        known[id(group)] = found = any(
            partition.producer.state is ExecutionState.RUNNING for partition in group.partitions
        )
    return found
