"""The table of attempts, by docs/spec/execution-graph.md#states-of-an-attempt: every square is
decided once.
"""

from itertools import product

import pytest

from penstock.engine.machines.execution.execution import (
    IMPOSSIBLE,
    STALE,
    TABLE,
    Consequence,
    ExecutionEvent,
    step,
)
from penstock.engine.model.errors import IllegalTransition
from penstock.engine.model.states import ExecutionState as S

E, C = ExecutionEvent, Consequence
REPORTS = [E.CANCEL, E.SUSPEND, E.REPORT_INITIALIZING, E.REPORT_RUNNING, E.REPORT_FINISHED,
           E.REPORT_CANCELED, E.FAIL, E.RESET]  # fmt: skip

# the table of docs/spec/execution-graph.md#states-of-an-attempt; "F": the task fails, "G": the job fails globally, "x": an error
SPEC = {
    S.CREATED: "CANCELED CANCELED F F F G FAILED x",
    S.SCHEDULED: "CANCELED CANCELED F F F G FAILED x",
    S.DEPLOYING: "CANCELING CANCELED INITIALIZING F FINISHED CANCELED FAILED x",
    S.INITIALIZING: "CANCELING CANCELED F RUNNING FINISHED CANCELED FAILED x",
    S.RUNNING: "CANCELING CANCELED F F FINISHED CANCELED FAILED x",
    S.CANCELING: "same CANCELED same same CANCELED CANCELED CANCELED x",
    S.FINISHED: "same same same same same G same CREATED",
    S.CANCELED: "same same same same same same same CREATED",
    S.FAILED: "same same same same same same same CREATED",
}


@pytest.mark.parametrize(("state", "event"), list(product(SPEC, REPORTS)))
def test_every_square_of_the_spec(state: S, event: E) -> None:
    wanted = SPEC[state].split()[REPORTS.index(event)]
    if wanted == "x":
        with pytest.raises(IllegalTransition, match=event.name):
            step("a1", state, event)
        return
    following, consequence = step("a1", state, event)
    if wanted in {"F", "G"}:
        assert following is state
        assert consequence is {"F": C.FAIL_TASK, "G": C.FAIL_GLOBALLY}[wanted]
    else:
        assert following is (state if wanted == "same" else S(wanted))


def test_no_square_is_decided_twice() -> None:
    assert not TABLE.keys() & STALE


def test_cancel_is_sent_only_where_something_runs() -> None:
    sent = {state for state in SPEC if step("a", state, E.CANCEL)[1] is C.SEND_CANCEL}
    assert sent == {S.DEPLOYING, S.INITIALIZING, S.RUNNING}


def test_cancelling_a_finished_attempt_releases_its_results() -> None:
    assert step("a", S.FINISHED, E.CANCEL) == (S.FINISHED, C.RELEASE_PARTITIONS)


def test_an_attempt_is_deployed_only_after_it_was_scheduled() -> None:
    assert step("a", S.CREATED, E.SCHEDULE)[0] is S.SCHEDULED
    assert step("a", S.SCHEDULED, E.DEPLOY)[0] is S.DEPLOYING
    with pytest.raises(IllegalTransition, match="takes only"):
        step("a", S.CREATED, E.DEPLOY)


def test_each_square_is_a_move_or_stale_or_impossible_and_only_one_of_them() -> None:
    squares = [*TABLE, *STALE, *IMPOSSIBLE]
    assert len(squares) == len(set(squares))
    assert set(squares) == set(product(S, E))
