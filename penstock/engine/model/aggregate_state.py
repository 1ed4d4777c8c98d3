"""One state for all subtasks of a job vertex, as the dashboard shows it. Pure.

Source: Flink ExecutionJobVertex.getAggregateJobVertexState
(docs/spec/execution-graph.md#state-of-a-vertex).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.engine.model.states import ExecutionState

_S = ExecutionState
_LOUDEST_FIRST: Final = (_S.FAILED, _S.CANCELING, _S.CANCELED, _S.INITIALIZING, _S.RUNNING)


def aggregate_state(counts: Mapping[ExecutionState, int]) -> ExecutionState:
    """Return the most alarming state of any subtask; FINISHED when all are, RUNNING when some are;
    else CREATED.

    `counts`: subtasks by state.
    """
    for state in _LOUDEST_FIRST:
        if counts.get(state, 0):
            return state
    finished = counts.get(_S.FINISHED, 0)
    if not finished:
        return _S.CREATED
    return _S.FINISHED if finished == sum(counts.values()) else _S.RUNNING
