"""What the record of a dead letter is where no single record fails, and what stays of a record that was put aside."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Duration, Row, Types
from penstock.datastream import (
    AggregateFunction,
    CoProcessFunction,
    FiredTimer,
    FiredWindow,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    TimeWindow,
    Trigger,
    TriggerResult,
)
from penstock.datastream.columns import col
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.engine.model.errors import UserCodeError
from penstock.engine.runtime.elements import ColumnBatch
from penstock.testing import StreamHarness
from tests.tools.programs.poison import (
    BAD,
    CLEAN,
    DIRTY,
    POISON,
    POISON_COUNT,
    emit_batch,
    key,
    over,
    run,
    with_letters,
)

ROW = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
SMALL = OutputTag("small", Types.BYTE())
TEN = Duration.of_millis(10)
TUMBLING = TumblingEventTimeWindows.of(TEN)
SLIDING = SlidingEventTimeWindows.of(TEN, Duration.of_millis(5))
SESSIONS = EventTimeSessionWindows.with_gap(TEN)


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + over(value)

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Counting(Trigger):
    """Fires with every second record, and fails for the poison record."""

    def on_element(self, element, timestamp, window, ctx):
        over(element)
        return TriggerResult.FIRE if element[1] % 2 == 0 else TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        pass


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield over(left) + over(right)


def divided(data):
    """Fails as a whole if it has a poison row."""
    numbers = data.column("n").to_pylist()
    return pa.RecordBatch.from_pydict({"k": data.column("k"), "n": [12 // n for n in numbers]})


# ---------------------------------------------------------------------- what the record of a letter is


class Timers(KeyedProcessFunction):
    """Sets a timer for each record. The timers of the poison key fail, after a result."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])
        ctx.timer_service().register_processing_time_timer(value[1])
        yield from ()

    def on_timer(self, timestamp, ctx):
        yield f"{ctx.get_current_key()} {ctx.time_domain().name} {timestamp}"
        if ctx.get_current_key() == "bad":
            raise ValueError("a timer")


def test_a_timer_that_fails_is_the_record_and_the_timers_behind_it_fire():
    with StreamHarness(with_letters(lambda ds: ds.key_by(key).process(Timers()))) as harness:
        harness.process_elements(("a", 10), ("bad", 11), ("b", 12))
        harness.process_watermark(20)
        harness.set_processing_time(30)
        assert harness.values() == [
            f"{name} {domain} {at}"
            for domain in ("EVENT_TIME", "PROCESSING_TIME")
            for name, at in (("a", 10), ("bad", 11), ("b", 12))
        ]
        first, second = harness.values(1)
        assert first.record == FiredTimer("bad", 11, "EVENT_TIME") and first.timestamp == 11
        assert second.record == FiredTimer("bad", 11, "PROCESSING_TIME")
        assert second.timestamp is None


class Aside:
    """Yields each record for a side output of bytes."""

    def process_element(self, value, ctx):
        yield SMALL, value

    process_element1 = process_element2 = process_element

    def process(self, key, context, elements):
        yield from ((SMALL, one) for one in elements)


class AsideInProcess(Aside, ProcessFunction):
    pass


class AsideOfKey(Aside, KeyedProcessFunction):
    pass


class AsideOfTwo(Aside, CoProcessFunction):
    pass


class AsideOfWindow(Aside, ProcessWindowFunction):
    pass


def _late(ds):
    windows = ds.key_by(lambda _: 0).window(TUMBLING).side_output_late_data(SMALL)
    return windows.reduce(lambda a, _: a)


@pytest.mark.parametrize(
    "make",
    [
        lambda ds: ds.process(AsideInProcess()),
        lambda ds: ds.key_by(lambda _: 0).process(AsideOfKey()),
        lambda ds: ds.connect(ds).process(AsideOfTwo()),
        lambda ds: ds.key_by(lambda _: 0).window(TUMBLING).process(AsideOfWindow()),
        _late,
    ],
    ids=["process", "keyed", "two inputs", "window", "late data"],
)
def test_a_value_that_does_not_fit_the_type_of_its_side_output_is_put_aside_alone(make):
    def build(ds):
        stream = make(ds).on_error(BAD)
        return stream.get_side_output(SMALL), stream.get_side_output(BAD)

    with StreamHarness(build) as harness:
        if make is _late:
            harness.process_watermark(20)
        for at, number in enumerate((1, 300, 2)):
            harness.process_element(number, at)
        harness.end_input()
        assert set(harness.values()) == {1, 2}
        assert {(one.record, one.error_class) for one in harness.values(1)} == {
            (300, "OverflowError")
        }
        assert len(harness.values()) == 2 * len(harness.values(1))


