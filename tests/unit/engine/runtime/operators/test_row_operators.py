"""Row operators. Expectations: docs/spec/programs.md#functions and pyflink.datastream.functions."""

import pickle

import numpy as np
import pytest

from penstock.engine.model.errors import FinalError
from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, MIN_WATERMARK, NO_TIMESTAMP, RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import MAX_EMIT, Accepts
from penstock.engine.runtime.operators import (
    CollectOperator,
    FilterOperator,
    FlatMapOperator,
    KeyedAggregateOperator,
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
    MapOperator,
    PrintOperator,
    ProcessOperator,
    ReduceOperator,
    SinkOperator,
)
from penstock.engine.runtime.operators.timer_service import TimeDomain
from penstock.engine.runtime.records.side_output import OutputTag
from penstock.engine.runtime.sink import Sink
from penstock.engine.runtime.state.contract import ListStateDescriptor, ValueStateDescriptor
from tests.tools.runtime.operator_harness import OperatorHarness

FIRST = KeySelection(lambda value: value[0])


def harness(kind, call, *rest, **context):
    return OperatorHarness(kind(UserFunction(call), *rest), **context)


def test_map_keeps_timestamps_and_passes_none():
    op = harness(MapOperator, lambda x: None if x == 2 else x + 1)
    op.feed([1, 2, 3], [10, 20, 30])
    assert op.stamped == [(2, 10), (None, 20), (4, 30)]


def test_filter_and_flat_map_keep_the_timestamps_of_what_stays():
    op = harness(FilterOperator, lambda x: x % 2)
    op.feed([1, 2, 3], [10, 20, 30])
    op.feed([2, 5])
    assert op.stamped == [(1, 10), (3, 30), (5, NO_TIMESTAMP)]
    op = harness(FlatMapOperator, range)
    op.feed([2, 0, 1], [10, 20, 30])
    op.feed([1])
    assert op.stamped == [(0, 10), (1, 10), (0, 30), (0, NO_TIMESTAMP)]


def test_flat_map_refuses_none():
    op = harness(FlatMapOperator, lambda _x: None)
    with pytest.raises(
        TypeError, match="the function returned None, of type NoneType; expected its results"
    ):
        op.feed([1])


@pytest.mark.parametrize("stamps", [None, [5, 6, 7]])
def test_one_record_that_yields_very_many_runs_in_bounded_batches(stamps):
    pulled = []

    def many(count):
        for i in range(count):
            pulled.append(i)
            yield i

    op = FlatMapOperator(UserFunction(many))
    made = OperatorHarness(op)
    batch = made.feed([1])[0]
    assert len(batch) == 1
    pulled.clear()
    array = None if stamps is None else np.array(stamps)
    emitted = iter(op.process(RowBatch([1, 100_000, 2], array), 0))
    first = next(emitted)
    assert len(first) == MAX_EMIT
    assert op.is_in_record
    assert len(pulled) <= MAX_EMIT
    rest = list(emitted)
    assert not op.is_in_record
    assert max(map(len, rest)) <= 2 * MAX_EMIT
    assert len(first) + sum(map(len, rest)) == 100_003
    if stamps is not None:
        assert rest[-1].timestamps[-2:].tolist() == [7, 7]


