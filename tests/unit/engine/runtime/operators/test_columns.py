"""Column expressions and operators on columns."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Duration
from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, ColumnBatch, RowBatch
from penstock.engine.runtime.keys import KeySelection, channel_of
from penstock.engine.runtime.operators import (
    ColumnFilterOperator,
    ColumnWindowOperator,
    MapBatchesOperator,
    SelectOperator,
    ToSchemaOperator,
)
from penstock.engine.runtime.records.columns import (
    avg,
    col,
    count,
    first,
    last,
    lit,
    max_,
    min_,
    sum_,
)
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.windowing import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import rescaled

DATA = pa.record_batch({
    "a": [7, -7, 0],
    "f": [1.5, 2.5, None],
    "s": ["Ab", "cd", None],
    "t": [0, 86_400_000, 3_600_000],
})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("a") + 1, [8, -6, 1]),
        (1 - col("a"), [-6, 8, 1]),
        (col("a") // 2, [3, -4, 0]),
        (col("a") % 3, [1, 2, 0]),
        (col("a") / 2, [3.5, -3.5, 0.0]),
        (-col("a") * 2, [-14, 14, 0]),
        ((col("a") > 0) & (col("f") < 2), [True, False, False]),
        ((col("a") == 0) | col("s").is_null(), [False, False, True]),
        (~(col("a") != 7), [True, False, False]),
        (col("s").upper(), ["AB", "CD", None]),
        (col("s").lower().contains("b"), [True, False, None]),
        (col("s").starts_with("A"), [True, False, None]),
        (col("s").ends_with("d"), [False, True, None]),
        (col("s").substring(1), ["b", "d", None]),
        (col("s").length(), [2, 2, None]),
        (col("s").concat("-", col("s")), ["Ab-Ab", "cd-cd", None]),
        (col("s").replace("A", "x"), ["xb", "cd", None]),
        (col("f").coalesce(0.0), [1.5, 2.5, 0.0]),
        ((col("a") > 0).if_else("+", "-"), ["+", "-", "-"]),
        (col("a").between(0, 7), [True, False, True]),
        (col("a").is_in([0, 7]), [True, False, True]),
        (col("a").cast(Types.DOUBLE()), [7.0, -7.0, 0.0]),
        (col("a").abs(), [7, 7, 0]),
        (col("t").to_timestamp().day(), [1, 2, 1]),
        (col("t").to_timestamp().to_epoch_ms(), [0, 86_400_000, 3_600_000]),
        (lit(3), [3, 3, 3]),
    ],
)
def test_expressions_compute_in_arrow_and_are_picklable(expression, expected):
    assert pickle.loads(pickle.dumps(expression)).array(DATA).to_pylist() == expected


def test_expressions_have_names_and_no_truth_value():
    assert col("a").column_name == "a"
    assert (col("a") + 1).column_name is None
    assert (col("a") + 1).alias("b").output_name == "b"
    with pytest.raises(TypeError, match="use &"):
        bool(col("a") == 1)
    with pytest.raises(KeyError, match="'x' is not in this stream"):
        col("x").array(DATA)


def test_select_and_filter_keep_timestamps():
    batch = ColumnBatch(DATA, np.array([1, 2, 3]))
    op = OperatorHarness(SelectOperator((col("a"), (col("a") * 2).alias("b"))))
    op.feed_batch(batch)
    assert op.stamped == [({"a": 7, "b": 14}, 1), ({"a": -7, "b": -14}, 2), ({"a": 0, "b": 0}, 3)]
    op = OperatorHarness(ColumnFilterOperator(col("f") > 2))
    op.feed_batch(batch)
    assert [(value["a"], stamp) for value, stamp in op.stamped] == [(-7, 2)]
    with pytest.raises(TypeError, match="filter needs a boolean column"):
        OperatorHarness(ColumnFilterOperator(col("a"))).feed_batch(batch)


def test_map_batches_keeps_timestamps_with_the_row_count_and_refuses_else():
    batch = ColumnBatch(DATA, np.array([1, 2, 3]))
    op = OperatorHarness(MapBatchesOperator(UserFunction(lambda data: data.select(["a"]))))
    op.feed_batch(batch)
    assert op.stamped[0] == ({"a": 7}, 1)
    fewer = OperatorHarness(MapBatchesOperator(UserFunction(lambda data: data.slice(0, 1))))
    fewer.feed_batch(ColumnBatch(DATA))
    assert len(fewer.values) == 1
    with pytest.raises(ValueError, match="made 1 rows of 3"):
        fewer.feed_batch(batch)
    with pytest.raises(TypeError, match="RecordBatch"):
        OperatorHarness(MapBatchesOperator(UserFunction(lambda data: 1))).feed_batch(batch)


def columns(keys, values, stamps):
    data = pa.record_batch({"k": keys, "v": pa.array(values, pa.int64())})
    return ColumnBatch(data, np.array(stamps, np.int64))


def window(assigner, *aggregates, lateness=0, keys=("k",)):
    return OperatorHarness(ColumnWindowOperator(assigner, KeySelection(keys), aggregates, lateness))


def test_column_windows_aggregate_by_key():
    aggregates = (
        count().alias("n"), sum_("v"), min_("v"), max_("v"), avg("v"), first("v"), last(col("v")),
    )  # fmt: skip
    op = window(TumblingEventTimeWindows.of(Duration.of_millis(10)), *aggregates)
    op.feed_batch(columns(["a", "b", "a"], [3, 7, 1], [1, 2, 3]))
    op.feed_batch(columns(["a", "a"], [2, 9], [4, 12]))
    op.watermark(9)
    rows = sorted(op.stamped, key=lambda pair: pair[0]["k"])
    assert rows[0] == (
        {
            "k": "a", "window_start": 0, "window_end": 10, "n": 3, "sum_v": 6, "min_v": 1, "max_v": 3,
            "avg_v": 2.0, "first_v": 3, "last_v": 2,
        },
        9,
    )  # fmt: skip
    assert (rows[1][0]["k"], rows[1][0]["n"]) == ("b", 1)
    op.watermark(MAX_WATERMARK)
    assert op.values[-1]["sum_v"] == 9


def test_sliding_column_windows_combine_panes():
    op = window(SlidingEventTimeWindows.of(Duration.of_millis(10), Duration.of_millis(4)), count())
    op.feed_batch(columns(["a"] * 3, [1, 1, 1], [1, 5, 9]))
    op.watermark(MAX_WATERMARK)
    found = [(row["window_start"], row["count"], stamp) for row, stamp in op.stamped]
    assert found == [(-8, 1, 1), (-4, 2, 5), (0, 3, 9), (4, 2, 13), (8, 1, 17)]


def test_windows_that_fire_together_come_in_one_batch_oldest_first():
    op = window(TumblingEventTimeWindows.of(Duration.of_millis(10)), count())
    op.feed_batch(columns(["b", "a", "a"], [1, 1, 1], [21, 1, 12]))
    op.watermark(29)
    batches = [element for element in op.elements if isinstance(element, ColumnBatch)]
    assert len(batches) == 1
    assert [(row["k"], row["window_start"], stamp) for row, stamp in op.stamped] == [
        ("a", 0, 9), ("a", 10, 19), ("b", 20, 29),
    ]  # fmt: skip


def test_late_rows_are_counted_and_rows_within_the_lateness_fire_again():
    op = window(TumblingEventTimeWindows.of(Duration.of_millis(10)), count(), lateness=5)
    op.feed_batch(columns(["a", "b"], [1, 1], [1, 1]))
    op.watermark(9)
    op.feed_batch(columns(["a"], [1], [2]))
    assert [(r["k"], r["count"]) for r in op.values] == [("a", 1), ("b", 1), ("a", 2)]
    op.watermark(14)
    op.feed_batch(columns(["a", "a"], [1, 1], [3, 11]))
    assert op.late.get_count() == 1
    op.watermark(MAX_WATERMARK)
    assert op.values[-1]["window_start"] == 10


def test_windows_without_keys_and_with_several():
    op = window(TumblingEventTimeWindows.of(Duration.of_millis(10)), sum_("v"), keys=())
    op.feed_batch(columns(["a", "b"], [1, 5], [1, 2]))
    op.watermark(9)
    assert op.values == [{"window_start": 0, "window_end": 10, "sum_v": 6}]
    both = window(TumblingEventTimeWindows.of(Duration.of_millis(10)), count(), keys=("k", "v"))
    both.feed_batch(columns(["a", "a", "a"], [1, 1, 2], [1, 2, 3]))
    both.watermark(9)
    assert sorted((r["k"], r["v"], r["count"]) for r in both.values) == [("a", 1, 2), ("a", 2, 1)]


def test_column_windows_survive_a_snapshot():
    op = window(
        SlidingEventTimeWindows.of(Duration.of_millis(10), Duration.of_millis(5)), sum_("v")
    )
    op.feed_batch(columns(["a"], [1], [6]))
    snapshot = pickle.loads(pickle.dumps(op.operator.snapshot()))
    again = ColumnWindowOperator(
        SlidingEventTimeWindows.of(Duration.of_millis(10), Duration.of_millis(5)),
        KeySelection(("k",)),
        (sum_("v"),),
    )
    again.restore(snapshot)
    restored = OperatorHarness(again)
    restored.feed_batch(columns(["a"], [2], [7]))
    restored.watermark(MAX_WATERMARK)
    assert [(r["window_start"], r["sum_v"]) for r in restored.values] == [(0, 3), (5, 3)]


def test_the_watermark_of_column_windows_is_restored():
    """As Flink's sliced windows of SQL: late records after a restore are what they would have been without it."""

    def window():
        return ColumnWindowOperator(
            TumblingEventTimeWindows.of(Duration.of_millis(5)),
            KeySelection(("k",)),
            (sum_("v"),),
            allowed_lateness_ms=5,
        )

    def seen(harness):
        return [(r["k"], r["window_start"], r["sum_v"]) for r in harness.values]

    first = OperatorHarness(window())
    first.feed_batch(columns(["a", "b", "a"], [1, 2, 3], [4, 4, 7]))
    first.watermark(8)
    assert seen(first) == [("a", 0, 1), ("b", 0, 2)]
    again = _restored([first], window)
    again.feed_batch(columns(["a"], [10], [3]))
    assert seen(again) == [("a", 0, 11)], "late, but allowed: the window fires for this key alone"
    again.watermark(5)  # the sources begin again lower
    assert again.watermarks == [8]
    third = _restored([again], window)
    third.watermark(9)
    third.feed_batch(columns(["b"], [100], [2]))
    assert seen(third) == [("a", 5, 3)]
    assert third.late.get_count() == 1, "its window is gone"


