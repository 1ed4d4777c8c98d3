"""Rows that a kernel does not know go through the function, in their order; kernels that do not pay, or are wrong, are turned off."""

import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.model.row import Row
from penstock.runtime.codecs.convert import arrow_schema, to_columns, to_rows
from penstock.runtime.elements import ColumnBatch, RowBatch
from penstock.runtime.row_functions.kernels import numbers, on_batches
from penstock.runtime.row_functions.kernels.on_batches import Kernels, kernel_of_plan
from penstock.runtime.row_functions.plans import Stage, fused_plan, plan_of
from penstock.runtime.row_functions.runner import ColumnRows

KIND = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
LONG = Types.LONG()
LARGE = 2**62
pytestmark = pytest.mark.usefixtures("fresh")
calls = []


def batch(numbers, texts=None):
    texts = texts or ["x"] * len(numbers)
    data = pa.RecordBatch.from_arrays(
        [pa.array(numbers), pa.array(texts)], schema=arrow_schema(KIND)
    )
    return ColumnBatch(data)


def times_two(row):
    calls.append(row.a)
    return row.a * 2 // 2


def pure(row):
    return row.a * 2 // 2


class Runner:
    """Kernels of a function, with the lines that they told."""

    def __init__(self, function=pure, called=times_two, kind=LONG):
        self.lines = []
        self.plan = plan_of(function, arrow_schema(KIND), KIND)
        self.kernels = Kernels(
            lambda row: (True, called(row)), kind, "Map of Task", self.lines.append
        )

    def run(self, given):
        made = self.kernels.run(ColumnRows(given, KIND, self.plan), self.plan)
        return None if made is None else to_rows(made, self.kernels.kind).values


@pytest.fixture
def fresh(monkeypatch):
    calls.clear()
    monkeypatch.setattr(on_batches, "FILTERED_ROWS", 1)
    monkeypatch.setattr(on_batches, "ROWS_PER_STEP", 0)


def test_rows_that_a_kernel_does_not_know_go_through_the_function_in_their_order():
    runner = Runner()
    given = [1, 2, 3, 4, 5, 6, 7, 8, LARGE + 1, 9, LARGE, 10]
    assert runner.run(batch(given)) == given
    assert calls[-2:] == [LARGE + 1, LARGE]
    assert runner.lines == []


