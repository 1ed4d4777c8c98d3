"""Windows, timers and side outputs: the same programs ran on PyFlink 2.3, which gave the expected results.

Where another result is expected, the name of the test says why (docs/reference/compatibility.md#where-results-differ).
"""

import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeExecutionMode,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import GraphError
from penstock.engine.runtime.elements import MAX_WATERMARK
from penstock.testing import ManualClock, StreamHarness
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.programs.user_functions import SecondIsTime, first_of


def ms(count):
    return Time.milliseconds(count)


TUMBLING = TumblingEventTimeWindows.of(ms(10))


class Shown(ProcessWindowFunction):
    """The start of the window and the times of its records."""

    def process(self, key, context, elements):
        yield getattr(context.window(), "start", None), [element[1] for element in elements]


def results(build, times, delay=0, *, watermark_each=True):
    """(timestamp, value) of all results. Each record has the key "a" and its time; behind each comes a watermark."""
    highest = times[0]
    with StreamHarness(build) as harness:
        for time in times:
            harness.process_element(("a", time), time)
            highest = max(highest, time)
            if watermark_each:
                harness.process_watermark(highest - delay - 1)
        harness.process_watermark(MAX_WATERMARK)
        return [
            (one.timestamp, one.value)
            for one in harness.output()
            if hasattr(one, "timestamp") and hasattr(one, "value")
        ]


def windows(assigner, trigger=None, lateness=0):
    def build(stream):
        windowed = stream.key_by(first_of).window(assigner).allowed_lateness(lateness)
        if trigger is not None:
            windowed = windowed.trigger(trigger)
        return windowed.process(Shown())

    return build


LATE = [5, 10, 6, 14, 7, 15, 8, 16, 9, 3, 40, 29, 30]


def test_a_late_record_fires_its_window_at_its_own_time():
    assert results(windows(TUMBLING, lateness=5), LATE) == [
        (9, (0, [5])),
        (6, (0, [5, 6])),
        (7, (0, [5, 6, 7])),
        (19, (10, [10, 14, 15, 16])),
        (30, (30, [30])),
        (49, (40, [40])),
    ]  # fmt: skip


def test_the_same_holds_where_a_purging_trigger_needs_single_records():
    trigger = PurgingTrigger.of(EventTimeTrigger.create())
    found = results(windows(TUMBLING, trigger, 5), [5, 10, 6, 14, 7, 15, 8, 16, 40])
    assert found[:3] == [(9, (0, [5])), (6, (0, [6])), (7, (0, [7]))]


def test_a_reduced_window_has_the_same_times():
    def build(stream):
        windowed = stream.key_by(first_of).window(TUMBLING).allowed_lateness(5)
        return windowed.reduce(lambda a, b: (a[0], a[1] + b[1]))

    assert results(build, [5, 10, 6, 14, 7, 15])[:3] == [
        (9, ("a", 5)),
        (6, ("a", 11)),
        (7, ("a", 18)),
    ]


def test_a_count_fires_at_the_time_of_the_record_that_fills_it():
    counted = windows(GlobalWindows.create(), PurgingTrigger.of(CountTrigger.of(2)))
    assert results(counted, [5, 3, 9, 8]) == [(3, (None, [5, 3])), (8, (None, [9, 8]))]

    def build(stream):
        return stream.key_by(first_of).count_window(2).reduce(lambda a, b: (a[0], a[1] + b[1]))

    assert results(build, [5, 3, 9, 8]) == [(3, ("a", 8)), (8, ("a", 17))]
    assert results(windows(TUMBLING, CountTrigger.of(2)), [1, 2, 3, 4], watermark_each=False) == [
        (2, (0, [1, 2])),
        (4, (0, [1, 2, 3, 4])),
    ]


def test_a_count_of_records_without_timestamps_gives_results_without_timestamps():
    with StreamHarness(
        lambda stream: stream.key_by(first_of).count_window(1).reduce(max)
    ) as harness:
        harness.process_element(("a", 1))
        assert [(one.timestamp, one.value) for one in harness.output()] == [(None, ("a", 1))]


def test_a_trigger_that_fires_early_gives_results_the_times_of_its_timers():
    continuous = windows(TumblingEventTimeWindows.of(ms(20)), ContinuousEventTimeTrigger.of(ms(5)))
    found = results(continuous, [0, 3, 5, 9, 12, 22])
    assert found[:4] == [
        (5, (0, [0, 3, 5, 9])),
        (10, (0, [0, 3, 5, 9, 12])),
        (15, (0, [0, 3, 5, 9, 12])),
        (19, (0, [0, 3, 5, 9, 12])),
    ]