def test_column_windows_do_not_fire_again_for_keys_of_a_subtask_that_was_ahead():
    """Former subtasks at 20 and at 3, merged: the window is still to fire for the keys of the second one, and only for those."""

    def window():
        return ColumnWindowOperator(
            TumblingEventTimeWindows.of(Duration.of_millis(5)),
            KeySelection(("k",)),
            (sum_("v"),),
            allowed_lateness_ms=50,
        )

    former = [OperatorHarness(window(), subtask=i, parallelism=2) for i in range(2)]
    names = ["a", "b", "c", "d", "e", "f"]
    owners = [channel_of(name, 2, 128) for name in names]
    assert set(owners) == {0, 1}
    for name, owner in zip(names, owners, strict=True):
        former[owner].feed_batch(columns([name], [1], [4]))
    former[0].watermark(20)
    former[1].watermark(3)
    ahead = {name for name, owner in zip(names, owners, strict=True) if owner == 0}
    assert {r["k"] for r in former[0].values} == ahead
    again = _restored([_restored(former, window)], window)
    again.watermark(20)
    assert {r["k"] for r in again.values} == set(names) - ahead
    once_more = _restored(former, window)
    late = min(ahead)
    once_more.feed_batch(columns([late], [1], [4]))
    assert not once_more.values
    last = _restored([once_more], window)
    last.watermark(20)
    found = {r["k"]: r["sum_v"] for r in last.values}
    assert found[late] == 2
    assert found.keys() >= set(names) - ahead


