"""Combining before the shuffle: nothing but the number of records changes, for rows and for columns.

Expectations: plain Python over the same records; what rows give, for columns.
"""

from decimal import Decimal
from fractions import Fraction
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.runtime.batch.graph import in_batch
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, ColumnBatch, RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import reduce as module
from penstock.engine.runtime.operators.reduce import (
    ColumnReduction,
    KeyedAggregateOperator,
    ReduceOperator,
)
from penstock.engine.runtime.records.sizes import objects_size, sorting_size
from tests.tools.runtime.operator_harness import OperatorHarness

TYPE = Types.ROW_NAMED(["key", "other", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])
OF_FLOATS = Types.ROW_NAMED(["key", "other", "n"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])
BY_KEY = KeySelection(("key",), Types.STRING(), TYPE)
BY_PARITY = KeySelection(lambda value: value % 2)
RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(-5, 5)), max_size=12
)
KINDS = st.sampled_from(["SUM", "MIN", "MAX", "MIN_BY", "MAX_BY"])


LONGS = pa.int64()


def columns(records, n_type=LONGS):
    keys, others, numbers = zip(*records, strict=True) if records else ((), (), ())
    arrays = [pa.array(keys, pa.string()), pa.array(others, pa.int64()), pa.array(numbers, n_type)]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=["key", "other", "n"]), None)


def rows(records):
    return RowBatch([Row(key=k, other=o, n=n) for k, o, n in records])


def tuples(batches, type_info=TYPE):
    found = []
    for batch in batches:
        whole = to_rows(batch, type_info) if isinstance(batch, ColumnBatch) else batch
        found += [tuple(value) for value in whole.values]
    return found


def run(operator, batches, kind=TYPE):
    harness = OperatorHarness(operator, input_types=(kind,))
    for batch in batches:
        harness.feed_batch(batch)
    harness.take(operator.finish())
    return harness.elements


def final(kind="SUM", keys=BY_KEY):
    return KeyedAggregateOperator(kind, "n", keys).in_batch()


def reduced(records, kind):
    """By the meaning of the five aggregates: the first record, one field changed, or the first of the best."""
    found = {}
    for key, other, n in records:
        if key not in found:
            found[key] = (key, other, n)
            continue
        _, kept, old = found[key]
        if kind == "SUM":
            found[key] = (key, kept, old + n)
        elif kind in {"MIN", "MAX"}:
            found[key] = (key, kept, min(old, n) if kind == "MIN" else max(old, n))
        elif (n < old) if kind == "MIN_BY" else (n > old):
            found[key] = (key, other, n)
    return list(found.values())


@given(st.lists(st.tuples(st.booleans(), RECORDS), max_size=4), KINDS, st.booleans())
def test_columns_rows_and_partial_results_give_one_answer(drawn, kind, is_combined):
    batches = [columns(records) if is_c else rows(records) for is_c, records in drawn]
    if is_combined:
        batches = run(final(kind).before_exchange().partial, batches)
        assert all(batch.timestamps is None for batch in batches)
    found = run(final(kind), batches)
    expected = reduced([record for _, records in drawn for record in records], kind)
    assert sorted(tuples(found)) == sorted(expected)
    assert all(set(batch.timestamps.tolist()) == {MAX_WATERMARK} for batch in found)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 3], pa.int64()),
        ([2**62, 2**62, 2**62, -(2**62)], pa.int64()),
        ([120, 120], pa.int8()),
        ([1.0, float("nan"), 0.5], pa.float64()),
        ([True, False], pa.bool_()),
    ],
)
def test_what_arrow_would_do_otherwise_goes_by_rows(values, kind):
    reduction = ColumnReduction(("key",), "sum", "n")
    batch = columns([("a", 0, value) for value in values], kind)
    assert not reduction.add(batch)
    assert reduction.take() == ()


def test_columns_that_came_before_such_values_count():
    large = 2**62
    batches = [columns([("a", 1, large)]), columns([("a", 2, large)]), columns([("a", 3, -large)])]
    assert tuples(run(final(), batches)) == [("a", 1, large)]


def test_many_small_sums_fit_however_many_they_are():
    reduction_input = [columns([("a", 0, 2**40), ("b", 0, -(2**40))])] * 3
    found = run(final("SUM"), reduction_input)
    assert all(isinstance(batch, ColumnBatch) for batch in found)
    assert sorted(tuples(found)) == [("a", 0, 3 * 2**40), ("b", 0, -3 * 2**40)]


def plus(left, right):
    return left + right


def combining(function=plus, keys=BY_PARITY):
    """A reduce whose user promises that it may combine."""
    operator = ReduceOperator(UserFunction(function), keys, combines=True)
    return operator.in_batch().before_exchange()


def partial(keys=BY_PARITY):
    return combining(keys=keys).partial


