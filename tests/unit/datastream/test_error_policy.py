"""Every kind of operator with a function of the user puts poison records aside as `on_error` says, and goes on behind them."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    AsyncDataStream,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DeadLetter,
    ErrorPolicy,
    FiredTimer,
    FiredWindow,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    TimeWindow,
    Trigger,
    TriggerResult,
)
from penstock.datastream.columns import col
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.model.errors import ConfigurationError, ExternalError, GraphError, UserCodeError
from penstock.runtime.elements import ColumnBatch, RowBatch
from penstock.testing import ManualClock, StreamHarness

BAD = OutputTag("bad")
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
POISON = ("a", 0)
"""Never the first record of its key in a window, which a reduce function does not see."""
ROW = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])


def over(value):
    """Fails for the poison record."""
    return 12 // value[1]


def key(value):
    return value[0]


def tens(first, second):
    return first[0], first[1] + 0 * over(second) + second[1]


class Process(ProcessFunction):
    def process_element(self, value, ctx):
        yield over(value)


class ReturningProcess(ProcessFunction):
    def process_element(self, value, ctx):
        return [over(value)]


class KeyedProcess(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield over(value)


class BothMaps(CoMapFunction):
    def map1(self, value):
        return over(value)

    def map2(self, value):
        return over(value)


class BothFlatMaps(CoFlatMapFunction):
    def flat_map1(self, value):
        yield over(value)

    def flat_map2(self, value):
        return [over(value)]


class BothProcesses(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield over(value)

    def process_element2(self, value, ctx):
        yield over(value)


class BothKeyedProcesses(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield over(value)

    def process_element2(self, value, ctx):
        yield over(value)


class Broadcast(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield over(value)

    def process_broadcast_element(self, value, ctx):
        yield over(value)


class KeyedBroadcast(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield over(value)

    def process_broadcast_element(self, value, ctx):
        yield over(value)


class StatefulReduce(ReduceFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def reduce(self, value1, value2):
        return tens(value1, value2)


class Stamps(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return over(value)


async def asks(value):
    return [over(value)]


def divided(data):
    """Fails as a whole if it has a poison row."""
    numbers = data.column("n").to_pylist()
    return pa.RecordBatch.from_pydict({"k": data.column("k"), "n": [12 // n for n in numbers]})


def generated(value):
    yield over(value)


def many(value):
    """More results for a record than fit one batch."""
    over(value)
    yield from range(1500)


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + over(value)

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield over(left) + over(right)


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


TEN = Duration.of_millis(10)
TUMBLING = TumblingEventTimeWindows.of(TEN)
SLIDING = SlidingEventTimeWindows.of(TEN, Duration.of_millis(5))
SESSIONS = EventTimeSessionWindows.with_gap(TEN)


PURE = {
    "map": lambda ds: ds.map(over),
    "flat_map": lambda ds: ds.flat_map(lambda v: [over(v)]),
    "flat_map of a generator": lambda ds: ds.flat_map(generated),
    "flat_map with many results": lambda ds: ds.flat_map(many),
    "flat_map of an iterator": lambda ds: ds.flat_map(lambda v: iter([over(v)])),
    "filter": lambda ds: ds.filter(over),
    "process": lambda ds: ds.process(Process()),
    "process that returns": lambda ds: ds.process(ReturningProcess()),
    "keyed map": lambda ds: ds.key_by(key).map(over),
    "keyed flat_map": lambda ds: ds.key_by(key).flat_map(lambda v: [over(v)]),
    "keyed filter": lambda ds: ds.key_by(key).filter(over),
    "keyed process": lambda ds: ds.key_by(key).process(KeyedProcess()),
    "reduce": lambda ds: ds.key_by(key).reduce(tens),
    "reduce with state": lambda ds: ds.key_by(key).reduce(StatefulReduce()),
    "async, ordered": lambda ds: AsyncDataStream.ordered_wait(ds, asks, Time.seconds(5)),
    "async, unordered": lambda ds: AsyncDataStream.unordered_wait(ds, asks, Time.seconds(5)),
    "co map": lambda ds: ds.connect(nothing(ds)).map(BothMaps()),
    "co flat_map": lambda ds: ds.connect(nothing(ds)).flat_map(BothFlatMaps()),
    "co process": lambda ds: ds.connect(nothing(ds)).process(BothProcesses()),
    "keyed co process": lambda ds: both_keyed(ds).process(BothKeyedProcesses()),
    "keyed co map": lambda ds: both_keyed(ds).map(BothMaps()),
    "keyed co flat_map": lambda ds: both_keyed(ds).flat_map(BothFlatMaps()),
    "broadcast": lambda ds: ds.connect(nothing(ds).broadcast(RULES)).process(Broadcast()),
    "keyed broadcast": lambda ds: (
        ds.key_by(key).connect(nothing(ds).broadcast(RULES)).process(KeyedBroadcast())
    ),
    "broadcast side": lambda ds: nothing(ds).connect(ds.broadcast(RULES)).process(Broadcast()),
    "keyed broadcast side": lambda ds: (
        nothing(ds).key_by(key).connect(ds.broadcast(RULES)).process(KeyedBroadcast())
    ),
}
"""Operators whose results need no times."""

TIMED = {
    "window reduce": lambda ds: ds.key_by(key).window(TUMBLING).reduce(tens),
    "window aggregate": lambda ds: ds.key_by(key).window(TUMBLING).aggregate(Total()),
    "session reduce": lambda ds: ds.key_by(key).window(SESSIONS).reduce(tens),
    "session aggregate": lambda ds: ds.key_by(key).window(SESSIONS).aggregate(Total()),
    "window of all": lambda ds: ds.window_all(TUMBLING).aggregate(Total()),
    "timestamps": lambda ds: ds.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamps())
    ),
}
"""Operators whose records have times, and whose results come at the end."""


def nothing(ds):
    return ds.filter(lambda _: False)


def both_keyed(ds):
    return ds.key_by(key).connect(nothing(ds).key_by(key))


CLEAN = [(name, number) for number in range(1, 13) for name in "ab"]
DIRTY = [*CLEAN[:2], POISON, *CLEAN[2:12], POISON, POISON, *CLEAN[12:], POISON]
POISON_COUNT = DIRTY.count(POISON)


def run(build, values, stamps, *, in_one_batch):
    """The results, dead letters and count of poison records of an operator that is fed these values."""
    with StreamHarness(build) as harness:
        if in_one_batch:
            given = None if stamps is None else np.array(stamps, np.int64)
            harness._wiring.emit(harness._sources[0], RowBatch(list(values), given))
        else:
            for place, value in enumerate(values):
                harness.process_element(value, None if stamps is None else stamps[place])
        harness.wait_for_async()
        harness.end_input()
        letters = harness.values(1) if len(harness._outputs) > 1 else []
        return harness.values(), letters, harness.poison_records


def with_letters(make):
    def build(ds):
        stream = make(ds).on_error(BAD)
        return stream, stream.get_side_output(BAD)

    return build


def cases():
    for name, make in PURE.items():
        yield pytest.param(make, None, id=name)
        yield pytest.param(make, list(range(len(DIRTY))), id=f"{name}, with times")
    for name, make in TIMED.items():
        yield pytest.param(make, list(range(len(DIRTY))), id=name)


@pytest.mark.parametrize("in_one_batch", [True, False], ids=["a batch", "one by one"])
@pytest.mark.parametrize(("make", "stamps"), list(cases()))
def test_results_are_those_of_the_good_records_and_letters_have_the_others(
    make, stamps, in_one_batch
):
    good = [place for place, value in enumerate(DIRTY) if value != POISON]
    good_stamps = None if stamps is None else [stamps[place] for place in good]
    clean = [DIRTY[place] for place in good]
    expected, _, none = run(make, clean, good_stamps, in_one_batch=in_one_batch)
    assert expected and none == 0

    results, letters, count = run(with_letters(make), DIRTY, stamps, in_one_batch=in_one_batch)
    assert sorted(results) == sorted(expected)
    assert [one.record for one in letters] == [POISON] * POISON_COUNT
    assert {one.error_class for one in letters} == {"ZeroDivisionError"}
    at = (
        [None] * count
        if stamps is None
        else [stamps[i] for i, v in enumerate(DIRTY) if v == POISON]
    )
    assert [one.timestamp for one in letters] == at
    assert all("test_error_policy.py" in one.traceback for one in letters)
    assert count == POISON_COUNT

    results, _, count = run(
        lambda ds: make(ds).on_error("skip"), DIRTY, stamps, in_one_batch=in_one_batch
    )
    assert (sorted(results), count) == (sorted(expected), POISON_COUNT)


@pytest.mark.parametrize(("make", "stamps"), list(cases()))
def test_without_a_policy_the_poison_record_fails_the_job(make, stamps):
    for build in (make, lambda ds: make(ds).on_error("fail")):
        with pytest.raises(UserCodeError, match="ZeroDivisionError"):
            run(build, DIRTY, stamps, in_one_batch=True)


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
        harness._wiring.emit(harness._sources[0], ColumnBatch(columns, np.arange(8)))
        good = [number for number in numbers if number]
        assert harness.values() == (good if name == "filter" else [12 // one for one in good])
        assert [one.record.n for one in harness.values(1)] == [0] * len(poison)
        assert [one.timestamp for one in harness.values(1)] == poison


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


# ---------------------------------------------------------------------- which errors count


def test_only_the_named_exceptions_are_put_aside():
    policy = ErrorPolicy.skip(only=(KeyError, ValueError))

    def fails(name):
        raise {"key": KeyError, "value": ValueError, "type": TypeError}[name]("x")

    with StreamHarness(lambda ds: ds.map(fails).on_error(policy)) as harness:
        harness.process_elements("key", "value")
        with pytest.raises(UserCodeError, match="TypeError: x"):
            harness.process_element("type")
        assert harness.poison_records == 2


class OwnEnd(BaseException):
    pass


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, OwnEnd])
def test_what_is_no_exception_fails_the_job_in_spite_of_a_policy(kind):
    def fails(value):
        raise kind("over")

    with StreamHarness(lambda ds: ds.map(fails).on_error("skip").name("Ender")) as harness:
        with pytest.raises(UserCodeError, match="over") as caught:
            harness.process_element(7)
        assert f"{kind.__name__}: over" in str(caught.value)
        assert "in operator: Ender" in str(caught.value) and "at record:   7" in str(caught.value)


def test_an_error_of_the_engine_fails_the_job_in_spite_of_a_policy():
    def fails(value):
        raise ExternalError("the disk is full")

    harness = StreamHarness(lambda ds: ds.map(fails).on_error("skip"))
    with harness, pytest.raises(ExternalError, match="disk is full"):
        harness.process_element(7)


def test_an_operator_behind_fails_the_job_itself():
    harness = StreamHarness(lambda ds: ds.map(key).on_error("skip").map(lambda v: 1 // 0))
    with harness, pytest.raises(UserCodeError, match="ZeroDivisionError"):
        harness.process_element(("a", 1))


# ---------------------------------------------------------------------- types and keys


def test_a_result_that_does_not_have_the_declared_type_is_put_aside():
    with StreamHarness(with_letters(lambda ds: ds.map(lambda v: v, Types.INT()))) as harness:
        harness._wiring.emit(harness._sources[0], RowBatch([1, "no number", 3]))
        assert harness.values() == [1, 3]
        assert [one.record for one in harness.values(1)] == ["no number"]


def test_a_record_that_does_not_become_columns_is_put_aside():
    def build(ds):
        stream = ds.map(lambda v: v).filter(col("n") > 1).on_error(BAD)
        return stream, stream.get_side_output(BAD)

    with StreamHarness(build) as harness:
        harness.process_element("no columns at all")
        assert [one.record for one in harness.values(1)] == ["no columns at all"]


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_record_without_a_key_is_put_aside_before_the_exchange(in_one_batch):
    def build(ds):
        keyed = ds.key_by(lambda v: 12 // v[1]).on_error(BAD)
        return keyed.map(lambda v: v), keyed.get_side_output(BAD)

    results, letters, count = run(build, DIRTY, None, in_one_batch=in_one_batch)
    assert results == CLEAN
    assert [one.record for one in letters] == [POISON] * POISON_COUNT == [POISON] * count


def test_a_key_of_a_wrong_type_is_put_aside():
    def build(ds):
        keyed = ds.key_by(key, Types.STRING()).on_error(BAD)
        return keyed.map(lambda v: v), keyed.get_side_output(BAD)

    results, letters, _ = run(build, [("a", 1), (3, 1), ([], 1)], None, in_one_batch=True)
    assert results == [("a", 1)]
    assert [one.record for one in letters] == [(3, 1), ([], 1)]


# ---------------------------------------------------------------------- letters, metrics, logs


def test_a_letter_says_what_where_and_when():
    with StreamHarness(
        with_letters(lambda ds: ds.map(over).name("Divides")), clock=ManualClock(1234)
    ) as harness:
        harness.process_element(POISON, 5)
        (letter,) = harness.values(1)
    assert letter == DeadLetter(
        record=POISON,
        error_class="ZeroDivisionError",
        error_text="integer division or modulo by zero",
        traceback=letter.traceback,
        operator="Divides",
        subtask=0,
        timestamp=5,
        processing_time=1234,
    )
    assert letter.traceback.endswith("ZeroDivisionError: integer division or modulo by zero")
    assert letter.as_row().as_dict() == {
        "record": "('a', 0)", "error_class": "ZeroDivisionError",
        "error_text": "integer division or modulo by zero", "traceback": letter.traceback,
        "operator": "Divides", "subtask": 0, "timestamp": 5, "processing_time": 1234,
    }  # fmt: skip


class Unsendable:
    def __reduce__(self):
        raise TypeError("not to be pickled")

    def __repr__(self):
        return "Unsendable()"


def test_a_record_that_cannot_be_pickled_is_replaced_by_its_repr():
    def build(ds):
        stream = ds.map(lambda _: Unsendable()).map(lambda _: 1 // 0).on_error(BAD)
        return stream, stream.get_side_output(BAD)

    with StreamHarness(build) as harness:
        harness.process_element(1)
        assert [one.record for one in harness.values(1)] == ["Unsendable()"]


class HugeError(Exception):
    def __str__(self):
        return "x" * 250_000_000


def test_a_huge_error_makes_a_small_letter():
    def fails(value):
        raise HugeError

    with StreamHarness(with_letters(lambda ds: ds.map(fails))) as harness:
        harness.process_element(1)
        (letter,) = harness.values(1)
    assert len(letter.error_text) < 5000 and "cut: 250 million characters" in letter.error_text
    assert len(letter.traceback) < 10_000


def test_a_sample_is_logged_at_most_every_ten_seconds_and_the_rest_at_the_end(caplog):
    clock = ManualClock(0)
    with StreamHarness(lambda ds: ds.map(over).name("Divides").on_error("skip"), clock=clock) as h:
        h.process_elements(POISON, POISON, POISON)
        h.set_processing_time(10_000)
        h.process_elements(POISON, POISON)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split("poison_records=")[1].split(" built_at")[0] for line in lines] == [
        "1 since_last_line=1", "4 since_last_line=3", "5 since_last_line=1",
    ]  # fmt: skip
    assert "operator='Divides' subtask=0" in lines[0]
    assert "record=('a', 0)" in lines[0] and "test_error_policy.py:" in lines[0]
    assert "ZeroDivisionError: integer division or modulo by zero" in lines[0]


# ---------------------------------------------------------------------- programs that cannot run


def test_dead_letters_that_nobody_reads_are_an_error():
    with pytest.raises(GraphError, match=r"side output 'bad', which nobody reads.*get_side_output"):
        StreamHarness(lambda ds: ds.map(over).on_error(BAD))


@pytest.mark.parametrize(
    "make",
    [
        lambda ds: ds.key_by(col("k")).on_error("skip"),
        lambda ds: ds.rebalance().on_error("skip"),
        lambda ds: ds.union(ds).on_error("skip"),
    ],
    ids=["columns as keys", "a partitioning", "a union"],
)
def test_what_calls_no_function_takes_no_policy(make):
    with pytest.raises(GraphError, match="on_error"):
        StreamHarness(make, [ROW])


@pytest.mark.parametrize("given", ["ignore", None, 3, BAD.tag_id, ValueError])
def test_what_is_no_policy_is_refused(given):
    with pytest.raises(TypeError, match="on_error takes 'fail', 'skip', an OutputTag, a Sink"):
        StreamHarness(lambda ds: ds.map(over).on_error(given))


@pytest.mark.parametrize(
    "only", [(), BaseException, KeyboardInterrupt, "ValueError", (ValueError, 1)]
)
def test_a_policy_takes_classes_of_exceptions(only):
    with pytest.raises(TypeError, match="ErrorPolicy takes"):
        ErrorPolicy.skip(only)


def test_a_tag_of_dead_letters_has_no_type():
    with pytest.raises(ConfigurationError, match="Make the tag without a type"):
        ErrorPolicy.side_output(OutputTag("typed", Types.INT()))


def test_every_form_of_a_policy_is_taken():
    def build(ds):
        skipped = ds.map(over).on_error(ErrorPolicy.skip())
        aside = ds.map(over).on_error(ErrorPolicy.side_output(BAD, only=ArithmeticError))
        return skipped, aside.get_side_output(BAD), ds.filter(over).on_error(ErrorPolicy.fail())

    with StreamHarness(build) as harness:
        harness.process_element(("a", 3))
        assert [harness.values(n) for n in range(3)] == [[4], [], [("a", 3)]]
        with pytest.raises(UserCodeError):
            harness.process_element(POISON)