def _restored(former, make):
    snapshots = [one.operator.snapshot().freeze(plain_dumps) for one in former]
    operator = make()
    operator.restore(rescaled(snapshots, 1)[0])
    return OperatorHarness(operator)


def test_what_column_windows_cannot_do_is_refused_at_once():
    with pytest.raises(TypeError, match="EventTimeSessionWindows"):
        window(EventTimeSessionWindows.with_gap(Duration.of_millis(5)), count())
    with pytest.raises(ValueError, match="alias"):
        window(TumblingEventTimeWindows.of(Duration.of_millis(10)), count(), count())
    op = window(TumblingEventTimeWindows.of(Duration.of_millis(10)), sum_("x"))
    with pytest.raises(KeyError, match="'x'"):
        op.feed_batch(columns(["a"], [1], [1]))
    with pytest.raises(RuntimeError, match="no timestamp"):
        op.feed_batch(ColumnBatch(pa.record_batch({"k": ["a"], "x": [1]})))


class Letters:
    def __init__(self):
        self.records = []

    def takes(self, error):
        return True

    def add(self, error, record, timestamp=None):
        self.records.append((str(error), record))


def test_a_record_that_does_not_have_the_schema_is_put_aside_alone():
    kind, letters = Types.ROW_NAMED(["n"], [Types.LONG()]), Letters()
    harness = OperatorHarness(ToSchemaOperator(kind), input_types=(kind,), poison=letters)
    harness.feed_batch(RowBatch([Row(n=1), Row(n=1 << 63), Row(n=2)]))
    assert [batch.data.column("n").to_pylist() for batch in harness.elements] == [[1], [2]]
    ((_, record),) = letters.records
    assert record == Row(n=1 << 63)


@pytest.mark.parametrize(
    "make",
    [
        lambda: col("x") < 2**63,
        lambda: 2**64 + col("x"),
        lambda: col("x") == "cut \ud83d",
        lambda: lit(object()),
        lambda: col("x").contains("\ud83d"),
        lambda: col("x").replace("a", "\ud83d"),
        lambda: col("x").is_in(["a", "\ud83d"]),
        lambda: col("x").coalesce(1j),
    ],
)
def test_a_constant_that_arrow_does_not_have_is_refused_where_it_is_written(make):
    with pytest.raises(ValueError, match="a column expression cannot compute with"):
        make()
