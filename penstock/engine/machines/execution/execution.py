"""The states of one attempt of one subtask: a table of states and events.

Knows no clock, network, slot or graph. Source: Flink Execution, ExecutionState
(docs/spec/execution-graph.md#states-of-an-attempt); differs: what Flink does in the middle of a
transition is returned here as a consequence, which the caller carries out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import product
from typing import Final, TypeAlias

from penstock.engine.model.errors import IllegalTransition
from penstock.engine.model.states import ExecutionState


class ExecutionEvent(StrEnum):
    """What can happen to an attempt. `REPORT_*` come from its TaskManager."""

    SCHEDULE = "SCHEDULE"
    DEPLOY = "DEPLOY"
    CANCEL = "CANCEL"
    SUSPEND = "SUSPEND"
    REPORT_INITIALIZING = "REPORT_INITIALIZING"
    REPORT_RUNNING = "REPORT_RUNNING"
    REPORT_FINISHED = "REPORT_FINISHED"
    REPORT_CANCELED = "REPORT_CANCELED"
    FAIL = "FAIL"
    RESET = "RESET"


class Consequence(StrEnum):
    """What the caller must do beyond taking the new state."""

    NONE = "NONE"
    SEND_CANCEL = "SEND_CANCEL"
    FAIL_TASK = "FAIL_TASK"
    """An unexpected report: cancel the task there, and treat the attempt as failed here."""
    FAIL_GLOBALLY = "FAIL_GLOBALLY"
    """CANCELED was reported but not asked for: the two sides' states cannot be trusted."""
    RELEASE_PARTITIONS = "RELEASE_PARTITIONS"
    NEW_ATTEMPT = "NEW_ATTEMPT"


Square: TypeAlias = tuple[ExecutionState, Consequence]

_S, _E, _C = ExecutionState, ExecutionEvent, Consequence

_WAITING: Final = (_S.CREATED, _S.SCHEDULED)
_STARTED: Final = (_S.DEPLOYING, _S.INITIALIZING, _S.RUNNING)
_ENDED: Final = (_S.FINISHED, _S.CANCELED, _S.FAILED)
_RUNS: Final = (_E.REPORT_INITIALIZING, _E.REPORT_RUNNING)

# fmt: off
TABLE: Final[Mapping[tuple[ExecutionState, ExecutionEvent], Square]] = {
    (_S.CREATED, _E.SCHEDULE):                 (_S.SCHEDULED, _C.NONE),
    (_S.SCHEDULED, _E.DEPLOY):                 (_S.DEPLOYING, _C.NONE),
    (_S.DEPLOYING, _E.REPORT_INITIALIZING):    (_S.INITIALIZING, _C.NONE),
    (_S.INITIALIZING, _E.REPORT_RUNNING):      (_S.RUNNING, _C.NONE),
    # Unexpected reports change no state; the consequence handles them.
    **{square: (square[0], _C.FAIL_TASK) for square in (
        *product(_WAITING, (*_RUNS, _E.REPORT_FINISHED)), *product((_S.RUNNING,), _RUNS),
        (_S.DEPLOYING, _E.REPORT_RUNNING), (_S.INITIALIZING, _E.REPORT_INITIALIZING),
    )},
    **{(state, _E.REPORT_CANCELED): (state, _C.FAIL_GLOBALLY)
       for state in (*_WAITING, _S.FINISHED)},
    # The task ends by itself.
    **{(state, _E.REPORT_FINISHED): (_S.FINISHED, _C.NONE) for state in _STARTED},
    **{(state, _E.REPORT_CANCELED): (_S.CANCELED, _C.NONE) for state in _STARTED},
    **{(state, _E.FAIL): (_S.FAILED, _C.NONE) for state in (*_WAITING, *_STARTED)},
    # The task ends as asked.
    **{(state, _E.CANCEL): (_S.CANCELED, _C.NONE) for state in _WAITING},
    **{(state, _E.CANCEL): (_S.CANCELING, _C.SEND_CANCEL) for state in _STARTED},
    **{(_S.CANCELING, event): (_S.CANCELED, _C.NONE)
       for event in (_E.REPORT_FINISHED, _E.REPORT_CANCELED, _E.FAIL)},
    **{(state, _E.SUSPEND): (_S.CANCELED, _C.NONE)
       for state in (*_WAITING, *_STARTED, _S.CANCELING)},
    (_S.FINISHED, _E.CANCEL):                  (_S.FINISHED, _C.RELEASE_PARTITIONS),
    # Another attempt.
    **{(state, _E.RESET): (_S.CREATED, _C.NEW_ATTEMPT) for state in _ENDED},
}
STALE: Final = frozenset({  # Events that were right when sent, but are late when read.
    *product((_S.CANCELING,), (*_RUNS, _E.CANCEL)),
    *product(_ENDED, (*_RUNS, _E.REPORT_FINISHED, _E.FAIL, _E.SUSPEND)),
    *product((_S.CANCELED, _S.FAILED), (_E.CANCEL, _E.REPORT_CANCELED)),
})
IMPOSSIBLE: Final = frozenset({  # Events that are never right. Nothing enters RECONCILING.
    *((state, event) for state in _S for event in (_E.SCHEDULE, _E.DEPLOY, _E.RESET)),
    *((_S.RECONCILING, event) for event in _E),
}) - TABLE.keys()
# fmt: on


def step(who: object, state: ExecutionState, event: ExecutionEvent) -> Square:
    """Return the next state and the consequence. Raises IllegalTransition: the event can never be
    right in this state.
    """
    if (state, event) in STALE:
        return state, Consequence.NONE
    if (state, event) in IMPOSSIBLE:
        takes = ", ".join(e.name for s, e in TABLE if s is state) or "nothing"
        raise IllegalTransition(
            f"execution {who}: got {event.name} in {state.name}, which takes only {takes}. "
            "See the story of the job for what led to it."
        )
    return TABLE[state, event]
