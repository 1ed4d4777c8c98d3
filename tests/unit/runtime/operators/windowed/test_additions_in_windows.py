"""Windows whose aggregate counts or sums add the records of a key at once, and give what they give record by record."""

import random
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Time
from penstock.common.typeinfo import Types
from penstock.model.row import Row
from penstock.runtime.codecs.convert import arrow_schema
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import MAX_WATERMARK, ColumnBatch
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators import window_operator
from penstock.runtime.operators.windowed.functions import AggregateContents
from penstock.runtime.row_functions.additions import Additions
from penstock.runtime.windowing import SlidingEventTimeWindows, TumblingEventTimeWindows
from tests.tools.runtime.keyed_backends import KINDS, Backends
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.same_values import are_same
from tests.unit.runtime.operators.windowed.test_combining_windows_on_fields import Count

KIND = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])
GRIDS = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(20)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(40), Time.milliseconds(10)),
}


class Average(Count):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value.n, accumulator[1] + 1


class Largest(Count):
    """Has no sum."""

    def create_accumulator(self):
        return -1

    def add(self, value, accumulator):
        return value.n if value.n > accumulator else accumulator


def harness_of(kind, grid, keyed_state=None, **given):
    made, is_on = kind(), given.pop("is_on", True)
    operator = window_operator(
        keys=KeySelection(lambda row: row.user, input_type=KIND),
        assigner=GRIDS[grid],
        contents=AggregateContents(UserFunction(made.add, made)),
        **given,
    )
    operator.functions_as_columns = is_on
    lent = {} if keyed_state is None else {"keyed_state": keyed_state}
    return OperatorHarness(operator, input_types=(KIND,), **lent)


def drawn(odd=None, *, in_order=True):
    """Records of four batches with their times, and the watermark behind each batch."""
    draw = random.Random("additions")
    for number in range(4):
        begin = number * 30
        stamps = [draw.randrange(begin, begin + 40) for _ in range(800)]
        if in_order:
            stamps.sort()
        users = [draw.choice(("anna", "bert", "ad")) for _ in stamps]
        numbers = [draw.choice((1, 5, 2**40)) for _ in stamps]
        rows = [Row(user=user, n=n) for user, n in zip(users, numbers, strict=True)]
        if odd is not None:
            rows[number * 50].n = odd
        yield rows, stamps, begin + 35


def columns_of(rows, stamps):
    arrays = [pa.array([row.user for row in rows]), pa.array([row.n for row in rows])]
    data = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(KIND))
    return ColumnBatch(data, np.array(stamps, np.int64))


def fed(harness, as_columns, odd=None, *, in_order=True):
    for rows, stamps, watermark in drawn(odd, in_order=in_order):
        if as_columns:
            batch = harness.operator.rows_from(columns_of(rows, stamps), KIND, 0)
            harness.feed_batch(batch)
        else:
            harness.feed(rows, stamps)
        harness.watermark(watermark)
    harness.watermark(MAX_WATERMARK)
    return harness


@pytest.fixture
def summed(monkeypatch):
    """How often records were added at once."""
    found = []
    real = Additions.are_added

    def are_added(*given):
        found.append(real(*given))
        return found[-1]

    monkeypatch.setattr(Additions, "are_added", are_added)
    return found


@pytest.mark.parametrize("backend", KINDS)
@pytest.mark.parametrize("as_columns", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("lateness", [0, 25])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("kind", [Count, Average, Largest])
def test_results_are_those_of_single_records(
    kind, grid, lateness, as_columns, backend, summed, tmp_path
):
    with closing(Backends(backend, tmp_path)) as backends:
        given = {"keyed_state": backends.make, "allowed_lateness_ms": lateness}
        on = fed(harness_of(kind, grid, **given), as_columns)
        assert any(summed) is (kind is not Largest and (grid == "sliding" or kind is Count))
        off = fed(harness_of(kind, grid, is_on=False, **given), as_columns)
    assert on.values
    assert sorted(map(repr, on.stamped)) == sorted(map(repr, off.stamped))
    assert on.late.get_count() == off.late.get_count()


@pytest.mark.parametrize("lateness", [0, 25])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("kind", [Count, Average])
def test_in_disorder_they_are_too(kind, grid, lateness, summed):
    on, off = (
        fed(
            harness_of(kind, grid, is_on=is_on, allowed_lateness_ms=lateness), False, in_order=False
        )
        for is_on in (True, False)
    )
    assert any(summed) is (kind is Count)
    assert sorted(map(repr, on.stamped)) == sorted(map(repr, off.stamped))
    assert on.late.get_count() == off.late.get_count()


@pytest.mark.parametrize("odd", [2.5, True, float("-inf")])
@pytest.mark.parametrize("grid", GRIDS)
def test_other_numbers_among_them_give_what_single_records_give(grid, odd):
    on, off = (fed(harness_of(Average, grid, is_on=is_on), False, odd) for is_on in (True, False))
    assert are_same(on.values, off.values)
    assert on.stamped == off.stamped


@pytest.mark.parametrize("kind", [Average, Largest])
def test_an_error_names_the_record(kind, monkeypatch):
    tried = []
    real = Additions.sums

    def sums(additions, skeys, *given, **named):
        made = real(additions, skeys, *given, **named)
        tried.append((len(skeys), made))
        return made

    monkeypatch.setattr(Additions, "sums", sums)
    harness = harness_of(kind, "sliding")
    rows = [Row(user="anna", n=1) for _ in range(900)]
    rows[700] = Row(user="anna", n="seven")
    with pytest.raises(TypeError):
        harness.feed(rows, sorted(place % 7 for place in range(900)))
    assert harness.operator.failing_record() == repr(rows[700])
    assert tried == [(900, None)]


def test_records_that_are_put_aside_are_added_one_by_one(summed):
    class Letters:
        records = []

        def takes(self, error):
            return True

        def add(self, error, record, stamp):
            self.records.append(record)

    made = Average()
    operator = window_operator(
        keys=KeySelection(lambda row: row.user, input_type=KIND),
        assigner=GRIDS["sliding"],
        contents=AggregateContents(UserFunction(made.add, made)),
    )
    operator.functions_as_columns = True
    harness = OperatorHarness(operator, poison=Letters(), input_types=(KIND,))
    rows = [Row(user="anna", n=1) for _ in range(900)]
    rows[700] = Row(user="anna", n="seven")
    harness.feed(rows, [5] * 900)
    harness.watermark(MAX_WATERMARK)
    assert Letters.records
    assert set(harness.values) == {(899, 899)}
    assert not summed
