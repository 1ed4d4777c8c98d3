"""A reduce of a BATCH job gives what it gives without combining before the exchange, whatever its function is.

The functions come from a grammar: each field of the result is an expression over the fields of both records. Built-in aggregates, marked
functions and functions that are proven by reading combine; of these the law is that nothing changes, where marked ones keep their
promise. Sums of floats are left out for aggregates: there the order of additions shows in the last digit.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.engine.runtime.codecs.convert import to_columns, to_rows
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators.reduce import KeyedAggregateOperator, ReduceOperator
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.same_values import are_same

NAMES = ["key", "n", "m", "text"]
KINDS = [Types.STRING(), Types.LONG(), Types.INT(), Types.STRING()]
TUPLE, ROW = Types.TUPLE(KINDS), Types.ROW_NAMED(NAMES, KINDS)
NUMBERS = st.sampled_from([0, 1, 2, -3, 99, 100, 101, 2**31 - 1])
RECORDS = st.tuples(
    st.sampled_from("abc"), NUMBERS, NUMBERS, st.sampled_from(["", "x", "yy", "x" * 9])
)
ODD = st.tuples(
    st.sampled_from("ab"),
    NUMBERS | st.sampled_from([None, 2**40]),
    st.none() | NUMBERS,
    st.none() | st.just("x"),
)
ASSOCIATIVE = [
    *("a[{i}]", "b[{i}]", "a[{i}] + b[{i}]", "b[{i}] + a[{i}]", "min(a[{i}], b[{i}])"),
    *("max(b[{i}], a[{i}])", "min(b[{i}], a[{i}])"),
]
OTHERS = [
    *("a[{i}] + 1", "a[{i}] + (b[{i}] if b[{i}] < 100 else 0)", "min(a[{i}] + b[{i}], 150)"),
    *("b[{i}] if b[{i}] > a[{i}] else a[{i}]", "a[{i}] if a[1] < 3 else b[{i}]", "a[{i}] - b[{i}]"),
    *("a[{i}] * b[{i}]", "a[{i}] + b[{i}] * 2", "a[{i}] ^ b[{i}]", "a[1] + b[1]", "a[2]", "7"),
    *("a[{i}] if a[2] <= b[2] else b[{i}]", "max(a[{i}], b[{i}], 5)", "a[{i}] | b[{i}]"),
]
TEXTS = [
    *("a[3]", "b[3]", "a[3] + b[3]", "b[3] + a[3]", "(a[3] + b[3])[:4]", "min(a[3], b[3])"),
    *("a[3] if len(a[3]) >= len(b[3]) else b[3]", "a[3] + 'z'", "a[0] + b[3]"),
]


@st.composite
def functions(draw):
    """The fields of any reduce."""
    numbers = st.sampled_from(ASSOCIATIVE + OTHERS)
    return [
        "a[0]",
        draw(numbers).format(i=1),
        draw(numbers).format(i=2),
        draw(st.sampled_from(TEXTS)),
    ]


@st.composite
def associative(draw):
    """The fields of a reduce that gives the same however the records are grouped."""
    numbers = st.sampled_from(ASSOCIATIVE)
    texts = st.sampled_from(TEXTS[:3])
    return ["a[0]", draw(numbers).format(i=1), draw(numbers).format(i=2), draw(texts)]


def reduce_of(fields, is_row):
    made = ", ".join(f"{name}={text}" for name, text in zip(NAMES, fields, strict=True))
    result = f"Row({made})" if is_row else f"({', '.join(fields)})"
    return eval(f"lambda a, b: {result}", {"Row": Row})


@st.composite
def inputs(draw, *, odd=False):
    """The batches of each of some tasks before the exchange: (as columns, records, how often, timestamp). `odd`: some numbers are missing."""
    batch = st.tuples(
        st.booleans(),
        st.lists(RECORDS | ODD if odd else RECORDS, min_size=1, max_size=6),
        st.sampled_from([1, 30]),
        st.sampled_from([None, None, None, 5]),
    )
    return draw(st.lists(st.lists(batch, max_size=4), min_size=1, max_size=2))


def made(kind, as_columns, records, times, stamp):
    if kind is ROW or kind is None:
        records = [Row(**dict(zip(NAMES, record, strict=True))) for record in records]
    batch = RowBatch(list(records) * times)
    if stamp is not None:
        batch = RowBatch(batch.values, np.full(len(batch), stamp))
    return to_columns(batch, kind) if as_columns and kind is not None else batch


def results(operator, batches, kind):
    harness = OperatorHarness(operator, input_types=(kind,), is_batch=True)
    for batch in batches:
        harness.feed_batch(batch)
    harness.take(operator.finish())
    return harness.elements


def sent(batches, kind):
    """What arrives after an exchange of this type."""
    if kind is None:
        return batches
    whole = [b if not isinstance(b, RowBatch) else to_columns(b, kind) for b in batches]
    return [to_rows(batch, kind) for batch in whole]


def check(make, kind, tasks):
    """Returns: whether records of this type are combined."""
    tasks = [[made(kind, *one) for one in task] for task in tasks]
    if make().in_batch().before_exchange() is None:
        return False
    final = make().in_batch()
    both = [
        outcome(lambda: combined(make, kind, tasks), kind),
        outcome(lambda: results(final, sent(sum(tasks, []), kind), kind), kind),
    ]
    assert are_same(*both), both
    return True


def combined(make, kind, tasks):
    combining = make().in_batch().before_exchange()
    parts, kept = [], kind if combining.keeps_type else None
    for task in tasks:
        partial = make().in_batch().before_exchange().partial
        parts += sent(results(partial, task, kind), kept)
    return results(combining.final, parts, kept)


def outcome(run, kind):
    """The results, or the error that ends the job."""
    try:
        batches = run()
    except TypeError as error:
        return [str(error)]
    return sorted((value for batch in batches for value in rows(batch, kind)), key=repr)


def rows(batch, kind):
    return batch.values if isinstance(batch, RowBatch) else to_rows(batch, kind).values


def by_key(kind):
    if kind is TUPLE or kind is None:
        return KeySelection(lambda record: record[0], None, kind)
    return KeySelection(lambda record: record.key, None, kind)


def unmarked(function, kind):
    return ReduceOperator(UserFunction(function), by_key(kind)).in_batch()


@settings(max_examples=400)
@given(functions() | associative(), st.sampled_from([TUPLE, ROW, None]), inputs(odd=True))
def test_an_unmarked_function_gives_the_same_with_and_without_combining(fields, kind, tasks):
    """Whether it is proven or not, and whatever the numbers are."""
    function = UserFunction(reduce_of(fields, kind is ROW))
    check(lambda: ReduceOperator(function, by_key(kind)), kind, tasks)


@given(functions(), st.sampled_from([TUPLE, ROW, None]))
def test_only_sums_least_greatest_first_and_last_values_of_a_field_are_proven(fields, kind):
    proven = [*({text.format(i=place) for text in ASSOCIATIVE} for place in (1, 2)), set(TEXTS[:2])]
    of_place = all(text in known for text, known in zip(fields[1:], proven, strict=True))
    is_proven = kind is not None and of_place
    function = reduce_of(fields, kind is ROW)
    assert (unmarked(function, kind).before_exchange() is not None) == is_proven


@settings(max_examples=100)
@given(
    st.sampled_from(["a + b", "b + a", "min(a, b)", "max(b, a)", "a", "b", "a * b", "a or b"]),
    st.lists(st.lists(NUMBERS, min_size=1, max_size=9), min_size=1, max_size=3),
)
def test_a_stream_of_numbers(text, tasks):
    """A number is its own record."""
    function, kind = UserFunction(eval(f"lambda a, b: {text}")), Types.LONG()
    keys = KeySelection(lambda number: number % 2, None, kind)
    tasks = [[(False, records, 9, None)] for records in tasks]
    assert check(lambda: ReduceOperator(function, keys), kind, tasks) == (
        "*" not in text and "or" not in text
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]), b[3]),
        lambda a, b: (a[0], b[1] + a[1], min(a[2], b[2]), a[3]),
    ],
)
def test_what_a_proof_has_read_may_change(function, monkeypatch):
    """`max` and `min` are names. From then on records pass."""
    made_of = unmarked(function, TUPLE).before_exchange()
    records = [("a", 1, 2, "x")] * 40
    harness = OperatorHarness(made_of.partial, input_types=(TUPLE,), is_batch=True)
    harness.feed_batch(RowBatch(records))
    assert not harness.elements
    monkeypatch.setitem(function.__globals__, "max", lambda one, other: other - one)
    monkeypatch.setitem(function.__globals__, "min", lambda one, other: other - one)
    harness.feed_batch(RowBatch(records))
    assert [len(batch) for batch in harness.elements] == [1, 40]


@settings(max_examples=150)
@given(associative(), st.sampled_from([TUPLE, ROW]), inputs())
def test_a_marked_function_gives_the_same_with_and_without_combining(fields, kind, tasks):
    function = UserFunction(reduce_of(fields, kind is ROW))
    assert check(lambda: ReduceOperator(function, by_key(kind), combines=True), kind, tasks)


@settings(max_examples=60)
@given(st.sampled_from(["SUM", "MIN", "MAX", "MIN_BY", "MAX_BY"]), st.booleans(), inputs())
def test_aggregates_give_the_same_with_and_without_combining(aggregate, is_by_column, tasks):
    """Also sums that leave the INT of their field."""
    keys = KeySelection(("key",), Types.STRING(), ROW) if is_by_column else by_key(ROW)
    assert check(lambda: KeyedAggregateOperator(aggregate, "m", keys), ROW, tasks)


def test_some_of_these_functions_combine():
    """Else the law would hold for nothing."""
    function = reduce_of(["a[0]", "a[1] + b[1]", "max(a[2], b[2])", "b[3]"], is_row=False)
    operator = ReduceOperator(UserFunction(function), by_key(TUPLE), combines=True)
    made_of = operator.in_batch().before_exchange()
    records = [("a", 1, 2, "x"), ("b", 2, 3, "y")] * 40
    parts = results(made_of.partial, [RowBatch(records)], TUPLE)
    assert [value for batch in parts for value in batch.values] == [
        ("a", ("a", 40, 2, "x")),
        ("b", ("b", 80, 3, "y")),
    ]
