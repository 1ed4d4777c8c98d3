"""What the error of a user's function keeps of the error that it is made of."""

import pytest

from penstock.engine.model.errors import (
    ExternalError,
    FinalError,
    RefusedForGood,
    UserError,
    may_recover,
)
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.runtime.keys.hashing import NoKeySet
from penstock.engine.runtime.task.user_errors import user_code_error

OPERATOR = ChainedOperator(1, "Map", "uid", object(), None, "program.py:9")


def marked():
    error = UserError("of one instance")
    error.is_recoverable = False
    return error


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (FinalError("refused"), False),
        (NoKeySet("in open()"), False),
        (marked(), False),
        (UserError("wait"), True),
        (ValueError("of the function"), True),
    ],
)
def test_what_no_restart_can_help_stays_so_when_a_function_has_met_it(error, helps):
    made = user_code_error(OPERATOR, None, error)
    assert made.is_recoverable is helps
    assert may_recover(made) is helps


@pytest.mark.parametrize(
    ("error", "helps"),
    [(ExternalError("gone"), True), (RefusedForGood("no rights"), False), (KeyError("x"), True)],
)
def test_what_is_refused_for_good_outside_is_final_too(error, helps):
    assert may_recover(error) is helps
