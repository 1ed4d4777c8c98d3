"""One state of many, by docs/spec/execution-graph.md#state-of-a-vertex."""

import pytest

from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import aggregate_state


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({S.RUNNING: 3, S.FAILED: 1, S.CANCELING: 1}, S.FAILED),
        ({S.RUNNING: 3, S.CANCELING: 1, S.CANCELED: 1}, S.CANCELING),
        ({S.RUNNING: 3, S.CANCELED: 1}, S.CANCELED),
        ({S.RUNNING: 3, S.INITIALIZING: 1}, S.INITIALIZING),
        ({S.RUNNING: 1, S.FINISHED: 3}, S.RUNNING),
        ({S.FINISHED: 2}, S.FINISHED),
        ({S.FINISHED: 1, S.SCHEDULED: 1}, S.RUNNING),
        ({S.CREATED: 1, S.SCHEDULED: 1, S.DEPLOYING: 1}, S.CREATED),
        ({}, S.CREATED),
    ],
)
def test_the_most_alarming_state_counts(counts, expected) -> None:
    assert aggregate_state(counts) is expected
