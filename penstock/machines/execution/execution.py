"""Life of one attempt of one subtask: a table of states and events.

Knows no clock, network, slot or graph. Source: Flink Execution, ExecutionState (spec 7.2); differs:
what Flink does in the middle of a transition is named here as a consequence for the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import product
from typing import Final, TypeAlias

from penstock.model.errors import IllegalTransition
from penstock.model.states import ExecutionState


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
    """CANCELED without a cancellation in progress: states of the two sides cannot be trusted."""
    RELEASE_PARTITIONS = "RELEASE_PARTITIONS"
    NEW_ATTEMPT = "NEW_ATTEMPT"


Square: TypeAlias = tuple[ExecutionState, Consequence]

_S, _E, _C = ExecutionState, ExecutionEvent, Consequence
_REPORTS: Final = (_E.REPORT_INITIALIZING, _E.REPORT_RUNNING, _E.REPORT_FINISHED)

# fmt: off
TABLE: Final[Mapping[tuple[ExecutionState, ExecutionEvent], Square]] = {
    (_S.CREATED, _E.SCHEDULE):                (_S.SCHEDULED, _C.NONE),
    (_S.SCHEDULED, _E.DEPLOY):                (_S.DEPLOYING, _C.NONE),
    (_S.DEPLOYING, _E.REPORT_INITIALIZING):   (_S.INITIALIZING, _C.NONE),
    (_S.INITIALIZING, _E.REPORT_RUNNING):     (_S.RUNNING, _C.NONE),
    # the unexpected: the report changes nothing, its consequence does
    **{(state, report): (state, _C.FAIL_TASK)
       for state, report in product((_S.CREATED, _S.SCHEDULED), _REPORTS)},
    (_S.DEPLOYING, _E.REPORT_RUNNING):        (_S.DEPLOYING, _C.FAIL_TASK),
    (_S.INITIALIZING, _E.REPORT_INITIALIZING): (_S.INITIALIZING, _C.FAIL_TASK),
    (_S.RUNNING, _E.REPORT_INITIALIZING):     (_S.RUNNING, _C.FAIL_TASK),
    (_S.RUNNING, _E.REPORT_RUNNING):          (_S.RUNNING, _C.FAIL_TASK),
    (_S.CREATED, _E.REPORT_CANCELED):         (_S.CREATED, _C.FAIL_GLOBALLY),
    (_S.SCHEDULED, _E.REPORT_CANCELED):       (_S.SCHEDULED, _C.FAIL_GLOBALLY),
    (_S.FINISHED, _E.REPORT_CANCELED):        (_S.FINISHED, _C.FAIL_GLOBALLY),
    # the end, by itself
    **{(state, _E.REPORT_FINISHED): (_S.FINISHED, _C.NONE)
       for state in (_S.DEPLOYING, _S.INITIALIZING, _S.RUNNING)},
    **{(state, _E.REPORT_CANCELED): (_S.CANCELED, _C.NONE)
       for state in (_S.DEPLOYING, _S.INITIALIZING, _S.RUNNING)},
    **{(state, _E.FAIL): (_S.FAILED, _C.NONE)
       for state in (_S.CREATED, _S.SCHEDULED, _S.DEPLOYING, _S.INITIALIZING, _S.RUNNING)},
    # the end, as wished
    **{(state, _E.CANCEL): (_S.CANCELED, _C.NONE) for state in (_S.CREATED, _S.SCHEDULED)},
    **{(state, _E.CANCEL): (_S.CANCELING, _C.SEND_CANCEL)
       for state in (_S.DEPLOYING, _S.INITIALIZING, _S.RUNNING)},
    **{(_S.CANCELING, event): (_S.CANCELED, _C.NONE)
       for event in (_E.REPORT_FINISHED, _E.REPORT_CANCELED, _E.FAIL)},
    **{(state, _E.SUSPEND): (_S.CANCELED, _C.NONE)
       for state in (_S.CREATED, _S.SCHEDULED, _S.DEPLOYING, _S.INITIALIZING, _S.RUNNING,
                     _S.CANCELING)},
    (_S.FINISHED, _E.CANCEL):                 (_S.FINISHED, _C.RELEASE_PARTITIONS),
    # again
    **{(state, _E.RESET): (_S.CREATED, _C.NEW_ATTEMPT)
       for state in (_S.FINISHED, _S.CANCELED, _S.FAILED)},
}
STALE: Final = frozenset({  # right when sent, late when read
    *product((_S.CANCELED, _S.FAILED),
             (*_REPORTS, _E.REPORT_CANCELED, _E.FAIL, _E.CANCEL, _E.SUSPEND)),
    *product((_S.FINISHED,), (*_REPORTS, _E.FAIL, _E.SUSPEND)),
    *product((_S.CANCELING,), (_E.CANCEL, _E.REPORT_INITIALIZING, _E.REPORT_RUNNING)),
})
# fmt: on


def step(who: object, state: ExecutionState, event: ExecutionEvent) -> Square:
    """Next state and what follows from it. Raises IllegalTransition for what can never be right."""
    if (state, event) in STALE:
        return state, Consequence.NONE
    square = TABLE.get((state, event))
    if square is None:
        takes = ", ".join(e.name for s, e in TABLE if s is state) or "nothing"
        raise IllegalTransition(
            f"execution {who}: got {event.name} in {state.name}, which takes only {takes}. "
            "The story of the job tells who sent it."
        )
    return square
