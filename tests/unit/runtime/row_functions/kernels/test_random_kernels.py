"""Random functions give as kernels what they give when they are called: value, class, sign of zero, NaN, None. Rows at which they raise go to
the function.
"""

import os
from collections import Counter

import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.model.row import Row
from penstock.runtime.codecs.convert import to_columns, to_rows
from penstock.runtime.elements import RowBatch
from penstock.runtime.row_functions.kernels import on_batches
from penstock.runtime.row_functions.kernels.kernel import filter_of, plain_kernel_of
from penstock.runtime.row_functions.kernels.on_batches import Kernels
from penstock.runtime.row_functions.kernels.vectors import Of
from penstock.runtime.row_functions.plans import Way, plan_of
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.runner import ColumnRows
from tests.tools import random_containers
from tests.tools.random_functions import TYPE, Grammar, columns, made
from tests.tools.random_kernels import KernelGrammar, PassingGrammar
from tests.tools.runtime.same_values import are_same

MANY = int(os.environ.get("PENSTOCK_FUNCTIONS", "100000"))
PARTS = 40
ROWS = 12
STYLES = ("attribute", "item", "position")
pytestmark = [
    pytest.mark.usefixtures("little_memory", "small_batches"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning"),
]


def outcome(call, *given):
    try:
        return call(*given)
    except Exception as error:
        return error


def values_of(column):
    values = column.to_pylist()
    if not pa.types.is_map(column.type):
        return values
    return [None if one is None else dict(one) for one in values]


def results_of(kernel, found):
    """What the kernel gives for each row."""
    lists = [values_of(column) for column in found.columns]
    result = kernel.result
    if result.width is None:
        return lists[0]
    rows = list(zip(*lists, strict=True)) if lists else [()] * ROWS
    if not result.is_row:
        return rows
    names = result.names
    return [
        Row(*row) if names is None else Row(**dict(zip(names, row, strict=True))) for row in rows
    ]


def check_values(text, plan, batch, expected):
    """Returns how many rows a kernel knew; None: there is no kernel. Raises: AssertionError: a value differs."""
    try:
        kernel = plain_kernel_of(plan.tree, plan.fields.types)
    except Refused:
        return None
    found = kernel.run(batch)
    rows = results_of(kernel, found)
    known = 0
    for place, value in enumerate(expected):
        if found.bad is None or not found.bad[place]:
            known += 1
            assert are_same(rows[place], value), (place, rows[place], value, text)
    return known


def check_truth(text, plan, batch, expected):
    try:
        kernel = filter_of(plan.tree, plan.fields.types)
    except Refused:
        return
    found = kernel.run(batch)
    for place, value in enumerate(expected):
        if found.bad is None or not found.bad[place]:
            is_kept = bool(found.kept[place])
            assert not isinstance(value, Exception), (place, is_kept, value, text)
            assert is_kept is bool(value), (place, is_kept, value, text)


TYPES = {
    Of.INT: (Types.LONG(), Types.LONG(), Types.INT(), Types.BYTE(), Types.DOUBLE()),
    Of.FLOAT: (Types.DOUBLE(),),
    Of.TEXT: (Types.STRING(),),
    Of.BOOL: (Types.BOOLEAN(),),
    Of.NOTHING: (Types.STRING(), Types.LONG()),
}


def declared(result, choose, fields):
    """A type that the results may be declared to have. `fields`: the types of the columns."""
    kinds = [
        fields[value.column] if value.of is Of.OTHER else choose(TYPES[value.of])
        for value in result.fields
    ]
    if result.width is None:
        return kinds[0]
    if not result.is_row:
        return Types.TUPLE(kinds)
    return Types.ROW_NAMED(list(result.names), kinds) if result.names else Types.ROW(kinds)


def check_typed(text, plan, batch, function, choose, given):
    """Whether columns of a declared type, with the rows of the function among them, are those that its results become."""
    try:
        result = plain_kernel_of(plan.tree, plan.fields.types).result
        kind = declared(result, choose, given.get_field_types())
    except (Refused, KeyError):
        return
    lines = []
    kernels = Kernels(lambda record: (True, function(record)), kind, "f", lines.append)
    got = kernels.run(ColumnRows(batch, given, plan), plan)
    assert not lines, lines
    records = to_rows(batch, given).values
    try:
        expected = to_columns(RowBatch([function(record) for record in records]), kind)
    except Exception:
        assert got is None, text
        return
    if got is not None:
        pairs = zip(to_rows(got, kind).values, to_rows(expected, kind).values, strict=True)
        assert all(are_same(one, other) for one, other in pairs), text
        assert got.schema == expected.schema


def try_functions(seeds, make, given=TYPE):
    """Returns how many functions have a kernel, and how many rows it knew."""
    counts = Counter()
    for seed in seeds:
        grammar = make(seed)
        text = grammar.function(STYLES[seed % 3])
        # Columns that begin within their buffers, as those of slices do.
        batch = columns(grammar.records(ROWS + 9), given).slice(seed % 9, seed % 9 + ROWS)
        function = made(text)
        plan = plan_of(function, batch.data.schema, given)
        if plan.way is not Way.COLUMNS:
            continue
        counts["columns"] += 1
        expected = [outcome(function, record) for record in to_rows(batch, given).values]
        known = check_values(text, plan, batch, expected)
        check_truth(text, plan, batch, expected)
        if known is not None:
            check_typed(text, plan, batch, function, grammar.random.choice, given)
            counts["kernels"] += 1
            counts["rows"] += ROWS
            counts["known"] += known
    return counts


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(on_batches, "FILTERED_ROWS", 1)
    monkeypatch.setattr(on_batches, "ROWS_PER_STEP", 0)


def test_random_functions_give_the_same_in_kernels():
    counts = try_functions(range(1200), KernelGrammar)
    # Else this would show little.
    assert counts["kernels"] > 600, counts
    assert counts["known"] > 0.5 * counts["rows"], counts


def test_random_functions_of_any_kind_give_the_same_in_kernels():
    counts = try_functions(range(40_000, 40_600), Grammar)
    assert counts["kernels"] > 30, counts


def test_random_functions_that_pass_lists_and_dicts_on_give_the_same_in_kernels():
    counts = try_functions(range(60_000, 60_600), PassingGrammar, random_containers.TYPE)
    assert counts["kernels"] > 120, counts
    assert counts["known"] > 0.4 * counts["rows"], counts


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_random_functions_give_the_same_in_kernels(part):
    count = MANY // PARTS
    first = 5_000_000 + part * count
    counts = try_functions(range(first, first + count), KernelGrammar)
    print(f"{count} functions: {dict(counts)}")
    assert counts["kernels"] > count * 0.4


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_random_functions_pass_lists_and_dicts_on_in_kernels(part):
    count = MANY // PARTS
    first = 7_000_000 + part * count
    counts = try_functions(range(first, first + count), PassingGrammar, random_containers.TYPE)
    print(f"{count} functions: {dict(counts)}")
    assert counts["kernels"] > count * 0.15
