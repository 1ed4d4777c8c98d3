"""Windows whose aggregate counts add the number of a key's records at once, and give what they give record by record."""

import random
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Time
from penstock.common.typeinfo import Types
from penstock.engine.model.row import Row
from penstock.engine.runtime.codecs.convert import arrow_schema
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, ColumnBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import window_operator
from penstock.engine.runtime.operators.windowed.functions import AggregateContents
from penstock.engine.runtime.row_functions.reduces import KeyCounts
from penstock.engine.runtime.windowing import SlidingEventTimeWindows, TumblingEventTimeWindows
from tests.tools.runtime.keyed_backends import KINDS, Backends
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.unit.engine.runtime.operators.windowed.test_aggregates_on_fields import Count

KIND = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])
GRIDS = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(20)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(40), Time.milliseconds(10)),
}


class Largest(Count):
    """Does not count."""

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
    services = {} if keyed_state is None else {"keyed_state": keyed_state}
    return OperatorHarness(operator, input_types=(KIND,), **services)


def drawn(*, in_order=True):
    """Records of four batches with their times, and the watermark after each batch."""
    draw = random.Random("counts")
    for number in range(4):
        begin = number * 30
        stamps = [draw.randrange(begin, begin + 40) for _ in range(800)]
        if in_order:
            stamps.sort()
        users = [draw.choice(("anna", "bert", "ad")) for _ in stamps]
        numbers = [draw.choice((1, 5, 2**40)) for _ in stamps]
        rows = [Row(user=user, n=n) for user, n in zip(users, numbers, strict=True)]
        yield rows, stamps, begin + 35


def columns_of(rows, stamps):
    arrays = [pa.array([row.user for row in rows]), pa.array([row.n for row in rows])]
    data = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(KIND))
    return ColumnBatch(data, np.array(stamps, np.int64))


def fed(harness, as_columns, *, in_order=True):
    for rows, stamps, watermark in drawn(in_order=in_order):
        if as_columns:
            batch = harness.operator.rows_from(columns_of(rows, stamps), KIND, 0)
            harness.feed_batch(batch)
        else:
            harness.feed(rows, stamps)
        harness.watermark(watermark)
    harness.watermark(MAX_WATERMARK)
    return harness


@pytest.fixture
def counted(monkeypatch):
    """How often records were counted at once."""
    found = []
    real = KeyCounts.are_added_to

    def are_added_to(*given):
        found.append(real(*given))
        return found[-1]

    monkeypatch.setattr(KeyCounts, "are_added_to", are_added_to)
    return found


@pytest.mark.parametrize("backend", KINDS)
@pytest.mark.parametrize("as_columns", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("lateness", [0, 25])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("kind", [Count, Largest])
def test_results_are_those_of_single_records(
    kind, grid, lateness, as_columns, backend, counted, tmp_path
):
    with closing(Backends(backend, tmp_path)) as backends:
        given = {"keyed_state": backends.make, "allowed_lateness_ms": lateness}
        on = fed(harness_of(kind, grid, **given), as_columns)
        assert any(counted) is (kind is Count)
        off = fed(harness_of(kind, grid, is_on=False, **given), as_columns)
    assert on.values
    assert sorted(map(repr, on.stamped)) == sorted(map(repr, off.stamped))
    assert on.late.get_count() == off.late.get_count()


@pytest.mark.parametrize("lateness", [0, 25])
@pytest.mark.parametrize("grid", GRIDS)
def test_in_disorder_they_are_too(grid, lateness, counted):
    on, off = (
        fed(
            harness_of(Count, grid, is_on=is_on, allowed_lateness_ms=lateness),
            False,
            in_order=False,
        )
        for is_on in (True, False)
    )
    assert any(counted)
    assert sorted(map(repr, on.stamped)) == sorted(map(repr, off.stamped))
    assert on.late.get_count() == off.late.get_count()


def test_where_records_may_be_put_aside_they_are_added_one_by_one(counted):
    class Letters:
        def takes(self, error):
            return True

        def add(self, error, record, stamp):
            raise AssertionError("no record is put aside")

    made = Count()
    operator = window_operator(
        keys=KeySelection(lambda row: row.user, input_type=KIND),
        assigner=GRIDS["sliding"],
        contents=AggregateContents(UserFunction(made.add, made)),
    )
    harness = OperatorHarness(operator, poison=Letters(), input_types=(KIND,))
    harness.feed([Row(user="anna", n=1) for _ in range(900)], [5] * 900)
    harness.watermark(MAX_WATERMARK)
    assert set(harness.values) == {900}
    assert not counted
