"""Random functions give on scalars and tuples of them, without calls, what they give when they are called: value, class, errors."""

import os

import pytest

from penstock.runtime.row_functions.inlining import inlined
from penstock.runtime.row_functions.known_code import are_of_scalars
from penstock.runtime.row_functions.objects import ObjectFunction
from tests.tools.random_functions import Grammar, made
from tests.tools.runtime.same_values import are_same

MANY = int(os.environ.get("PENSTOCK_FUNCTIONS", "100000"))
PARTS = 40
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
    mapped = ObjectFunction(function, is_filter=is_filter)
    for part in (records, *([one] for one in records[:6])):
        got, expected = mapped.results(list(part)), outcomes(function, part)
        if is_filter and expected is not None:
            expected = outcomes(bool, expected)
        is_called = expected is None or not are_of_scalars(part)
        assert (got is None) is is_called, text
        assert got is None or are_same(got, expected), (text, part)
    return True


def _scalar(value):
    return tuple(value) if isinstance(value, list | dict) else value


def try_functions(seeds):
    """Returns how many ran without calls."""
    count = 0
    for seed in seeds:
        grammar = Grammar(seed)
        text, records = grammar.function("position"), grammar.records(8)
        if seed % 3:
            records = [tuple(map(_scalar, one)) for one in records]
        count += check(text, records, is_filter=bool(seed % 2))
    return count


def test_random_functions_give_the_same_on_objects():
    assert try_functions(range(70_000, 71_000)) > 500


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_random_functions_give_the_same_on_objects(part):
    count = MANY // PARTS
    first = 7_000_000 + part * count
    assert try_functions(range(first, first + count)) > count * 0.2