@pytest.mark.parametrize("keeps", [True, False], ids=["all", "some are dropped"])
def test_lists_and_maps_are_passed_on_with_rows_of_the_function_among_them(keeps):
    names, kinds = ["a", "l", "m"], [LONG, Types.LIST(LONG), Types.MAP(Types.STRING(), LONG)]
    kind = Types.ROW_NAMED(names, kinds)

    def doubled(row):
        return Row(a=row.a * 2 // 2, l=row.l, m=row.m)

    rows = [Row(a=n, l=[n] * (n % 4), m={"x": n}) for n in (1, 2, 3, LARGE, 5, 6)]
    rows += [Row(a=7, l=None, m=None), Row(a=LARGE + 1, l=[], m={})]
    given = to_columns(RowBatch(rows), kind)
    plan = plan_of(doubled, given.schema, kind)
    kernels = Kernels(lambda row: (True, doubled(row)), kind, "Map of Task", print)
    if not keeps:
        kept = [Stage(lambda row: row.a != 3, True, "kept"), Stage(doubled, False, "doubled")]
        plan = fused_plan(kept, given.schema, kind)
        kernels = Kernels(lambda row: (row.a != 3, doubled(row)), kind, "Map of Task", print)
    made = kernels.run(ColumnRows(given, kind, plan), plan)
    assert to_rows(made, kind).values == [one for one in rows if keeps or one.a != 3]


def test_a_list_of_another_type_is_not_passed_on():
    """Arrow has texts for both, so its type does not tell."""
    letters = Types.ROW_NAMED(["l"], [Types.LIST(Types.CHAR())])
    texts = Types.ROW_NAMED(["l"], [Types.LIST(Types.STRING())])
    assert arrow_schema(letters).types == arrow_schema(texts).types
    for given, wanted in ((letters, texts), (texts, letters)):
        plan = plan_of(lambda row: Row(l=row.l), arrow_schema(given), given)
        assert kernel_of_plan(plan, wanted)[0] is None
    plan = plan_of(lambda row: Row(l=row.l), arrow_schema(texts), texts)
    assert kernel_of_plan(plan, texts)[0] is not None


def test_a_batch_with_too_many_such_rows_runs_otherwise():
    runner = Runner()
    assert runner.run(batch([LARGE, LARGE, 1, 2])) is None
    assert runner.run(batch([LARGE, 1, 1, 2])) == [LARGE, 1, 1, 2]


def test_an_operator_with_too_many_such_rows_is_turned_off_and_says_so():
    runner = Runner()
    given = batch([LARGE, LARGE, 1, 2] * 500)
    for _ in range(3):
        assert runner.run(given) is None
    (line,) = runner.lines
    assert line.startswith("Map of Task: its function does not run as kernels any more: more than")
    assert runner.run(batch([1, 2, 3, 4])) is None
    assert runner.kernels.why_not == on_batches.GUARDED


def test_a_row_at_which_the_function_raises_leaves_the_batch_to_it():
    runner = Runner(lambda row: 6 // row.a, lambda row: 6 // row.a)
    assert runner.run(batch([1, 2, 3, 4])) == [6, 3, 2, 1]
    assert runner.run(batch([1, 2, 3, 0])) is None
    assert runner.run(batch([1, 2, 3, 3])) == [6, 3, 2, 2]


def test_a_result_that_does_not_have_the_type_leaves_the_batch_to_the_function():
    runner = Runner(lambda row: row.a + 1, lambda row: row.a + 1)
    assert runner.run(batch([1, 2, 3, 2**63 - 1])) is None


def test_None_of_an_operand_goes_to_the_function_and_None_of_a_result_stays():
    def chosen(row):
        return row.a if row.b == "y" else None

    runner = Runner(chosen, chosen)
    assert runner.run(batch([1, 2, None, 4], ["y", None, "y", "z"])) == [1, None, None, None]


def test_a_kernel_that_raises_is_turned_off(monkeypatch):
    def fails(*_):
        raise RuntimeError

    monkeypatch.setitem(numbers.INTS, "*", fails)
    runner = Runner()
    assert runner.run(batch([1, 2, 3])) is None
    assert runner.kernels.why_not == "they raised RuntimeError"


@pytest.mark.parametrize(
    ("function", "kind", "why"),
    [
        (lambda row: str(row.a * 0.5), Types.STRING(), "no kernel writes float as text"),
        (
            lambda row: round(row.a * 0.5, 1),
            Types.DOUBLE(),
            "no kernel has a function of float, int",
        ),
        (lambda row: row.a**2, Types.LONG(), "no kernel has int ** int"),
        (lambda row: (row.a, row.b), Types.LONG(), "it returns records, and Long is declared"),
        (lambda row: row.a, KIND, "it returns values, and"),
        (lambda row: row.a * 0.5, Types.FLOAT(), "no kernel makes a field of type Float of float"),
        (lambda row: row.a * 0.5, Types.LONG(), "no kernel makes a field of type Long of float"),
        (
            lambda row: row.a if row.a else 0.5,
            Types.DOUBLE(),
            "its branches give values of several classes",
        ),
        (lambda row: f"{row.a:>5}", Types.STRING(), "no kernel has a format specification"),
        (lambda row: row.b.title(), Types.STRING(), "no kernel has title() with these arguments"),
        (lambda row: row.a, None, ""),
    ],
)
def test_why_a_function_has_no_kernel_is_told(function, kind, why):
    plan = plan_of(function, arrow_schema(KIND), KIND)
    kernel, told = on_batches.kernel_of_plan(plan, kind)
    assert told.startswith(why)
    assert (kernel is None) is bool(why)
