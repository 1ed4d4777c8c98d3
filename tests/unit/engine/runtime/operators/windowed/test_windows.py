"""Windows on rows. Expectations: docs/spec/windows.md#assigners, #window-operator, #triggers,
#evictors, docs/spec/programs.md#window-classes.
"""

import pickle

import pytest

from penstock.common import Duration
from penstock.engine.model.row import Row
from penstock.engine.model.time import Time
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import (
    AggregateContents,
    ListContents,
    ReduceContents,
    window_operator,
)
from penstock.engine.runtime.operators.windowed.grid import GridWindowOperator
from penstock.engine.runtime.operators.windowed.records import RecordWindowOperator
from penstock.engine.runtime.state.contract import ValueStateDescriptor
from penstock.engine.runtime.windowing import (
    ContinuousProcessingTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    GlobalWindows,
    MergingWindowSet,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tests.tools.runtime.operator_harness import OperatorHarness

KEY = KeySelection(lambda value: value[0])
SUM = ReduceContents(UserFunction(lambda a, b: (a[0], a[1] + b[1])))
ENGINES = [GridWindowOperator, RecordWindowOperator]


class Mean:
    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        return [*accumulator, value[1]]

    def get_result(self, accumulator):
        return sum(accumulator) / len(accumulator)

    def merge(self, a, b):
        return a + b


class Describe:
    """A process window function with both kinds of state and a clean-up."""

    def __init__(self):
        self.cleared = []

    def process(self, key, context, elements):
        fires = context.window_state().get_state(ValueStateDescriptor("fires", Types.INT()))
        total = context.global_state().get_state(ValueStateDescriptor("total", Types.INT()))
        fires.update((fires.value() or 0) + 1)
        total.update((total.value() or 0) + 1)
        window = context.window()
        yield key, window.start, window.end, len(list(elements)), fires.value(), total.value()

    def clear(self, context):
        self.cleared.append(context.window().start)
        context.window_state().get_state(ValueStateDescriptor("fires", Types.INT())).clear()


def windowed(assigner, contents=SUM, engine=window_operator, **given):
    return OperatorHarness(engine(keys=KEY, assigner=assigner, contents=contents, **given))


def test_the_fast_engine_is_chosen_for_event_time_grids_only():
    def kind(assigner, **given):
        return type(windowed(assigner, **given).operator)

    assert kind(TumblingEventTimeWindows.of(Time.seconds(1))) is GridWindowOperator
    assert (
        kind(SlidingEventTimeWindows.of(Duration.of_millis(10), Duration.of_millis(5)))
        is GridWindowOperator
    )
    assert (
        kind(TumblingEventTimeWindows.of(Duration.of_millis(10)), trigger=CountTrigger(2))
        is RecordWindowOperator
    )
    assert kind(EventTimeSessionWindows.with_gap(Duration.of_millis(5))) is RecordWindowOperator
    made = window_operator(
        keys=KeySelection(str), assigner=GlobalWindows(), contents=ListContents()
    )
    assert type(pickle.loads(pickle.dumps(made))) is RecordWindowOperator


@pytest.mark.parametrize("engine", ENGINES)
def test_windows_fire_at_their_end_with_their_largest_timestamp(engine):
    op = windowed(TumblingEventTimeWindows.of(Duration.of_millis(10)), engine=engine)
    op.feed([("a", 1), ("b", 5), ("a", 2), ("a", 9)], [1, 3, 9, 10])
    op.watermark(8)
    assert op.values == []
    op.watermark(9)
    assert sorted(op.stamped) == [(("a", 3), 9), (("b", 5), 9)]
    op.watermark(MAX_WATERMARK)
    assert op.stamped[-1] == (("a", 9), 19)


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
def test_rows_that_a_reduce_gives_no_names_have_those_of_the_records(engine, is_on):
    reduce = UserFunction(lambda a, b: Row(a.key, a.n + b.n))
    operator = engine(
        keys=KeySelection(lambda row: row.key),
        assigner=TumblingEventTimeWindows.of(Duration.of_millis(10)),
        contents=ReduceContents(reduce, ("key", "n")),
    )
    operator.functions_as_columns = is_on
    op = OperatorHarness(operator)
    op.feed([Row(key="a", n=n) for n in range(20)], [1] * 20)
    op.feed([Row(key="a", n=1)], [2])
    op.watermark(9)
    assert repr(op.values) == repr([Row(key="a", n=191)])


@pytest.mark.parametrize("engine", ENGINES)
def test_sliding_windows_overlap_or_leave_gaps(engine):
    op = windowed(
        SlidingEventTimeWindows.of(Duration.of_millis(10), Duration.of_millis(5)), engine=engine
    )
    op.feed([("a", 1), ("a", 2)], [3, 7])
    op.watermark(MAX_WATERMARK)
    assert op.stamped == [(("a", 1), 4), (("a", 3), 9), (("a", 2), 14)]
    gaps = windowed(
        SlidingEventTimeWindows.of(Duration.of_millis(5), Duration.of_millis(10)), engine=engine
    )
    gaps.feed([("a", 1), ("a", 2)], [3, 7])
    gaps.watermark(MAX_WATERMARK)
    assert gaps.stamped == [(("a", 1), 4)]
    assert gaps.late.get_count() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_late_records_are_counted_or_go_to_their_tag(engine):
    op = windowed(TumblingEventTimeWindows.of(Duration.of_millis(10)), engine=engine)
    op.watermark(9)
    op.feed([("a", 1)], [5])
    assert op.late.get_count() == 1
    tagged = windowed(
        TumblingEventTimeWindows.of(Duration.of_millis(10)), engine=engine, late_tag="late"
    )
    tagged.watermark(9)
    tagged.feed([("a", 1), ("a", 2)], [5, 12])
    assert tagged.side("late") == [("a", 1)]
    assert tagged.late.get_count() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_records_within_the_lateness_fire_again_each(engine):
    op = windowed(
        TumblingEventTimeWindows.of(Duration.of_millis(10)), engine=engine, allowed_lateness_ms=5
    )
    op.feed([("a", 1)], [1])
    op.watermark(9)
    op.feed([("a", 2), ("b", 7), ("a", 4)], [2, 2, 3])
    assert op.values == [("a", 1), ("a", 3), ("b", 7), ("a", 7)]
    op.watermark(14)
    op.feed([("a", 8)], [3])
    assert op.late.get_count() == 1
    assert len(op.values) == 4


@pytest.mark.parametrize("engine", ENGINES)
def test_process_functions_see_window_state_and_global_state_and_clean_up(engine):
    function = Describe()
    op = windowed(
        TumblingEventTimeWindows.of(Duration.of_millis(10)),
        ListContents(),
        engine,
        allowed_lateness_ms=5,
        function=UserFunction(function.process, function),
    )
    op.feed([("a", 1), ("a", 1)], [1, 2])
    op.watermark(9)
    op.feed([("a", 1)], [3])
    op.watermark(14)
    op.feed([("a", 1)], [15])
    op.watermark(MAX_WATERMARK)
    assert op.values == [
        ("a", 0, 10, 2, 1, 1), ("a", 0, 10, 3, 2, 2), ("a", 10, 20, 1, 1, 3),
    ]  # fmt: skip
    assert function.cleared[0] == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_aggregates_are_incremental_and_apply_gets_the_result(engine):
    class Apply:
        def apply(self, key, window, inputs):
            return [(key, window.end, list(inputs))]

    mean = AggregateContents(UserFunction(Mean().add, Mean()))
    op = windowed(TumblingEventTimeWindows.of(Duration.of_millis(10)), mean, engine)
    op.feed([("a", 1), ("a", 3)], [1, 2])
    op.watermark(9)
    assert op.values == [2.0]
    function = Apply()
    applied = windowed(
        TumblingEventTimeWindows.of(Duration.of_millis(10)),
        mean,
        engine,
        function=UserFunction(function.apply, function),
    )
    applied.feed([("a", 1), ("a", 3)], [1, 2])
    applied.watermark(9)
    assert applied.values == [("a", 10, [2.0])]


@pytest.mark.parametrize("engine", ENGINES)
def test_records_without_timestamp_are_refused_with_the_remedy(engine):
    op = windowed(TumblingEventTimeWindows.of(Duration.of_millis(10)), engine=engine)
    with pytest.raises(RuntimeError, match="assign_timestamps_and_watermarks"):
        op.feed([("a", 1)])


@pytest.mark.parametrize("engine", ENGINES)
def test_windows_survive_a_snapshot(engine):
    op = windowed(TumblingEventTimeWindows.of(Duration.of_millis(10)), engine=engine)
    op.feed([("a", 1), (("t", 1), 5)], [1, 2])
    again = engine(
        keys=KEY, assigner=TumblingEventTimeWindows.of(Duration.of_millis(10)), contents=SUM
    )
    again.restore(pickle.loads(pickle.dumps(op.operator.snapshot())))
    restored = OperatorHarness(again)
    restored.feed([("a", 2)], [3])
    restored.watermark(9)
    assert sorted(restored.values, key=str) == [("a", 3), (("t", 1), 5)]


def test_sessions_merge_when_they_touch_and_fire_at_their_new_end():
    op = windowed(EventTimeSessionWindows.with_gap(Duration.of_millis(3)))
    op.feed([("a", 1), ("a", 2), ("b", 9)], [0, 3, 20])
    op.watermark(4)
    assert op.values == []
    op.watermark(5)
    assert op.stamped == [(("a", 3), 5)]
    op.feed([("b", 1), ("b", 2)], [26, 23])  # the second joins two sessions
    op.watermark(MAX_WATERMARK)
    assert op.stamped[-1] == (("b", 12), 28)


def test_session_gaps_may_depend_on_the_record_and_must_be_positive():
    class Gap(SessionWindowTimeGapExtractor):
        def extract(self, element):
            return element[1]

    op = windowed(EventTimeSessionWindows.with_dynamic_gap(Gap()))
    op.feed([("a", 10), ("a", 1)], [0, 8])
    op.watermark(MAX_WATERMARK)
    assert op.stamped == [(("a", 11), 9)]
    for gap in (0, None, 1.5):
        with pytest.raises(ValueError, match=f"positive, in whole ms, got {gap}"):
            op.feed([("a", gap)], [50])


def test_a_trigger_that_cannot_merge_is_refused_for_sessions():
    class Stubborn(Trigger):
        def on_element(self, element, timestamp, window, ctx):
            return TriggerResult.CONTINUE

        on_processing_time = on_event_time = lambda self, time, window, ctx: TriggerResult.CONTINUE

        def clear(self, window, ctx):
            return None

    with pytest.raises(ValueError, match="cannot"):
        windowed(EventTimeSessionWindows.with_gap(Duration.of_millis(3)), trigger=Stubborn())


def test_processing_time_windows_fire_by_the_clock_and_ignore_timestamps():
    op = windowed(TumblingProcessingTimeWindows.of(Duration.of_millis(10)))
    op.timers.now = 103
    op.feed([("a", 1), ("a", 2)], [5000, 1])
    op.advance(109)
    assert op.values == []
    op.advance(110)
    assert op.stamped == [(("a", 3), 109)]
    sessions = windowed(ProcessingTimeSessionWindows.with_gap(Duration.of_millis(10)))
    sessions.feed([("a", 1)])
    sessions.advance(5)
    sessions.feed([("a", 2)])
    sessions.advance(14)
    assert sessions.values == []
    sessions.advance(15)
    assert sessions.values == [("a", 3)]


def test_count_windows_fire_when_full_and_never_else():
    op = windowed(CountTumblingWindowAssigner.of(2), ListContents())
    op.feed([("a", 1), ("b", 1), ("a", 2), ("a", 3)])
    op.watermark(MAX_WATERMARK)
    assert op.values == [("a", 1), ("a", 2)]
    sliding = windowed(
        CountSlidingWindowAssigner.of(3, 2), ReduceContents(UserFunction(lambda a, b: a + b))
    )
    sliding.feed([("a",), ("a",), ("a",), ("a",), ("a",)])
    assert sliding.values == [("a",) * 3, ("a",) * 3]


def test_purging_and_plain_count_triggers_on_the_global_window():
    plain = windowed(GlobalWindows.create(), trigger=CountTrigger.of(2))
    plain.feed([("a", 1)] * 4)
    assert plain.values == [("a", 2), ("a", 4)]
    purging = windowed(GlobalWindows.create(), trigger=PurgingTrigger.of(CountTrigger.of(2)))
    purging.feed([("a", 1)] * 4)
    assert purging.values == [("a", 2), ("a", 2)]


class Forgetful(Trigger):
    """Forgets to return in one of its methods."""

    def __init__(self, forgotten):
        self._forgotten = forgotten

    def _answer(self, method):
        return None if method == self._forgotten else TriggerResult.CONTINUE

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_event_time_timer(5)
        ctx.register_processing_time_timer(5)
        return self._answer("on_element")

    def on_event_time(self, time, window, ctx):
        return self._answer("on_event_time")

    def on_processing_time(self, time, window, ctx):
        return self._answer("on_processing_time")

    def clear(self, window, ctx):
        pass


@pytest.mark.parametrize("forgotten", ["on_element", "on_event_time", "on_processing_time"])
@pytest.mark.parametrize("wrapped", [lambda trigger: trigger, PurgingTrigger.of])
def test_a_trigger_that_returns_nothing_is_named(forgotten, wrapped):
    op = windowed(GlobalWindows.create(), trigger=wrapped(Forgetful(forgotten)))
    with pytest.raises(
        TypeError, match=f"Forgetful.{forgotten} must return a TriggerResult .*None"
    ):
        op.feed([("a", 1)])
        if forgotten == "on_event_time":
            op.watermark(9)
        op.advance(9)


def test_continuous_processing_time_fires_at_multiples():
    op = windowed(
        GlobalWindows.create(), trigger=ContinuousProcessingTimeTrigger.of(Time.milliseconds(10))
    )
    op.timers.now = 3
    op.feed([("a", 1)])
    for now in (10, 11, 21):
        op.advance(now)
    assert op.values == [("a", 1), ("a", 1)]


def test_continuous_processing_time_goes_on_when_a_window_of_event_time_is_long_over():
    op = windowed(
        TumblingEventTimeWindows.of(Time.milliseconds(10)),
        trigger=ContinuousProcessingTimeTrigger.of(Time.milliseconds(100)),
    )
    op.timers.now = 1030
    op.feed([("a", 1)], [5])
    op.advance(1101)
    assert op.values == [("a", 1)]
    op.feed([("a", 2)], [6])
    op.advance(1201)
    assert op.values == [("a", 1), ("a", 3)]
    op.watermark(9)  # its end: dropped, and no timer is left
    op.advance(5000)
    assert op.values == [("a", 1), ("a", 3)]


def test_a_merge_takes_in_a_window_in_flight_that_equals_the_new_one():
    merged = []
    windows = MergingWindowSet({TimeWindow(0, 5): "s1", TimeWindow(10, 15): "s2"})

    def merge_all(found, callback):
        callback(found, TimeWindow(0, 15))

    result = windows.add(
        TimeWindow(0, 5),
        merge_all,
        lambda result, old, state, others: merged.append((result, old, state, others)),
    )
    assert result == TimeWindow(0, 15)
    assert set(windows.mapping) == {TimeWindow(0, 15)}
    ((into, old, state, others),) = merged
    assert into == result
    assert sorted(old) == [TimeWindow(0, 5), TimeWindow(10, 15)]
    assert {state, *others} == {"s1", "s2"}


def test_sessions_have_no_state_of_a_window_but_that_of_their_key():
    class Counting:
        """A process window function that asks for state."""

        def __init__(self, store):
            self.store = store

        def process(self, key, context, elements):
            state = getattr(context, self.store)().get_state(
                ValueStateDescriptor("fires", Types.INT())
            )
            state.update((state.value() or 0) + 1)
            return [state.value()]

    def counting(store):
        function = Counting(store)
        op = windowed(
            EventTimeSessionWindows.with_gap(Duration.of_millis(3)),
            function=UserFunction(function.process, function),
        )
        op.feed([("a", 1), ("a", 1)], [0, 10])
        op.watermark(50)
        return op.values

    assert counting("global_state") == [1, 2]
    with pytest.raises(RuntimeError, match=r"windows that merge.*global_state"):
        counting("window_state")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reduce_function_of_windows_may_change_its_first_argument_in_place(engine):
    def add(first, second):
        first[1] += second[1]
        return first

    op = windowed(
        SlidingEventTimeWindows.of(Duration.of_millis(10), Duration.of_millis(5)),
        ReduceContents(UserFunction(add)), engine,
        allowed_lateness_ms=20,
    )  # fmt: skip
    records = [["a", 1], ["a", 2], ["a", 4]]
    op.feed(records, [6, 7, 12])
    op.watermark(9)
    op.watermark(14)
    op.feed([["a", 8]], [13])  # late for one window, which fires again
    assert op.values == [["a", 3], ["a", 7], ["a", 15]]
    assert records == [["a", 1], ["a", 2], ["a", 4]]


def test_what_a_window_has_given_does_not_change_with_it():
    def add(first, second):
        first[1] += second[1]
        return first

    op = windowed(
        GlobalWindows.create(), ReduceContents(UserFunction(add)), trigger=CountTrigger.of(1)
    )
    op.feed([["a", 1], ["a", 2], ["a", 4]])
    assert op.values == [["a", 1], ["a", 3], ["a", 7]]


def test_late_merges_into_the_past_cannot_happen_quietly():
    op = windowed(EventTimeSessionWindows.with_gap(Duration.of_millis(3)), late_tag="late")
    op.watermark(20)
    op.feed([("a", 1)], [10])
    assert op.side("late") == [("a", 1)]
    assert op.operator.state.snapshot()["__merging_windows__"].keys == []


@pytest.mark.parametrize(
    ("assigner", "text"),
    [
        (TumblingEventTimeWindows.of(Time.seconds(1)), "TumblingEventTimeWindows(1000, 0)"),
        (TumblingProcessingTimeWindows(50, 10), "TumblingProcessingTimeWindows(50, 10)"),
        (SlidingEventTimeWindows(60, 60), "SlidingEventTimeWindows(60, 60, 0)"),
        (CountSlidingWindowAssigner.of(6, 2), "CountSlidingWindowAssigner(6, 2)"),
    ],
)
def test_assigners_say_what_they_are(assigner, text):
    assert str(assigner) == text


def test_windows_of_no_length_are_refused():
    with pytest.raises(ValueError, match="TumblingEventTimeWindows: size and slide must be"):
        TumblingEventTimeWindows(0)
