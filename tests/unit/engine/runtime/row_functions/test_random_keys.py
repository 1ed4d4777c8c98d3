"""Random key selectors give on columns what they give when they are called: value, class, order, error and its text."""

import os
import traceback

import pytest

from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.row_functions.plans import Strategy, plan_of
from tests.tools.random_functions import TYPE, Grammar, columns, made
from tests.tools.runtime.same_values import are_same

MANY = int(os.environ.get("PENSTOCK_FUNCTIONS", "100000"))
PARTS = 40
STYLES = ("attribute", "item", "position")
pytestmark = [
    pytest.mark.usefixtures("little_memory"),
    # Such as `1 is None`, which the grammar writes on purpose.
    pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning"),
]


def outcome(call, *given):
    """What a call returns, or the class, text and lines of its error."""
    try:
        return call(*given)
    except Exception as error:
        lines = [
            (frame.lineno, frame.colno, frame.end_colno)
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == "<random function>"
        ]
        return type(error), str(error), lines


def check_keys(text, grammar):
    """Whether the selector of this text was computed. Raises: AssertionError: a key, or an error, differs."""
    function, batch = made(text), columns(grammar.records(8))
    if plan_of(function, batch.schema, TYPE).strategy is not Strategy.COLUMNS:
        # It is called, and may change what all random functions share.
        return False
    computed, called = (KeySelection(function, input_type=TYPE) for _ in range(2))
    called.computed.turn_off()
    parts = [batch.slice(count, count + 1) for count in range(len(batch))]
    for part in (*parts, batch):
        got, expected = (outcome(one.keys_of, part) for one in (computed, called))
        assert are_same(got, expected), (text, got, expected)
    return True


def try_selectors(seeds):
    """Returns how many were computed."""
    count = 0
    for seed in seeds:
        grammar = Grammar(seed)
        count += check_keys(grammar.function(STYLES[seed % 3]), grammar)
    return count


def test_random_key_selectors_give_the_same_on_columns():
    assert try_selectors(range(10_000, 10_300)) > 130


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_random_key_selectors_give_the_same(part):
    count = MANY // PARTS // 2
    first = 3_000_000 + part * count
    assert try_selectors(range(first, first + count)) > count * 0.4