def test_timers_that_a_trigger_sets_for_a_time_that_has_come_fire_in_the_same_pass_as_in_flink():
    continuous = windows(TumblingEventTimeWindows.of(ms(20)), ContinuousEventTimeTrigger.of(ms(5)))
    assert [time for time, _ in results(continuous, [22, 41])] == [25, 30, 35, 39, 45, 50, 55, 59]


def test_sessions_that_merge_keep_all_their_values_as_in_flink():
    def build(stream):
        sessions = stream.key_by(first_of).window(EventTimeSessionWindows.with_gap(ms(12)))
        return sessions.reduce(lambda a, b: (a[0], a[1] + b[1]))

    assert results(build, [0, 20, 10], delay=10**9) == [(31, ("a", 30))]


class Counting(ProcessWindowFunction):
    """Counts its windows in state of the key, to which a window adds 100 when it is cleared."""

    TOTAL = ValueStateDescriptor("total", Types.INT())

    def process(self, key, context, elements):
        total = context.global_state().get_state(self.TOTAL)
        total.update((total.value() or 0) + 1)
        yield context.window().start, total.value()

    def clear(self, context):
        total = context.global_state().get_state(self.TOTAL)
        total.update((total.value() or 0) + 100)


@pytest.mark.parametrize("assigner", [TUMBLING, SlidingEventTimeWindows.of(ms(10), ms(10))])
@pytest.mark.parametrize("trigger", [None, EventTimeTrigger.create()])
def test_a_window_is_cleared_before_later_windows_fire_at_one_watermark(assigner, trigger):
    def build(stream):
        windowed = stream.key_by(first_of).window(assigner).allowed_lateness(2)
        return (windowed if trigger is None else windowed.trigger(trigger)).process(Counting())

    found = results(build, [1, 11, 21], watermark_each=False)
    assert [value for _, value in found] == [(0, 1), (10, 102), (20, 203)]


class FiresAlways(Trigger):
    """Merges, but does not say so: `can_merge` is the default."""

    def on_element(self, element, timestamp, window, ctx):
        return TriggerResult.FIRE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        pass


class NeverMerges(FiresAlways):
    def can_merge(self):
        return False


def test_a_trigger_with_a_merge_of_its_own_works_with_sessions():
    sessions = windows(EventTimeSessionWindows.with_gap(ms(11)), FiresAlways())
    found = results(sessions, [0, 20, 10], delay=100)
    assert [(time, sorted(times)) for time, (_, times) in found] == [
        (0, [0]),
        (20, [20]),
        (10, [0, 10, 20]),
    ]
    purging = windows(EventTimeSessionWindows.with_gap(ms(11)), PurgingTrigger.of(FiresAlways()))
    assert [time for time, _ in results(purging, [0, 20, 10], delay=100)] == [0, 20, 10]
    with pytest.raises(GraphError, match="does not support merging"):
        results(windows(EventTimeSessionWindows.with_gap(ms(11)), NeverMerges()), [0])


class InProcessingTime(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(50)
        return []

    def on_timer(self, timestamp, ctx):
        yield timestamp


def test_what_a_timer_of_processing_time_emits_has_its_time():
    clock = ManualClock()
    with StreamHarness(
        lambda s: s.key_by(first_of).process(InProcessingTime()), clock=clock
    ) as one:
        one.process_element(("a", 1), 1)
        one.set_processing_time(60)
        assert [(record.timestamp, record.value) for record in one.output()] == [(50, 50)]


TAG = OutputTag("one", Types.INT())


class WithThree(ProcessFunction):
    def process_element(self, value, ctx):
        yield TAG, value, "ignored"
        yield ("no tag", value, value)


def test_a_tuple_that_begins_with_a_tag_is_for_the_side_output_however_long_it_is():
    def build(stream):
        main = stream.process(WithThree())
        return main, main.get_side_output(TAG)

    with StreamHarness(build) as harness:
        harness.process_elements(1, 2)
        assert harness.values(0) == [("no tag", 1, 1), ("no tag", 2, 2)]
        assert harness.values(1) == [1, 2]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_in_batch_windows_of_a_whole_stream_get_their_records_in_the_order_of_time(parallelism):
    env = minicluster_environment(MiniCluster(parallelism=2)).set_parallelism(parallelism)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    in_order = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_collection([("a", 5), ("b", 3), ("a", 8), ("c", 1)])
    timed = stream.assign_timestamps_and_watermarks(
        in_order.with_timestamp_assigner(SecondIsTime())
    )
    joined = timed.window_all(TUMBLING).reduce(lambda a, b: (a[0] + b[0], b[1]))
    assert collected(joined) == [("cbaa", 8)]
