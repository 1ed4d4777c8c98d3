"""The states of one attempt of one subtask: a table of states and events.

Knows no clock, network, slot or graph. Source: Flink Execution, ExecutionState
(docs/spec/execution-graph.md#states-of-an-attempt); differs: what Flink does in the middle of a
transition is returned here as a consequence, which the caller carries out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
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

# fmt: off
TABLE: Final[Mapping[tuple[ExecutionState, ExecutionEvent], Square]] = {
    (_S.CREATED, _E.SCHEDULE):                 (_S.SCHEDULED, _C.NONE),
    (_S.SCHEDULED, _E.DEPLOY):                 (_S.DEPLOYING, _C.NONE),
    (_S.DEPLOYING, _E.REPORT_INITIALIZING):    (_S.INITIALIZING, _C.NONE),
    (_S.INITIALIZING, _E.REPORT_RUNNING):      (_S.RUNNING, _C.NONE),
    # Unexpected reports change no state; the consequence handles them.
    (_S.CREATED, _E.REPORT_INITIALIZING):      (_S.CREATED, _C.FAIL_TASK),
    (_S.CREATED, _E.REPORT_RUNNING):           (_S.CREATED, _C.FAIL_TASK),
    (_S.CREATED, _E.REPORT_FINISHED):          (_S.CREATED, _C.FAIL_TASK),
    (_S.SCHEDULED, _E.REPORT_INITIALIZING):    (_S.SCHEDULED, _C.FAIL_TASK),
    (_S.SCHEDULED, _E.REPORT_RUNNING):         (_S.SCHEDULED, _C.FAIL_TASK),
    (_S.SCHEDULED, _E.REPORT_FINISHED):        (_S.SCHEDULED, _C.FAIL_TASK),
    (_S.DEPLOYING, _E.REPORT_RUNNING):         (_S.DEPLOYING, _C.FAIL_TASK),
    (_S.INITIALIZING, _E.REPORT_INITIALIZING): (_S.INITIALIZING, _C.FAIL_TASK),
    (_S.RUNNING, _E.REPORT_INITIALIZING):      (_S.RUNNING, _C.FAIL_TASK),
    (_S.RUNNING, _E.REPORT_RUNNING):           (_S.RUNNING, _C.FAIL_TASK),
    (_S.CREATED, _E.REPORT_CANCELED):          (_S.CREATED, _C.FAIL_GLOBALLY),
    (_S.SCHEDULED, _E.REPORT_CANCELED):        (_S.SCHEDULED, _C.FAIL_GLOBALLY),
    (_S.FINISHED, _E.REPORT_CANCELED):         (_S.FINISHED, _C.FAIL_GLOBALLY),
    # The task ends by itself.
    (_S.DEPLOYING, _E.REPORT_FINISHED):        (_S.FINISHED, _C.NONE),
    (_S.INITIALIZING, _E.REPORT_FINISHED):     (_S.FINISHED, _C.NONE),
    (_S.RUNNING, _E.REPORT_FINISHED):          (_S.FINISHED, _C.NONE),
    (_S.DEPLOYING, _E.REPORT_CANCELED):        (_S.CANCELED, _C.NONE),
    (_S.INITIALIZING, _E.REPORT_CANCELED):     (_S.CANCELED, _C.NONE),
    (_S.RUNNING, _E.REPORT_CANCELED):          (_S.CANCELED, _C.NONE),
    (_S.CREATED, _E.FAIL):                     (_S.FAILED, _C.NONE),
    (_S.SCHEDULED, _E.FAIL):                   (_S.FAILED, _C.NONE),
    (_S.DEPLOYING, _E.FAIL):                   (_S.FAILED, _C.NONE),
    (_S.INITIALIZING, _E.FAIL):                (_S.FAILED, _C.NONE),
    (_S.RUNNING, _E.FAIL):                     (_S.FAILED, _C.NONE),
    # The task ends as asked.
    (_S.CREATED, _E.CANCEL):                   (_S.CANCELED, _C.NONE),
    (_S.SCHEDULED, _E.CANCEL):                 (_S.CANCELED, _C.NONE),
    (_S.DEPLOYING, _E.CANCEL):                 (_S.CANCELING, _C.SEND_CANCEL),
    (_S.INITIALIZING, _E.CANCEL):              (_S.CANCELING, _C.SEND_CANCEL),
    (_S.RUNNING, _E.CANCEL):                   (_S.CANCELING, _C.SEND_CANCEL),
    (_S.CANCELING, _E.REPORT_FINISHED):        (_S.CANCELED, _C.NONE),
    (_S.CANCELING, _E.REPORT_CANCELED):        (_S.CANCELED, _C.NONE),
    (_S.CANCELING, _E.FAIL):                   (_S.CANCELED, _C.NONE),
    (_S.CREATED, _E.SUSPEND):                  (_S.CANCELED, _C.NONE),
    (_S.SCHEDULED, _E.SUSPEND):                (_S.CANCELED, _C.NONE),
    (_S.DEPLOYING, _E.SUSPEND):                (_S.CANCELED, _C.NONE),
    (_S.INITIALIZING, _E.SUSPEND):             (_S.CANCELED, _C.NONE),
    (_S.RUNNING, _E.SUSPEND):                  (_S.CANCELED, _C.NONE),
    (_S.CANCELING, _E.SUSPEND):                (_S.CANCELED, _C.NONE),
    (_S.FINISHED, _E.CANCEL):                  (_S.FINISHED, _C.RELEASE_PARTITIONS),
    # Repeated events.
    (_S.FINISHED, _E.RESET):                   (_S.CREATED, _C.NEW_ATTEMPT),
    (_S.CANCELED, _E.RESET):                   (_S.CREATED, _C.NEW_ATTEMPT),
    (_S.FAILED, _E.RESET):                     (_S.CREATED, _C.NEW_ATTEMPT),
}
STALE: Final = frozenset({  # Events that were right when sent, but are late when read.
    (_S.CANCELING, _E.CANCEL), (_S.CANCELING, _E.REPORT_INITIALIZING),
    (_S.CANCELING, _E.REPORT_RUNNING),
    (_S.FINISHED, _E.SUSPEND), (_S.FINISHED, _E.REPORT_INITIALIZING),
    (_S.FINISHED, _E.REPORT_RUNNING), (_S.FINISHED, _E.REPORT_FINISHED), (_S.FINISHED, _E.FAIL),
    (_S.CANCELED, _E.CANCEL), (_S.CANCELED, _E.SUSPEND), (_S.CANCELED, _E.REPORT_INITIALIZING),
    (_S.CANCELED, _E.REPORT_RUNNING), (_S.CANCELED, _E.REPORT_FINISHED),
    (_S.CANCELED, _E.REPORT_CANCELED), (_S.CANCELED, _E.FAIL),
    (_S.FAILED, _E.CANCEL), (_S.FAILED, _E.SUSPEND), (_S.FAILED, _E.REPORT_INITIALIZING),
    (_S.FAILED, _E.REPORT_RUNNING), (_S.FAILED, _E.REPORT_FINISHED),
    (_S.FAILED, _E.REPORT_CANCELED), (_S.FAILED, _E.FAIL),
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
