"""Random functions give on columns what they give when they are called: value, class, sign of zero, NaN, error and its text."""

import os
import warnings
from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pytest

from penstock.engine.model.row import Row
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.partial_columns import DecodedColumns
from penstock.engine.runtime.row_functions.plans import Strategy, plan_of
from tests.tools import random_containers
from tests.tools.random_containers import ContainerGrammar
from tests.tools.random_functions import SCOPE, TYPE, Grammar, columns, made
from tests.tools.runtime.same_values import are_same

MANY = int(os.environ.get("PENSTOCK_FUNCTIONS", "100000"))
pytestmark = pytest.mark.usefixtures("little_memory")
PARTS = 40
STYLES = ("attribute", "item", "position")


def outcome(call, *given):
    """What a call returns or raises."""
    try:
        return call(*given)
    except Exception as error:
        return error


def first_result(plan, batch):
    return plan.results(batch)[0]


def difference(text, function, batch, plan, kind=TYPE):
    """The first record at which the plan differs from the function. Where the function raises it has to raise too: it is then called."""
    for place in range(len(batch)):
        one = batch.slice(place, place + 1)
        (record,) = to_rows(one, kind).values
        expected = outcome(function, record)
        if plan.strategy is Strategy.COLUMNS:
            got = outcome(first_result, plan, one)
            is_right = isinstance(expected, Exception) and isinstance(got, Exception)
        else:
            got = outcome(function, *plan.records(one))
            is_right = isinstance(expected, Exception) and (
                (type(got), str(got)) == (type(expected), str(expected))
            )
        if not (is_right or are_same(got, expected)):
            return f"{plan.strategy} {record}: expected {expected!r}, got {got!r}\n{text}"
    return None


def try_functions(seeds):
    """Returns how many functions ran with which strategy. Raises: AssertionError at a difference."""
    strategies = Counter()
    with warnings.catch_warnings():
        # Such as `1 is None`, which the grammar writes on purpose.
        warnings.simplefilter("ignore")
        for seed in seeds:
            grammar = Grammar(seed)
            text = grammar.function(STYLES[seed % len(STYLES)])
            function, batch = made(text), columns(grammar.records(8))
            plan = plan_of(function, batch.data.schema, TYPE)
            strategies[plan.strategy] += 1
            if plan.strategy is not Strategy.RECORDS:
                assert difference(text, function, batch, plan) is None
    return strategies


def test_random_functions_give_the_same_on_columns():
    strategies = try_functions(range(1200))
    # Else this would show little.
    assert strategies[Strategy.COLUMNS] > 960
    assert strategies[Strategy.FIELDS] > 3


def containers_in(value):
    """The ids of all lists, dicts and sets in a result, as often as they are there."""
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, list | dict | set):
        yield id(value)
    if isinstance(value, list | dict | tuple | Row):
        for part in parts:
            yield from containers_in(part)


def all_results(plan, batch):
    """The results of the batch, or of those records that have one."""
    results = outcome(plan.results, batch)
    if not isinstance(results, Exception):
        return results
    found = [outcome(first_result, plan, batch.slice(at, at + 1)) for at in range(len(batch))]
    return [one for one in found if not isinstance(one, Exception)]


def try_containers(seeds):
    """What a plan says is not shared need not be copied: no list is there twice, or known to somebody else.

    Returns how many functions ran with which strategy, how many of them share, and how many lists and dicts the others gave.
    """
    strategies, shared, held = Counter(), Counter(), 0
    outside = {id(SCOPE[name]) for name in ("LIMITS", "NAMES", "SEEN")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            grammar = ContainerGrammar(seed)
            text = grammar.function(STYLES[seed % len(STYLES)])
            function, batch = made(text), columns(grammar.records(8), random_containers.TYPE)
            plan = plan_of(function, batch.data.schema, random_containers.TYPE)
            strategies[plan.strategy] += 1
            if plan.strategy is Strategy.RECORDS:
                continue
            assert difference(text, function, batch, plan, random_containers.TYPE) is None
            shared[plan.is_shared] += 1
            if plan.strategy is Strategy.COLUMNS and not plan.is_shared:
                results = all_results(plan, batch)
                there = [one for result in results for one in containers_in(result)]
                held += len(there)
                assert len(set(there)) == len(there) and not outside & set(there), text
    return strategies, shared, held


def test_random_functions_of_lists_and_dicts_give_the_same_and_share_nothing():
    strategies, shared, held = try_containers(range(600))
    assert strategies[Strategy.COLUMNS] > 300
    assert shared[True] > 20 and shared[False] > 300 and held > 100


def decoded(batch):
    """The same records, with their fields as attributes of objects."""
    records = [SimpleNamespace(**one) for one in values_by_field(batch)]
    names = dict(enumerate(batch.schema.names))
    return DecodedColumns(Whole(batch), range(len(batch)), batch.schema, records, names)


def values_by_field(batch):
    return [dict(zip(batch.schema.names, row, strict=True)) for row in to_rows(batch, TYPE).values]


class Whole:
    def __init__(self, batch):
        self.batch = batch

    def columns(self, picked):
        return self.batch.data.take(pa.array(list(picked)))


def test_random_functions_give_the_same_on_decoded_records():
    strategies = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(9000, 9200):
            grammar = Grammar(seed)
            text = grammar.function(STYLES[seed % len(STYLES)])
            function, batch = made(text), decoded(columns(grammar.records(8)))
            plan = plan_of(function, batch.schema, TYPE)
            strategies[plan.strategy] += 1
            if plan.strategy is not Strategy.RECORDS:
                assert difference(text, function, batch, plan) is None
    assert strategies[Strategy.COLUMNS] > 150


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_random_functions_give_the_same_on_columns(part):
    count = MANY // PARTS
    first = 1_000_000 + part * count
    assert try_functions(range(first, first + count))[Strategy.COLUMNS] > count * 0.7


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0), (1, 1.0), (True, 1), ((0.0,), (-0.0,)), ([1], (1,)), (float("nan"), 0.0),
        ("1", 1), ({"a": 1}, {"a": True}), (None, False), ((1, 2), (1, 2, 3)),
    ],
)  # fmt: skip
def test_what_can_be_told_apart_is_not_the_same(one, other):
    assert not are_same(one, other)
    assert are_same(one, one)
    assert are_same(other, other)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_random_functions_of_lists_and_dicts_share_nothing(part):
    count = MANY // PARTS
    first = 3_000_000 + part * count
    strategies, shared, held = try_containers(range(first, first + count))
    print(f"{count} functions: {dict(strategies)}, {dict(shared)}, {held} lists and dicts")
    assert strategies[Strategy.COLUMNS] > count * 0.4
