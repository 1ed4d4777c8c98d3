"""A reduce of a BATCH job gives what it gives without combining before the exchange, whatever its function is.

The functions come from a grammar: each field of the result is an expression over the fields of both records. Only built-in aggregates,
marked functions and those that reading proves combine; of these the law is that nothing changes. Sums of floats are left out for
aggregates: there the order of additions shows in the last digit.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.runtime.codecs.convert import to_columns, to_rows
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import RowBatch
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators.reduce import KeyedAggregateOperator, ReduceOperator
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.same_values import are_same

NAMES = ["key", "n", "m", "text"]
KINDS = [Types.STRING(), Types.LONG(), Types.INT(), Types.STRING()]
TUPLE, ROW = Types.TUPLE(KINDS), Types.ROW_NAMED(NAMES, KINDS)
NUMBERS = st.sampled_from([0, 1, 2, -3, 99, 100, 101, 2**31 - 1])
RECORDS = st.tuples(
    st.sampled_from("abc"), NUMBERS, NUMBERS, st.sampled_from(["", "x", "yy", "x" * 9])
)
PROVEN = [
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
    """The text of a reduce. Most fields of some can be proven, so that some functions combine."""
    numbers = st.sampled_from(PROVEN) if draw(st.booleans()) else st.sampled_from(PROVEN + OTHERS)
    texts = st.sampled_from(TEXTS[:2] if draw(st.booleans()) else TEXTS)
    return ["a[0]", draw(numbers).format(i=1), draw(numbers).format(i=2), draw(texts)]


def reduce_of(fields, is_row):
    made = ", ".join(f"{name}={text}" for name, text in zip(NAMES, fields, strict=True))
    result = f"Row({made})" if is_row else f"({', '.join(fields)})"
    return eval(f"lambda a, b: {result}", {"Row": Row})


@st.composite
def inputs(draw):
    """The batches of each of some tasks before the exchange: (as columns, records, timestamp)."""
    batch = st.tuples(
        st.booleans(),
        st.lists(RECORDS, min_size=1, max_size=6),
        st.sampled_from([1, 30]),
        st.sampled_from([None, None, None, 5]),
    )
    return draw(st.lists(st.lists(batch, max_size=4), min_size=1, max_size=2))


def made(kind, as_columns, records, times, stamp):
    if kind is not TUPLE:
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
    """What arrives behind an exchange of this type."""
    if kind is None:
        return batches
    whole = [b if not isinstance(b, RowBatch) else to_columns(b, kind) for b in batches]
    return [to_rows(batch, kind) for batch in whole]


def check(make, kind, tasks):
    tasks = [[made(kind, *one) for one in task] for task in tasks]
    final = make().in_batch()
    expected = results(final, sent([b for task in tasks for b in task], kind), kind)
    combining = make().in_batch().before_exchange()
    if combining is None:
        return False
    parts, kept = [], kind if combining.keeps_type else None
    for task in tasks:
        partial = make().in_batch().before_exchange().partial
        parts += sent(results(partial, task, kind), kept)
    got = results(combining.final, parts, kept)
    both = [
        sorted((value for batch in batches for value in rows(batch, kind)), key=repr)
        for batches in (got, expected)
    ]
    assert are_same(*both), both
    return True


def rows(batch, kind):
    return batch.values if isinstance(batch, RowBatch) else to_rows(batch, kind).values


def by_key(kind):
    if kind is TUPLE or kind is None:
        return KeySelection(lambda record: record[0], None, kind)
    return KeySelection(lambda record: record.key, None, kind)


@settings(max_examples=150)
@given(functions(), st.sampled_from([TUPLE, ROW]), inputs())
def test_any_function_gives_the_same_with_and_without_combining(fields, kind, tasks):
    function = reduce_of(fields, kind is ROW)
    check(lambda: ReduceOperator(UserFunction(function), by_key(kind)), kind, tasks)


@given(functions(), st.booleans(), inputs())
def test_a_function_of_records_without_a_declared_type_is_not_combined(fields, is_row, tasks):
    function = reduce_of(fields, is_row)
    kind = None
    assert not check(lambda: ReduceOperator(UserFunction(function), by_key(kind)), kind, tasks)


@settings(max_examples=60)
@given(st.sampled_from(["SUM", "MIN", "MAX", "MIN_BY", "MAX_BY"]), st.booleans(), inputs())
def test_aggregates_give_the_same_with_and_without_combining(aggregate, is_by_column, tasks):
    """Also sums that leave the INT of their field."""
    keys = KeySelection(("key",), Types.STRING(), ROW) if is_by_column else by_key(ROW)
    assert check(lambda: KeyedAggregateOperator(aggregate, "m", keys), ROW, tasks)


@settings(max_examples=60)
@given(st.sampled_from([3, 1, 2]), inputs())
def test_a_marked_function_gives_the_same_where_it_keeps_its_promise(field, tasks):
    """Concatenations are associative, and the records of a task stay in their order."""

    def joined(a, b):
        return tuple(
            one + other if place == field else one
            for place, (one, other) in enumerate(zip(a, b, strict=True))
        )

    def make():
        return ReduceOperator(UserFunction(joined), by_key(TUPLE), combines=True)

    check(make, TUPLE, tasks)


def test_some_of_these_functions_combine():
    """Else the law would hold for nothing."""
    function = reduce_of(["a[0]", "a[1] + b[1]", "max(a[2], b[2])", "b[3]"], is_row=False)
    made_of = ReduceOperator(UserFunction(function), by_key(TUPLE)).in_batch().before_exchange()
    records = [("a", 1, 2, "x"), ("b", 2, 3, "y")] * 40
    parts = results(made_of.partial, [RowBatch(records)], TUPLE)
    assert [value for batch in parts for value in batch.values] == [
        ("a", ("a", 40, 2, "x")),
        ("b", ("b", 80, 3, "y")),
    ]
