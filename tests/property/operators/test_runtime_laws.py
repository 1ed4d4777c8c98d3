"""Laws of the data plane: one hash everywhere, batching is invisible, conversion loses nothing."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.codecs.convert import enforce, to_columns, to_rows
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, ColumnBatch, RowBatch
from penstock.engine.runtime.keys import (
    ChannelCache,
    KeySelection,
    channel_of,
    default_max_parallelism,
    key_group_range,
    operator_index,
    state_key,
)
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.operators import (
    ColumnWindowOperator,
    FlatMapOperator,
    KeyedProcessOperator,
    ListContents,
    ReduceContents,
    ReduceOperator,
)
from penstock.engine.runtime.operators.windowed.grid import GridWindowOperator
from penstock.engine.runtime.operators.windowed.records import RecordWindowOperator
from penstock.engine.runtime.records.columns import count, first, last, sum_
from penstock.engine.runtime.state.contract import ListStateDescriptor
from penstock.engine.runtime.watermarks.valve import StatusWatermarkValve
from penstock.engine.runtime.windowing import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.tools.runtime.operator_harness import OperatorHarness

SCALARS = st.one_of(
    st.text(max_size=5),
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.floats(),
    st.binary(max_size=4),
    st.dates(),
    st.decimals(allow_nan=False),
)
KEYS = st.one_of(SCALARS, st.tuples(SCALARS, st.one_of(SCALARS, st.none())))
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), max_size=40)
STAMPED = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), min_size=1, max_size=40)
FIRST = KeySelection(lambda value: value[0])


@given(st.lists(KEYS, max_size=30), st.integers(1, 64))
def test_the_cache_says_what_the_hash_says(keys, channels):
    cache = ChannelCache(channels, 128)
    expected = [channel_of(key, channels, 128) for key in keys]
    assert cache.channels_of(keys) == expected
    assert cache.channels_of(keys) == expected
    assert [cache.channels_of([key])[0] for key in keys] == expected


@given(KEYS, KEYS)
def test_keys_of_one_state_meet_in_one_channel(one, other):
    if state_key(one) == state_key(other):
        assert channel_of(one, 32, 128) == channel_of(other, 32, 128)
        assert hash(state_key(one)) == hash(state_key(other))


@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
        st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1),
        st.lists(st.booleans(), min_size=1),
        st.lists(st.floats(), min_size=1),
    )
)
def test_rows_and_columns_give_equal_channels(keys):
    batch = ColumnBatch(pa.record_batch({"k": pa.array(keys)}))
    found = KeySelection(("k",)).channels_of_columns(batch, 16, 128).tolist()
    assert found == ChannelCache(16, 128).channels_of(keys)


_PROGRAM = """
import datetime, enum
from decimal import Decimal
from penstock.engine.model.row import Row
from penstock.engine.runtime.keys import channel_of, ChannelCache
keys = ["a", "é", 1, -1, 2**80, 1.5, True, b"x", Decimal("1.10"), datetime.date(2020, 1, 1), ("a", (1, None)), Row(1)]
keys += [f"word{i}" for i in range(200)]
print([channel_of(key, 64, 128) for key in keys], ChannelCache(64, 128).channels_of(keys))
"""


def test_the_hash_is_the_same_in_every_process():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1


@given(st.integers(1, 400))
def test_key_group_ranges_cover_everything_once(parallelism):
    groups = default_max_parallelism(parallelism)
    covered = []
    for index in range(parallelism):
        first, last = key_group_range(groups, parallelism, index)
        assert all(operator_index(g, groups, parallelism) == index for g in (first, last))
        covered += range(first, last + 1)
    assert covered == list(range(groups))


RECORD = Types.ROW_NAMED(
    ["i", "s", "f", "l"],
    [
        Types.LONG(),
        Types.STRING(),
        Types.FLOAT(),
        Types.LIST(Types.TUPLE([Types.INT(), Types.BOOLEAN()])),
    ],
)
INT32 = st.integers(-(2**31), 2**31 - 1)
ROWS = st.lists(
    st.builds(
        Row("i", "s", "f", "l"),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        st.none() | st.floats(width=32, allow_nan=False),
        st.none() | st.lists(st.tuples(INT32, st.booleans()), max_size=3),
    ),
    max_size=8,
)


@given(ROWS)
def test_columns_and_back_is_what_enforce_gives(rows):
    back = to_rows(to_columns(RowBatch(rows), RECORD), RECORD).values
    assert back == rows
    assert enforce(RowBatch(rows), RECORD).values == rows


def cut(items, cuts):
    """The same items in batches."""
    points = sorted({0, len(items), *(c % (len(items) + 1) for c in cuts)})
    return [items[a:b] for a, b in pairwise(points)]


CUTS = st.lists(st.integers(0, 1000), max_size=6)


@given(PAIRS, CUTS)
def test_reduce_does_not_see_batches(records, cuts):
    def run(batches):
        op = OperatorHarness(ReduceOperator(UserFunction(lambda a, b: (a[0], a[1] - b[1])), FIRST))
        for batch in batches:
            op.feed(batch)
        return op.values

    assert run([records]) == run(cut(records, cuts))


class Remember:
    def open(self, context):
        self.seen = context.get_list_state(ListStateDescriptor("seen", Types.INT()))

    def process_element(self, value, ctx):
        self.seen.add(value[1])
        ctx.timer_service().register_event_time_timer(value[1] + 10)
        yield value[0], len(self.seen.get()), ctx.timestamp()

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, tuple(self.seen.get())


@given(PAIRS, CUTS)
def test_process_functions_do_not_see_batches(records, cuts):
    def run(batches):
        function = Remember()
        op = OperatorHarness(
            KeyedProcessOperator(UserFunction(function.process_element, function), FIRST)
        )
        for batch in batches:
            op.feed(batch, [abs(v) for _, v in batch])
        op.watermark(MAX_WATERMARK)
        return op.stamped

    assert run([records]) == run(cut(records, cuts))


@given(st.lists(st.integers(0, 9000), max_size=6), st.booleans())
@settings(max_examples=25)
def test_flat_map_gives_everything_in_order(counts, with_stamps):
    op = OperatorHarness(FlatMapOperator(UserFunction(lambda n: ((n, i) for i in range(n)))))
    stamps = list(range(len(counts))) if with_stamps else None
    op.feed(counts, stamps)
    assert op.values == [(n, i) for n in counts for i in range(n)]
    if with_stamps:
        assert [s for _, s in op.stamped] == [s for s, n in enumerate(counts) for _ in range(n)]


ASSIGNERS = st.one_of(
    st.builds(TumblingEventTimeWindows, st.integers(1, 20)),
    st.builds(SlidingEventTimeWindows, st.integers(1, 20), st.integers(1, 20)),
)
SUM = ReduceContents(UserFunction(lambda a, b: (a[0], a[1] + b[1])))


def steps_of(records, watermarks):
    """Records in batches with growing watermarks between them."""
    batches = cut(records, watermarks)
    marks = sorted(w % 80 for w in watermarks)
    return list(zip(batches, [*marks, *[80] * len(batches)], strict=False))


def run_windows(engine, assigner, steps, lateness, contents=SUM):
    op = OperatorHarness(
        engine(keys=FIRST, assigner=assigner, contents=contents, allowed_lateness_ms=lateness)
    )
    per_step = []
    for batch, watermark in steps:
        before = len(op.stamped)
        op.feed(batch, [stamp for _, stamp in batch])
        op.watermark(watermark)
        per_step.append(Counter(op.stamped[before:]))
    op.watermark(MAX_WATERMARK)
    return per_step, Counter(op.stamped), op.late.get_count()


@given(STAMPED, st.lists(st.integers(0, 79), max_size=5), ASSIGNERS, st.sampled_from([0, 7]))
def test_both_window_engines_agree(records, watermarks, assigner, lateness):
    steps = steps_of(records, watermarks)
    for contents in (SUM, ListContents()):
        fast = run_windows(GridWindowOperator, assigner, steps, lateness, contents)
        general = run_windows(RecordWindowOperator, assigner, steps, lateness, contents)
        assert fast == general


LAST = ReduceContents(UserFunction(lambda _first, second: second))
DISORDER = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), min_size=20, max_size=60)


@given(DISORDER, CUTS, st.integers(0, 40), ASSIGNERS, st.sampled_from([0, 7]))
def test_windows_keep_the_order_in_which_records_came_however_they_are_batched(
    records, cuts, watermark, assigner, lateness
):
    numbered = [(key, stamp, number) for number, (key, stamp) in enumerate(records)]

    def results(engine, batches, contents):
        op = OperatorHarness(
            engine(
                keys=FIRST,
                assigner=assigner,
                contents=contents,
                allowed_lateness_ms=lateness,
                function=UserFunction(lambda _key, window, found: [(window, tuple(found))]),
            )
        )
        op.watermark(watermark)
        for batch in batches:
            op.feed(batch, [stamp for _, stamp, _ in batch])
        op.watermark(MAX_WATERMARK)
        return Counter(op.values), op.late.get_count()

    for contents in (ListContents(), LAST):
        one_by_one = results(RecordWindowOperator, [[one] for one in numbered], contents)
        assert results(GridWindowOperator, [numbered], contents) == one_by_one
        assert results(GridWindowOperator, cut(numbered, cuts), contents) == one_by_one


@given(STAMPED, CUTS)
def test_sessions_do_not_see_batches_nor_their_order(records, cuts):
    assigner = EventTimeSessionWindows.with_gap(Duration.of_millis(5))
    whole = run_windows(RecordWindowOperator, assigner, [(records, -1)], 0)
    parts = run_windows(RecordWindowOperator, assigner, [(b, -1) for b in cut(records, cuts)], 0)
    turned = run_windows(RecordWindowOperator, assigner, [(records[::-1], -1)], 0)
    assert whole[1] == parts[1] == turned[1]


@given(STAMPED, st.lists(st.integers(0, 79), max_size=5), ASSIGNERS)
def test_windows_on_columns_give_what_windows_on_rows_give(records, watermarks, assigner):
    steps = steps_of(records, watermarks)
    op = OperatorHarness(ColumnWindowOperator(assigner, KeySelection(("k",)), (count(), sum_("v"))))
    for batch, watermark in steps:
        if batch:
            data = pa.record_batch({"k": [k for k, _ in batch], "v": [v for _, v in batch]})
            op.feed_batch(ColumnBatch(data, np.array([v for _, v in batch], np.int64)))
        op.watermark(watermark)
    op.watermark(MAX_WATERMARK)
    found = Counter(((row["k"], row["sum_v"]), stamp) for row, stamp in op.stamped)
    _, expected, late = run_windows(RecordWindowOperator, assigner, steps, 0)
    assert found == expected
    assert op.late.get_count() == late


@given(DISORDER, CUTS, ASSIGNERS, st.sets(st.integers(0, 60)))
def test_first_and_last_of_columns_are_what_came_first_and_last(records, cuts, assigner, nulls):
    numbered = [
        (key, stamp, None if number in nulls else number)
        for number, (key, stamp) in enumerate(records)
    ]
    expected = {}
    for key, stamp, number in numbered:
        for window in assigner.windows_at(stamp):
            found = expected.setdefault((key, window.max_timestamp()), [])
            found += [] if number is None else [number]
    op = OperatorHarness(
        ColumnWindowOperator(assigner, KeySelection(("k",)), (first("n"), last("n")))
    )
    for batch in cut(numbered, cuts):
        if batch:
            numbers = pa.array([number for *_, number in batch], pa.int64())
            data = pa.record_batch({"k": [key for key, *_ in batch], "n": numbers})
            op.feed_batch(ColumnBatch(data, np.array([stamp for _, stamp, _ in batch], np.int64)))
    op.watermark(MAX_WATERMARK)
    given_back = {(row["k"], stamp): (row["first_n"], row["last_n"]) for row, stamp in op.stamped}
    assert given_back == {
        place: (found[0], found[-1]) if found else (None, None) for place, found in expected.items()
    }


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=60))
def test_the_valve_only_grows_and_never_passes_the_slowest_channel(events):
    valve = StatusWatermarkValve(4)
    latest = [-1] * 4
    last = -1
    for channel, watermark in events:
        latest[channel] = max(latest[channel], watermark)
        for out in valve.input_watermark(watermark, channel):
            assert out.timestamp_ms > last
            last = out.timestamp_ms
            assert last <= min(latest)
    assert last == max(-1, min(latest))


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers())), st.integers(1, 9), CUTS)
def test_a_hash_edge_does_not_see_batches(records, channels, cuts):
    partitioning = Partitioning(ShipStrategy.HASH, FIRST)

    def run(batches):
        found = {}
        partitioner = make_partitioner(partitioning, channels, 0, 128, 0)
        for batch in batches:
            for channel, part in partitioner.split(RowBatch(batch)):
                found.setdefault(channel, []).extend(part.values)
        return found

    assert run([records]) == run(cut(records, cuts))