def test_records_with_timestamps_pass():
    """They are reduced in the order of time, which is not known here."""
    harness = OperatorHarness(partial())
    harness.feed([1, 3, 5], [30, 20, 10])
    harness.feed([2, 4, 6])
    harness.take(harness.operator.finish())
    first, second = harness.elements
    assert first.values == [(1, 1), (1, 3), (1, 5)]
    assert first.timestamps.tolist() == [30, 20, 10]
    assert (second.values, second.timestamps) == ([(0, 12)], None)


def test_each_pair_is_reduced_once():
    calls = []

    def counted(left, right):
        calls.append((left, right))
        return left + right

    made = combining(counted)
    parts = run(made.partial, [RowBatch([1, 2, 3, 5]), RowBatch([7])], None)
    found = run(made.final, [*parts, *parts])
    assert sorted(value for batch in found for value in batch.values) == [4, 32]
    assert len(calls) == 3 + 2


def test_a_result_keeps_the_key_of_its_records_whatever_the_selector_would_say_of_it():
    """16 is even, but a sum of odd numbers."""
    made = combining()
    parts = run(made.partial, [RowBatch([1, 3, 5, 7, 2])], None)
    (pairs,) = [batch.values for batch in parts]
    assert made.keys.keys_of_rows(pairs) == [1, 0]
    found = run(made.final, parts)
    assert sorted(value for batch in found for value in batch.values) == [2, 16]


@pytest.mark.parametrize("records", [[True, 1, 1.0, True], ["a", "b", "a"]])
def test_keys_that_are_equal_to_python_and_not_to_us_stay_apart(records):
    by_value = partial(KeySelection(lambda value: value))
    (pairs,) = [batch.values for batch in run(by_value, [RowBatch(records * 3)], None)]
    assert [(type(key), key) for key, _ in pairs] == [
        *dict.fromkeys((type(record), record) for record in records)
    ]


@pytest.mark.parametrize(
    "function",
    [
        lambda left, right: (left[0], left[1] + (right[1] if right[1] < 100 else 0)),
        lambda left, right: (left[0], left[1] + 1),
        lambda left, right: (left[0], left[1] + right[1]),
    ],
    ids=["without outliers", "a count", "a sum of no declared type"],
)
def test_a_function_that_is_neither_marked_nor_proven_does_not_combine(function):
    """Whatever the first records are: a later one may show that the order of calls matters."""
    by_first = KeySelection(lambda value: value[0])
    operator = ReduceOperator(UserFunction(function), by_first).in_batch()
    assert operator.before_exchange() is None


BIG, PART = Decimal("1e28"), Decimal("0.4")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("SUM", [BIG, PART, PART, PART, -BIG]),
        ("SUM", [Fraction(1), Fraction(2)]),
        ("MIN", [frozenset({1}), frozenset({2}), frozenset()]),
        ("MAX_BY", [frozenset({1}), frozenset({2}), frozenset()]),
    ],
)
def test_an_aggregate_of_values_for_which_grouping_counts_lets_them_pass(kind, values):
    """A Decimal is rounded to the digits of the context, and sets have no order."""
    made = KeyedAggregateOperator(kind, 1, KeySelection(itemgetter(0))).in_batch()
    partial = OperatorHarness(made.before_exchange().partial)
    records = [("a", value) for value in values]
    partial.feed(records)
    partial.take(partial.operator.finish())
    assert [value for _, value in partial.values] == records


@pytest.mark.parametrize(
    ("kind", "values"), [("SUM", [1, 2.0, True]), ("MIN", [BIG, PART]), ("MAX", ["a", "b"])]
)
def test_an_aggregate_of_plain_numbers_or_ordered_values_combines(kind, values):
    made = KeyedAggregateOperator(kind, 1, KeySelection(itemgetter(0))).in_batch()
    partial = OperatorHarness(made.before_exchange().partial)
    partial.feed([("a", value) for value in values])
    partial.take(partial.operator.finish())
    assert len(partial.values) == 1


def test_what_passes_does_not_overtake_what_was_combined_before():
    def texts(left, right):
        return left + right

    harness = OperatorHarness(combining(texts, KeySelection(len)).partial)
    harness.feed(["a", "b"])
    harness.feed(["c"], [5])
    harness.feed(["d", "e"])
    harness.take(harness.operator.finish())
    assert [batch.values for batch in harness.elements] == [[(1, "ab")], [(1, "c")], [(1, "de")]]


def test_records_get_the_declared_type_before_they_combine():
    """As at the exchange: the whole numbers of a FLOAT are rounded to 24 bits one by one."""
    kind = Types.TUPLE([Types.STRING(), Types.FLOAT()])
    by_first = KeySelection(lambda value: value[0], None, kind)

    def smallest(left, right):
        return left if left[1] <= right[1] else right

    harness = OperatorHarness(combining(smallest, by_first).partial, input_types=(kind,))
    harness.feed([("a", 2**24 + 1), ("a", 0.1)])
    harness.take(harness.operator.finish())
    harness.feed([("a", 0.1)], [7])
    tenth = float(np.float32(0.1))
    assert [batch.values for batch in harness.elements] == [[("a", ("a", tenth))]] * 2