class Whole(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, len(list(elements))
        if key == "bad":
            raise ValueError("a window")

    def clear(self, context):
        pass


@pytest.mark.parametrize("windows", [TUMBLING, SESSIONS], ids=["tumbling", "sessions"])
@pytest.mark.parametrize("lateness", [0, 100], ids=["", "late records"])
def test_a_window_function_that_fails_has_its_window_as_the_record(windows, lateness):
    def make(ds):
        return ds.key_by(key).window(windows).allowed_lateness(lateness).process(Whole())

    with StreamHarness(with_letters(make)) as harness:
        for name in ("a", "bad", "b"):
            harness.process_element((name, 1), 5)
        harness.process_watermark(20)
        # What it yielded before it raised stays.
        assert sorted(harness.take_values()) == [("a", 1), ("b", 1), ("bad", 1)]
        if lateness:
            harness.process_element(("bad", 1), 5)
            assert harness.take_values() == [("bad", 2)]
        letters = harness.values(1)
        assert len(letters) == 1 + bool(lateness)
        window = TimeWindow(0, 10) if windows is TUMBLING else TimeWindow(5, 15)
        assert {one.record for one in letters} == {FiredWindow("bad", window)}
        assert {one.timestamp for one in letters} == {window.max_timestamp()}


class Ends(Total):
    """Fails for one key when the window fires."""

    def get_result(self, accumulator):
        return 12 // (accumulator - 12)


@pytest.mark.parametrize("function", [None, Whole()], ids=["alone", "with a window function"])
def test_an_aggregate_that_fails_at_its_result_has_the_window_as_the_record(function):
    def make(ds):
        return ds.key_by(key).window(TUMBLING).aggregate(Ends(), function)

    with StreamHarness(with_letters(make)) as harness:
        for name, number in (("a", 2), ("poison", 1), ("b", 3)):
            harness.process_element((name, number), 5)
        harness.process_watermark(20)
        assert len(harness.values()) == 2
        (letter,) = harness.values(1)
        assert letter.record == FiredWindow("poison", TimeWindow(0, 10))


def test_a_record_whose_trigger_fails_is_put_aside_and_is_in_its_window_already():
    def make(ds):
        return ds.key_by(key).window(TUMBLING).trigger(Counting()).process(Whole())

    with StreamHarness(with_letters(make)) as harness:
        for number in (1, 0, 2):
            harness.process_element(("a", number), 5)
        assert harness.values() == [("a", 3)]
        assert [one.record for one in harness.values(1)] == [POISON]


def test_an_interval_join_that_fails_has_the_pair_as_the_record():
    def build(left, right):
        joined = (
            left.key_by(key).interval_join(right.key_by(key)).between(Duration.of_millis(-10), TEN)
        )
        return with_letters(lambda _: joined.process(Pairs()))(None)

    with StreamHarness(build) as harness:
        for number in (4, 0, 3):
            harness.process_element(("a", number), 5)
        harness.process_element(("a", 2), 6, input=1)
        assert sorted(harness.values()) == [9, 10]
        (letter,) = harness.values(1)
        assert (letter.record, letter.timestamp) == ((POISON, ("a", 2)), 6)


def test_a_window_join_that_fails_has_the_window_as_the_record():
    def build(left, right):
        joined = left.join(right).where(key).equal_to(key).window(TUMBLING)
        return with_letters(lambda _: joined.apply(lambda one, two: over(one) + over(two)))(None)

    with StreamHarness(build) as harness:
        for name, number in (("a", 0), ("b", 4)):
            harness.process_element((name, number), 5)
            harness.process_element((name, 2), 6, input=1)
        harness.process_watermark(20)
        harness.process_watermark(20, input=1)
        assert harness.values() == [9]
        (letter,) = harness.values(1)
        assert letter.record == FiredWindow("a", TimeWindow(0, 10))


# ---------------------------------------------------------------------- columns


COLUMNS = {
    "map_batches": lambda ds: ds.map_batches(divided, ROW),
    "select": lambda ds: ds.select("k", n=12 // col("n")),
    "filter": lambda ds: ds.filter(12 // col("n") > 0),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("poison", [[], [0], [1, 2, 3], [7], list(range(8))])
def test_a_batch_of_columns_is_cut_until_its_poison_rows_are_found(name, poison):
    numbers = [0 if place in poison else place + 1 for place in range(8)]
    columns = pa.RecordBatch.from_pydict({"k": ["x"] * 8, "n": numbers})

    def build(ds):
        stream = COLUMNS[name](ds).on_error(BAD)
        return stream.map(lambda row: row.n), stream.get_side_output(BAD)

    with StreamHarness(build, [ROW]) as harness:
        emit_batch(harness, ColumnBatch(columns, np.arange(8)))
        good = [number for number in numbers if number]
        assert harness.values() == (good if name == "filter" else [12 // one for one in good])
        assert [one.record.n for one in harness.values(1)] == [0] * len(poison)
        assert [one.timestamp for one in harness.values(1)] == poison


# ---------------------------------------------------------------------- what Python does not have


FAR = pa.array([0, 569_000_000_000_000_000, 5], pa.timestamp("us"))
FAR_ROW = Types.ROW_NAMED(["k", "n", "at"], [Types.STRING(), Types.LONG(), Types.SQL_TIMESTAMP()])


class _AtOfKey(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value.n, value.at.year


def _counted(make):
    def build(ds):
        stream = make(ds).on_error(BAD)
        return stream.map(lambda _: 1), stream.get_side_output(BAD)

    return build


def _looks_at(row):
    return row.at.year > 0 and bool(12 // row.n)


@pytest.mark.parametrize(
    "make",
    [
        lambda ds: ds.map(lambda row: (row.n, row.at)),
        lambda ds: ds.map(lambda row: (row.n, [row.at for _ in range(2)])),
        lambda ds: ds.map(str),
        lambda ds: ds.filter(_looks_at),
        lambda ds: ds.flat_map(lambda row: [row.at]),
        lambda ds: ds.key_by(lambda row: row.k).process(_AtOfKey()),
        lambda ds: ds.key_by(lambda row: row.at).map(lambda row: row.n),
    ],
    ids=["columns", "fields", "records", "filter", "flat_map", "keyed", "key"],
)
def test_a_time_that_python_does_not_have_is_put_aside_where_it_is_read(make):
    columns = pa.RecordBatch.from_pydict({"k": ["x"] * 3, "n": [1, 2, 3], "at": FAR})
    with StreamHarness(_counted(make), [FAR_ROW]) as harness:
        emit_batch(harness, ColumnBatch(columns))
        assert harness.values() == [1, 1]
        (letter,) = harness.values(1)
    assert letter.record == Row(k="x", n=2, at="20000-11-22 03:33:20.000000")
    assert "column 'at': Python has no value for 20000-11-22" in letter.error_text


@pytest.mark.parametrize(
    "make",
    [
        lambda ds: ds.map(lambda row: 12 // row.n),
        lambda ds: ds.filter(lambda row: 12 // row.n > 0),
        lambda ds: ds.flat_map(lambda row: [12 // row.n]),
    ],
    ids=["map", "filter", "flat_map"],
)
def test_a_time_that_python_does_not_have_is_nothing_to_a_function_that_does_not_read_it(make):
    columns = pa.RecordBatch.from_pydict({"k": ["x"] * 3, "n": [0, 2, 3], "at": FAR})
    with StreamHarness(_counted(make), [FAR_ROW]) as harness:
        emit_batch(harness, ColumnBatch(columns))
        (letter,) = harness.values(1)
        assert letter.error_class == "ZeroDivisionError" and letter.record.n == 0
        assert harness.values() == [1, 1]


def test_without_a_policy_the_error_names_the_column_and_no_other_record():
    columns = pa.RecordBatch.from_pydict({"k": ["x"] * 3, "n": [1, 2, 3], "at": FAR})
    with (
        StreamHarness(lambda ds: ds.map(lambda row: (row.n, row.at)), [FAR_ROW]) as harness,
        pytest.raises(UserCodeError, match="column 'at': Python has no value") as raised,
    ):
        emit_batch(harness, ColumnBatch(columns))
    assert "at record" not in str(raised.value) and "pyarrow" not in str(raised.value)


# ---------------------------------------------------------------------- what stays


class CountsFirst(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield "before", value[1]
        over(value)
        yield "behind", value[1]


def test_what_a_function_changed_and_yielded_before_it_raised_stays():
    with StreamHarness(with_letters(lambda ds: ds.key_by(key).process(CountsFirst()))) as harness:
        harness.process_elements(("a", 1), POISON, ("a", 2))
        assert harness.values() == [
            ("before", 1), ("behind", 1), ("before", 0), ("before", 2), ("behind", 2),
        ]  # fmt: skip
        assert harness.keyed_state("seen") == {"a": 3}
        assert len(harness.values(1)) == 1


def test_a_long_result_that_breaks_off_keeps_what_came_before_and_its_times():
    def long(value):
        yield from range(2500)
        over(value)

    with StreamHarness(with_letters(lambda ds: ds.flat_map(long))) as harness:
        for number, stamp in ((0, 7), (1, 8)):
            harness.process_element(("a", number), stamp)
        stamps = [one.timestamp for one in harness.output()]
        assert stamps == [7] * 2500 + [8] * 2500
        assert [one.timestamp for one in harness.values(1)] == [7]


def stopping(value):
    return next(iter([])) if value == POISON else value


@pytest.mark.parametrize(
    "make",
    [
        lambda ds: ds.map(stopping),
        lambda ds: ds.filter(stopping),
        lambda ds: ds.flat_map(lambda value: [stopping(value)]),
        lambda ds: ds.key_by(key).map(stopping),
    ],
)
@pytest.mark.parametrize("stamps", [None, list(range(len(DIRTY)))], ids=["", "with times"])
def test_a_stop_iteration_costs_one_record(make, stamps):
    results, letters, _ = run(with_letters(make), DIRTY, stamps, in_one_batch=True)
    assert results == CLEAN
    assert [one.record for one in letters] == [POISON] * POISON_COUNT