@pytest.mark.parametrize("kind", [MapOperator, FilterOperator, FlatMapOperator])
def test_the_failing_record_is_named(kind):
    op = harness(kind, lambda x: [1 // x])
    with pytest.raises(ZeroDivisionError):
        op.feed([1, 2, 0, 3])
    assert op.operator.failing_record() == "0"


def test_a_record_whose_key_selector_fails_is_named_and_later_failures_name_none():
    op = harness(KeyedMapOperator, lambda v: v, KeySelection(lambda v: 1 // v))
    op.feed([1, 2])
    with pytest.raises(ZeroDivisionError):
        op.feed([1, 0, 3])
    assert op.operator.failing_record() == "0"
    op.finish()
    assert op.operator.failing_record() is None


def test_a_failing_record_is_cut_and_a_bad_repr_survives():
    class Bad:
        def __repr__(self):
            raise ValueError

    op = harness(MapOperator, lambda x: x.nothing)
    for record, text in (("x" * 1000, "'xxx"), (Bad(), "whose repr raised")):
        with pytest.raises(AttributeError):
            op.feed([record])
        assert text in op.operator.failing_record()
        assert len(op.operator.failing_record()) < 600


class Counting:
    """Opened and closed, and counts its calls in keyed state."""

    def __init__(self):
        self.calls = []

    def open(self, context):
        self.calls.append("open")
        self.state = context.get_state(ValueStateDescriptor("n", Types.INT()))

    def close(self):
        self.calls.append("close")

    def map(self, value):
        seen = (self.state.value() or 0) + 1
        self.state.update(seen)
        return value[0], seen


def test_keyed_functions_have_state_and_are_opened_and_closed_once():
    function = Counting()
    op = OperatorHarness(KeyedMapOperator(UserFunction(function.map, function), FIRST))
    op.feed([("a",), ("b",), ("a",)], [1, 2, 3])
    op.finish()
    op.operator.close()
    assert op.stamped == [(("a", 1), 1), (("b", 1), 2), (("a", 2), 3)]
    assert function.calls == ["open", "close"]


def test_keyed_state_is_refused_on_streams_without_key():
    function = Counting()
    with pytest.raises(
        FinalError,
        match="Counting asks for .*only accessible by functions executed on a KeyedStream",
    ):
        OperatorHarness(MapOperator(UserFunction(function.map, function)))


def test_keyed_filter_and_flat_map_see_the_value():
    op = harness(KeyedFilterOperator, lambda v: v[1] > 1, FIRST)
    op.feed([("a", 1), ("a", 2)], [1, 2])
    assert op.stamped == [(("a", 2), 2)]
    op = harness(KeyedFlatMapOperator, lambda v: [v[1]] * 2, FIRST)
    op.feed([("a", 7)])
    assert op.values == [7, 7]


def test_reduce_passes_the_first_and_emits_running_results():
    op = harness(ReduceOperator, lambda a, b: (a[0], a[1] + b[1]), FIRST)
    op.feed([("a", 1), ("b", 5), ("a", 2)], [1, 2, 3])
    op.feed([("a", 3)])
    assert op.values == [("a", 1), ("b", 5), ("a", 3), ("a", 6)]
    snapshot = pickle.loads(pickle.dumps(op.operator.snapshot()))
    again = ReduceOperator(UserFunction(lambda a, b: (a[0], a[1] + b[1])), FIRST)
    again.restore(snapshot)
    restored = OperatorHarness(again)
    restored.feed([("a", 10)])
    assert restored.values == [("a", 16)]


def test_what_a_function_keeps_changes_and_emits_is_emitted_as_it_was_then():
    class Counting:
        def open(self, runtime_context):
            self.state = runtime_context.get_state(
                ValueStateDescriptor("counts", Types.PICKLED_BYTE_ARRAY())
            )

        def process_element(self, value, ctx):
            counts = self.state.value() or {}
            counts[value] = counts.get(value, 0) + 1
            self.state.update(counts)
            yield counts

    function = Counting()
    op = OperatorHarness(
        KeyedProcessOperator(
            UserFunction(function.process_element, function), KeySelection(lambda value: "k")
        )
    )
    op.feed(["a", "b", "a"])
    assert op.values == [{"a": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 1}]


@pytest.mark.parametrize(
    "make", [list, lambda pair: {0: pair[0], 1: pair[1]}, lambda pair: Row(*pair)]
)
def test_a_reduce_function_may_change_its_first_argument_in_place(make):
    def add(first, second):
        first[1] += second[1]
        return first

    records = [make(("a", 1)), make(("a", 2)), make(("a", 4))]
    op = OperatorHarness(ReduceOperator(UserFunction(add), KeySelection(lambda record: record[0])))
    op.feed(records)
    assert [value[1] for value in op.values] == [1, 3, 7]
    assert [record[1] for record in records] == [1, 2, 4]  # others may read them too


def test_reduce_keeps_keys_apart_that_python_takes_for_equal():
    op = harness(ReduceOperator, lambda a, b: a + b, KeySelection(lambda v: v))
    op.feed([1, True, 1.0, 1])
    assert op.values == [1, True, 1.0, 2]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("SUM", [("a", 3, "x"), ("a", 4, "x"), ("a", 9, "x")]),
        ("MIN", [("a", 3, "x"), ("a", 1, "x"), ("a", 1, "x")]),
        ("MAX", [("a", 3, "x"), ("a", 3, "x"), ("a", 5, "x")]),
        ("MIN_BY", [("a", 3, "x"), ("a", 1, "y"), ("a", 1, "y")]),
        ("MAX_BY", [("a", 3, "x"), ("a", 3, "x"), ("a", 5, "z")]),
    ],
)
def test_built_in_aggregates_follow_the_spec(kind, expected):
    records = [("a", 3, "x"), ("a", 1, "y"), ("a", 5, "z")]
    op = OperatorHarness(KeyedAggregateOperator(kind, 1, FIRST))
    op.feed(records)
    assert op.values == expected
    rows = OperatorHarness(KeyedAggregateOperator(kind, "v", KeySelection(lambda r: r.k)))
    make = Row("k", "v", "o")
    rows.feed([make(*record) for record in records])
    assert rows.values == [make(*record) for record in expected]


LATE = OutputTag("late")


def test_tagged_tuples_stay_in_the_main_output_unless_a_side_output_is_read():
    def split(value, _ctx):
        yield value
        yield LATE, value * 10
        yield OutputTag("nobody"), value

    op = harness(ProcessOperator, split)
    op.feed([1])
    assert op.values == [1, (LATE, 10), (OutputTag("nobody"), 1)]
    op = OperatorHarness(ProcessOperator(UserFunction(split), ("late",)))
    op.feed([1, 2])
    assert op.values == [1, 2]
    assert op.side("late") == [10, 20]
    assert op.side("nobody") == []


def test_process_context_tells_times_and_refuses_timers_without_key():
    seen = []

    def process(_value, ctx):
        seen.append((ctx.timestamp(), ctx.timer_service().current_watermark()))

    op = harness(ProcessOperator, process)
    op.feed([1])
    op.watermark(5)
    op.feed([1], [7])
    assert seen == [(NO_TIMESTAMP, MIN_WATERMARK), (7, 5)]
    refused = harness(
        ProcessOperator, lambda _v, ctx: ctx.timer_service().register_event_time_timer(1)
    )
    with pytest.raises(FinalError, match="keyed stream"):
        refused.feed([1])


class Timed:
    """Registers what its records say."""

    def __init__(self):
        self.fired = []

    def open(self, context):
        self.items = context.get_list_state(ListStateDescriptor("items", Types.INT()))

    def process_element(self, value, ctx):
        _, domain, at = value
        self.items.add(at)
        if domain == "event":
            ctx.timer_service().register_event_time_timer(at)
        else:
            ctx.timer_service().register_processing_time_timer(at)

    def on_timer(self, timestamp, ctx):
        assert ctx.timestamp() == timestamp
        yield ctx.get_current_key(), timestamp, ctx.time_domain(), list(self.items)


def timed():
    function = Timed()
    return KeyedProcessOperator(UserFunction(function.process_element, function), FIRST)


def test_event_timers_fire_in_order_once_per_key_before_the_watermark_goes_on():
    op = OperatorHarness(timed())
    op.feed([("a", "event", 20), ("b", "event", 10), ("a", "event", 20), ("a", "event", 90)])
    taken = op.watermark(50)
    assert op.stamped == [
        (("b", 10, TimeDomain.EVENT_TIME, [10]), 10),
        (("a", 20, TimeDomain.EVENT_TIME, [20, 20, 90]), 20),
    ]
    assert taken[-1].timestamp_ms == 50
    op.watermark(MAX_WATERMARK)
    assert op.values[-1][:2] == ("a", 90)


def test_processing_timers_fire_when_their_millisecond_has_passed():
    op = OperatorHarness(timed())
    op.feed([("a", "processing", 100)])
    assert op.advance(100) == []
    op.advance(101)
    assert op.stamped == [(("a", 100, TimeDomain.PROCESSING_TIME, [100]), 100)]


def test_overdue_processing_timers_fire_before_the_end_and_later_ones_are_dropped():
    op = OperatorHarness(timed())
    op.timers.now = 500
    op.feed([("a", "processing", 100), ("a", "processing", 900)])
    op.finish()
    assert [value[1] for value in op.values] == [100]


def test_state_and_timers_survive_a_snapshot():
    op = OperatorHarness(timed())
    op.feed([(("t", 1), "event", 20), ("b", "processing", 30)])
    snapshot = pickle.loads(pickle.dumps(op.operator.snapshot()))
    again = timed()
    again.restore(snapshot)
    restored = OperatorHarness(again)
    restored.watermark(20)
    restored.advance(31)
    assert [(*v[:2], v[3]) for v in restored.values] == [(("t", 1), 20, [20]), ("b", 30, [30])]


@pytest.mark.parametrize(
    ("identifier", "parallelism", "line"),
    [(None, 1, "1"), (None, 4, "3> 1"), ("id", 1, "id> 1"), ("id", 4, "id:3> 1")],
)
def test_printed_lines_have_the_prefix_of_the_spec(identifier, parallelism, line):
    op = OperatorHarness(PrintOperator(identifier), parallelism=parallelism, subtask=2)
    op.feed([1])
    assert op.values == [line]


def test_printing_uses_the_declared_type():
    op = OperatorHarness(PrintOperator(), input_types=(Types.BOOLEAN(),))
    op.feed([True])
    assert op.values == ["true"]


def test_collect_hands_records_on():
    op = OperatorHarness(CollectOperator())
    op.feed([1, "a"], [1, 2])
    assert op.stamped == [(1, 1), ("a", 2)]


class ListSink(Sink):
    accepts = Accepts.ANY

    def __init__(self):
        self.written = []

    def create_writer(self, context):
        self.context = context
        return self

    def write(self, batch, watermark_ms):
        self.written.append((batch.values, watermark_ms))

    def prepare_commit(self):
        return ["part-0"]

    def close(self):
        self.written.append("closed")


def test_a_sink_writes_with_the_watermark_and_reports_what_it_prepared():
    sink = ListSink()
    op = OperatorHarness(SinkOperator(sink), job_id="j1")
    assert op.operator.accepts is Accepts.ANY
    op.feed([1])
    op.watermark(9)
    op.feed([2])
    op.finish()
    assert sink.written == [([1], MIN_WATERMARK), ([2], 9), "closed"]
    assert op.committables == ["part-0"]
    assert (sink.context.job_prefix, sink.context.attempt_prefix) == ("j1", "j1.0.0")