@pytest.mark.parametrize("kind", ["MIN", "MAX", "MIN_BY", "MAX_BY"])
@given(st.lists(st.sampled_from([1.0, 2.0, float("nan"), -0.0, 0.0]), min_size=1, max_size=6))
def test_extremes_of_floats_do_not_depend_on_what_combines(kind, numbers):
    """NaN is the largest of all, as in Java."""
    batches = [columns([("a", 0, number)], pa.float64()) for number in numbers]
    plain = run(final(kind), [RowBatch([Row(key="a", other=0, n=n) for n in numbers])], OF_FLOATS)
    parts = []
    for share in (batches[:2], batches[2:]):
        parts += run(final(kind).before_exchange().partial, share, OF_FLOATS)
    ((_, _, got),) = tuples(run(final(kind), parts, OF_FLOATS), OF_FLOATS)
    ((_, _, expected),) = tuples(plain)
    known = [number for number in numbers if number == number]
    is_nan = not known or (kind.startswith("MAX") and len(known) < len(numbers))
    assert repr(got) == repr(expected)
    assert np.isnan(got) == is_nan


def test_keys_that_are_too_many_are_let_through(monkeypatch):
    monkeypatch.setattr(module, "_MOST_PARTIALS", 4)
    by_value = KeySelection(lambda value: value)
    operator = partial(by_value)
    harness = OperatorHarness(operator)
    assert harness.feed([1, 1, 1, 2, 3]) == []
    harness.feed([4, 5])
    harness.feed([1, 1, 1])
    harness.take(operator.finish())
    assert [batch.values for batch in harness.elements] == [
        [(1, 3), (2, 2), (3, 3), (4, 4), (5, 5)],
        [(1, 1), (1, 1), (1, 1)],
    ]


def test_keys_that_are_many_and_come_often_are_combined_on(monkeypatch):
    monkeypatch.setattr(module, "_MOST_PARTIALS", 4)
    by_value = KeySelection(lambda value: value)
    operator = partial(by_value)
    harness = OperatorHarness(operator)
    harness.feed([1, 2, 3, 4] * 5)
    harness.feed([7, 7])
    harness.take(operator.finish())
    assert [batch.values for batch in harness.elements] == [
        [(1, 5), (2, 10), (3, 15), (4, 20)],
        [(7, 14)],
    ]


def test_results_that_grow_do_not_stay(monkeypatch):
    """Large ones go over; small ones stay, however much has gone into them."""
    monkeypatch.setattr(module, "_MOST_BYTES", 5000)
    by_kind = KeySelection(lambda value: value[0])
    operator = partial(by_kind)
    harness = OperatorHarness(operator)
    for _ in range(100):
        harness.feed([("a", "b", "c")] * 3)
    gone = [len(value) for batch in harness.elements for _, value in batch.values]
    assert len(gone) > 1
    assert max(gone) < 3 * 300
    harness = OperatorHarness(partial())
    for _ in range(100):
        harness.feed([1, 2] * 10)
    assert harness.elements == []


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [(["x" * 1000] * 10, 10_000, 12_000), ([{"a": [1] * 10}], 300, 800), ([], 0, 0)],
)
def test_sizes_are_about_right(values, least, most):
    assert least <= objects_size(values) <= most
    assert least <= sorting_size(RowBatch(values)) <= most * 2


def program(**settings):
    env = StreamExecutionEnvironment.get_execution_environment()
    left = env.from_collection([1, 2], Types.LONG()).map(lambda v: v, Types.LONG())
    right = env.from_collection([3], Types.LONG())
    left.union(right).key_by(lambda v: v).reduce(plus, combine=True).print()
    graph = env.plumbing.stream_graph()
    graph.is_chaining_enabled = settings.pop("is_chaining", True)
    return in_batch(graph, **settings)


def test_each_producer_of_a_reduce_combines():
    graph = program()
    added = [node for node in graph.nodes.values() if node.name == "Reduce (partial)"]
    producers = {edge.source for edge in graph.edges if edge.target in {n.node_id for n in added}}
    assert {graph.nodes[one].name for one in producers} == {"Map", "Source: Collection Source"}
    assert [node.output_type for node in added] == [None, None]


@pytest.mark.parametrize("settings", [{"is_combining": False}, {"is_chaining": False}])
def test_what_cannot_be_chained_or_is_not_wanted_does_not(settings):
    assert not [n for n in program(**settings).nodes.values() if "partial" in n.name]


def test_the_first_other_field_may_be_null():
    data = pa.record_batch({"key": ["a", "a"], "other": pa.array([None, 5]), "n": [1, 2]})
    found = run(final(), [ColumnBatch(data, None)])
    assert tuples(found) == [("a", None, 3)]
    assert np.all(found[0].timestamps == MAX_WATERMARK)
