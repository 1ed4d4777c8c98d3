"""Random functions give on Python objects, without calls, what they give when they are called: value, class, order of operations, errors."""

import os

import pytest

from penstock.model.row import make_row
from penstock.runtime.row_functions.inlining import inlined
from penstock.runtime.row_functions.objects import ObjectFunction
from penstock.runtime.row_functions.runner import are_same
from tests.tools.random_functions import FIELDS, Grammar, made

MANY = int(os.environ.get("PENSTOCK_FUNCTIONS", "100000"))
PARTS = 40
STYLES = ("attribute", "item", "position")
pytestmark = [
    pytest.mark.usefixtures("little_memory"),
    # Such as `1 is None`, which the grammar writes on purpose.
    pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning"),
]


def outcomes(function, records):
    """What the function returns for all records; None: it raises at one."""
    try:
        return [function(record) for record in records]
    except Exception:
        return None


def check(text, records, is_filter):
    """Whether the function ran without calls. Raises: AssertionError: a result differs, or it does not raise where the function does."""
    function = made(text)
    if inlined(function).expression is None:
        return False
    lines = []
    mapped = ObjectFunction(function, "f", lines.append, is_filter=is_filter)
    for part in (records, *([one] for one in records[:6])):
        got, expected = mapped.results(list(part)), outcomes(function, part)
        if is_filter and expected is not None:
            expected = outcomes(bool, expected)
        assert (got is None) is (expected is None), text
        assert got is None or are_same(got, expected), (text, part)
    assert not lines, lines
    return True


def try_functions(seeds):
    """Returns how many ran without calls."""
    count = 0
    for seed in seeds:
        grammar, style = Grammar(seed), STYLES[seed % 3]
        text, records = grammar.function(style), grammar.records(8)
        if style != "position":
            records = [make_row(tuple(FIELDS), one) for one in records]
        count += check(text, records, is_filter=bool(seed % 2))
    return count


def test_random_functions_give_the_same_on_objects():
    assert try_functions(range(70_000, 71_000)) > 500


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_random_functions_give_the_same_on_objects(part):
    count = MANY // PARTS
    first = 7_000_000 + part * count
    assert try_functions(range(first, first + count)) > count * 0.4
