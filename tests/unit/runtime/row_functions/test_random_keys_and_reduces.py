"""Random key selectors and reduce functions give without calls what they give when they are called: value, class, order, error and its text."""

import os
import traceback
from itertools import pairwise

import pytest

from penstock.model.row import make_row
from penstock.runtime.codecs.convert import to_rows
from penstock.runtime.keys import KeySelection
from penstock.runtime.records.emissions import own_copy
from penstock.runtime.row_functions.inlining import inlined
from penstock.runtime.row_functions.reducing import Fed, Reducing
from tests.tools.logged_objects import Logged, told
from tests.tools.random_functions import FIELDS, TYPE, Grammar, columns, made
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


def check_keys(text, grammar, style):
    """Whether the selector of this text was computed from rows. Raises: AssertionError: a key, or an error, differs."""
    function, records = made(text), grammar.records(8)
    if inlined(function).expression is None:
        # It is called, and may change what all random functions share.
        return False
    batch = columns(records)
    rows = records if style == "position" else to_rows(batch, TYPE).values
    computed, called = (KeySelection(function, input_type=TYPE) for _ in range(2))
    called.computed.turn_off()
    for count in range(1, len(rows) + 1):
        some = rows[count - 1 : count]
        got, expected = (outcome(one.keys_of_rows, list(some)) for one in (computed, called))
        assert are_same(got, expected), (text, some, got, expected)
        part = batch.slice(count - 1, count)
        got, expected = (outcome(one.keys_of, part) for one in (computed, called))
        assert are_same(got, expected), (text, some, got, expected)
    got, expected = (outcome(one.keys_of_rows, list(rows)) for one in (computed, called))
    assert are_same(got, expected), text
    return True


def try_selectors(seeds):
    """Returns how many ran without calls."""
    count = 0
    for seed in seeds:
        grammar, style = Grammar(seed), STYLES[seed % 3]
        count += check_keys(grammar.function(style), grammar, style)
    return count


def reduced_by_calls(function, skeys, values):
    """The values after each record, and what went wrong at which one: what the operator is to do."""
    table, results, errors = {}, [], []
    for place, (skey, value) in enumerate(zip(skeys, values, strict=True)):
        if skey not in table:
            table[skey] = value
            results.append(value)
            continue
        got = outcome(function, table[skey], value)
        if type(got) is tuple and got[:1] and isinstance(got[0], type) and len(got) == 3:
            errors.append((place, got))
            continue
        table[skey] = got
        results.append(got)
    return table, results, errors


def reduced(reducing, function, skeys, values, own):
    table, results, errors = {}, [], []
    position = iter(range(len(values)))
    places = []

    def records():
        for skey, value, place in zip(skeys, values, position, strict=True):
            places.append(place)
            yield skey, value

    def put_aside(error):
        errors.append((places[-1], outcome(raised, error)))

    reducing.run(Fed(len(values), records(), table, results, own, function, put_aside))
    return table, results, errors


def raised(error):
    raise error


def ran_out(run):
    """Whether there was no memory for a text. Where two runs differ in that, it was what else they held."""
    return any(kind is MemoryError for _place, (kind, *_others) in run[2])


def check_reduce(text, grammar, style):
    """Whether the function ran without calls. Raises: AssertionError: a result, the state, or an error differs."""
    function, records = made(text), grammar.records(24)
    if inlined(function, 2).expression is None:
        return False
    values = records
    if style != "position":
        values = [make_row(tuple(FIELDS), one) for one in records]
    skeys = [grammar.random.randrange(3) for _ in values]
    reducing = Reducing(function, None, is_on=True)
    expected = reduced_by_calls(function, skeys, values)
    for own in (None, own_copy):
        got = reduced(reducing, function, skeys, values, own)
        if ran_out(expected) or ran_out(got):
            return False
        assert are_same(list(got[0].items()), list(expected[0].items())), text
        assert are_same(got[1], expected[1]), text
        assert are_same(got[2], expected[2]), text
    return True


def try_reduces(seeds):
    count = 0
    for seed in seeds:
        grammar, style = Grammar(seed), STYLES[seed % 3]
        count += check_reduce(grammar.reduce(style), grammar, style)
    return count


def test_random_key_selectors_give_the_same_without_calls():
    assert try_selectors(range(10_000, 10_300)) > 130


def test_random_reduces_give_the_same_without_calls():
    assert try_reduces(range(20_000, 20_300)) > 150


def logs_of(calls, count, seed):
    """What each call does with objects that log it, with what it gives."""
    found = []
    for call in calls:
        log = []
        given = [Logged(log, f"{name}{seed}") for name in ("r", "q")[:count]]
        try:
            gives = call(*given)
        except Exception as error:
            gives = str(error)
        found.append((log.copy(), told(gives)))
    return found


def test_on_objects_of_any_class_the_same_operations_run_in_the_same_order():
    """Up to the one that fails: behind it, the function is called."""
    compared = 0
    for seed in range(30_000, 30_600):
        grammar, style = Grammar(seed), STYLES[seed % 3]
        count = 1 + seed % 2
        text = grammar.function(style) if count == 1 else grammar.reduce(style)
        function = made(text)
        plan = inlined(function, count)
        if plan.expression is None:
            continue
        parameters = ", ".join(f"c{index}" for index in range(count))
        body = plan.expression.in_function(
            f"def run({parameters}):\n    return {plan.expression.text}\n", "<body>"
        )
        calls, bodies = logs_of((function, body), count, seed)
        assert bodies[0] == calls[0], text
        compared += len(calls[0]) > 1
    assert compared > 150


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_random_key_selectors_and_reduces_give_the_same(part):
    count = MANY // PARTS // 2
    first = 3_000_000 + part * count
    assert try_selectors(range(first, first + count)) > count * 0.4
    assert try_reduces(range(first, first + count)) > count * 0.4


def test_the_fields_of_reduces_are_read_in_every_style():
    texts = [Grammar(seed).reduce(style) for seed in range(20) for style in STYLES]
    for read in ("r.a", "q.a", "r['a']", "q['a']", "r[0]", "q[0]"):
        assert any(read in text for text in texts), read
    assert all(one != other for one, other in pairwise(texts))
