"""Parts of programs driven by hand: what comes out is what docs/spec says of the operators."""

import asyncio

import pytest

from penstock.common import Configuration, Row, Time, Types
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    CoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.testing import (
    CollectingSink,
    ManualClock,
    MiniCluster,
    StreamHarness,
    StreamRecord,
    Watermark,
    WatermarkStatus,
)

MAX_WATERMARK = (1 << 63) - 1
TOTAL = ValueStateDescriptor("total", Types.INT())


def key_of(pair):
    return pair[0]


class Sum(KeyedProcessFunction):
    """Emits the running total; its timers, 10 ms later, the total and which time it was."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        service = ctx.timer_service()
        if ctx.timestamp() >= 0:
            service.register_event_time_timer(ctx.timestamp() + 10)
        else:
            service.register_processing_time_timer(service.current_processing_time() + 10)
        yield value[0], total

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.total.value(), timestamp


def sums(pairs):
    return pairs.key_by(key_of).process(Sum()).uid("sums").name("Sums")


def test_records_and_watermarks_come_out_in_order_with_their_timestamps():
    with StreamHarness(sums) as harness:
        harness.process_element(("a", 1), timestamp=5)
        harness.process_element(("a", 2), timestamp=6)
        harness.process_watermark(14)
        harness.process_watermark(15)
        assert harness.output() == [
            StreamRecord(("a", 1), 5),
            StreamRecord(("a", 3), 6),
            Watermark(14),
            StreamRecord(("a", 3, 15), 15),
            Watermark(15),
        ]
        assert harness.watermarks() == [14, 15]


def test_processing_time_is_the_tests():
    clock = ManualClock(1000)
    with StreamHarness(sums, clock=clock) as harness:
        harness.process_elements(("a", 1), ("b", 2))
        assert harness.processing_time_timers() == 2
        harness.set_processing_time(1010)
        assert harness.take_values() == [("a", 1), ("b", 2)]
        harness.set_processing_time(1011)  # a timer fires when its time has fully passed
        assert sorted(harness.take_values()) == [("a", 1, 1010), ("b", 2, 1010)]
        assert harness.values() == []
        assert clock.now_ms() == 1011
        with pytest.raises(ValueError, match="cannot go back"):
            harness.set_processing_time(1000)


class Ticks(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(10)

    def on_timer(self, timestamp, ctx):
        ctx.timer_service().register_processing_time_timer(timestamp + 10)
        yield timestamp, ctx.timer_service().current_processing_time()


def test_timers_that_set_timers_fire_each_at_its_own_time():
    with StreamHarness(lambda ones: ones.key_by(key_of).process(Ticks())) as harness:
        harness.process_element(("a", 1))
        harness.set_processing_time(35)
        assert harness.values() == [(10, 11), (20, 21), (30, 31)]


def test_state_and_timers_can_be_looked_at():
    with StreamHarness(sums) as harness:
        harness.process_element(("a", 1), timestamp=5)
        harness.process_element(("b", 2), timestamp=5)
        harness.process_element(("a", 1), timestamp=7)
        assert harness.keyed_state(TOTAL) == {"a": 2, "b": 2}
        assert harness.keyed_state("total", operator="Sums") == {"a": 2, "b": 2}
        assert harness.keyed_state("total", operator="sums") == {"a": 2, "b": 2}
        assert harness.event_time_timers() == 3
        assert harness.processing_time_timers() == 0
        with pytest.raises(ConfigurationError, match=r"'other'.*Sums: total"):
            harness.keyed_state("other")
        with pytest.raises(ConfigurationError, match="0 operators"):
            harness.keyed_state("total", operator="Map")


def test_a_snapshot_goes_on_where_it_was_taken():
    with StreamHarness(sums) as harness:
        harness.process_element(("a", 1), timestamp=5)
        data = harness.snapshot()
        harness.process_element(("a", 10), timestamp=6)
    with StreamHarness(sums, restored=data) as harness:
        assert harness.keyed_state(TOTAL) == {"a": 1}
        assert harness.event_time_timers() == 1
        harness.process_element(("a", 2), timestamp=6)
        harness.process_watermark(15)
        assert harness.values() == [("a", 3), ("a", 3, 15)]


def test_a_snapshot_of_something_else_is_refused():
    with StreamHarness(sums) as harness:
        harness.process_element(("a", 1), timestamp=5)
        data = harness.snapshot()
    with pytest.raises(ConfigurationError, match=r"\['sums'\]"):
        StreamHarness(lambda ones: ones.map(str), restored=data)


def test_windows_fire_and_late_records_are_counted_and_come_out_aside():
    late = OutputTag("late")

    def build(pairs):
        windows = pairs.key_by(key_of).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        counted = windows.side_output_late_data(late).reduce(lambda a, b: (a[0], a[1] + b[1]))
        return counted, counted.get_side_output(late)

    with StreamHarness(build) as harness:
        harness.process_element(("a", 1), timestamp=1)
        harness.process_element(("a", 2), timestamp=9)
        harness.process_element(("a", 4), timestamp=10)
        harness.process_watermark(9)
        assert harness.output() == [StreamRecord(("a", 3), 9), Watermark(9)]
        harness.process_element(("a", 8), timestamp=2)
        assert harness.values(1) == [("a", 8)]
        harness.end_input()
        assert harness.values() == [("a", 3), ("a", 4)]
        assert harness.watermarks()[-1] == MAX_WATERMARK

    def without_side(pairs):
        windows = pairs.key_by(key_of).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        return windows.reduce(lambda a, b: (a[0], a[1] + b[1]))

    with StreamHarness(without_side) as harness:
        harness.process_watermark(9)
        harness.process_element(("a", 8), timestamp=2)
        assert harness.late_records_dropped == 1


class Both(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield 1, value, ctx.timer_service().current_watermark()

    def process_element2(self, value, ctx):
        yield 2, value, ctx.timer_service().current_watermark()


def test_two_inputs_have_the_watermark_that_both_have_but_for_idle_ones():
    with StreamHarness(lambda ones, others: ones.connect(others).process(Both())) as harness:
        harness.process_watermark(5, input=0)
        harness.process_watermark(3, input=1)
        harness.process_element("x", input=1)
        harness.process_watermark_status(is_idle=True, input=1)
        harness.process_element("y", input=0)
        assert harness.values() == [(2, "x", 3), (1, "y", 5)]
        assert harness.watermarks() == [3, 5]
        harness.process_watermark_status(is_idle=True, input=0)
        assert isinstance(harness.output()[-1], WatermarkStatus)


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        yield value if value > 0 else (OutputTag("negative", Types.INT()), value)


def test_side_outputs_and_unions_over_several_operators():
    def build(one, other):
        split = one.union(other).process(Split())
        return split.map(lambda value: value * 2), split.get_side_output(
            OutputTag("negative", Types.INT())
        )

    with StreamHarness(build, [Types.INT(), Types.INT()]) as harness:
        harness.process_element(1, input=0)
        harness.process_element(-2, input=1)
        assert harness.values(0) == [2]
        assert harness.values(1) == [-2]


def test_types_are_those_of_a_job():
    person = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])

    def build(people):
        return people.key_by(lambda row: row.name).map(
            lambda row: Row(row.name, row["age"] + 1), person
        )

    with StreamHarness(build, [person]) as harness:
        harness.process_element(("Ann", 41))
        assert harness.values() == [Row(name="Ann", age=42)]
        with pytest.raises(UserCodeError, match="TypeError"):
            harness.process_element(("Bob", None))


def test_watermarks_of_a_strategy_come_with_processing_time():
    class Second(TimestampAssigner):
        def extract_timestamp(self, value, record_timestamp):
            return value[1]

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    with StreamHarness(lambda ones: ones.assign_timestamps_and_watermarks(strategy)) as harness:
        harness.process_element(("a", 100))
        assert harness.watermarks() == []
        harness.set_processing_time(200)
        assert harness.output() == [StreamRecord(("a", 100), 100), Watermark(99)]


class Later(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(0)
        return [value, -value]


def test_async_functions_are_waited_for():
    def build(ones):
        return AsyncDataStream.unordered_wait(ones, Later(), Time.seconds(10), 2)

    with StreamHarness(build) as harness:
        harness.process_elements(1, 2, 3)
        harness.wait_for_async()
        assert sorted(harness.values()) == [-3, -2, -1, 1, 2, 3]
        harness.process_element(4)
        harness.end_input()
        assert harness.values()[-2:] == [4, -4]


def test_errors_of_the_user_come_out_with_operator_and_record():
    with (
        StreamHarness(lambda ones: ones.map(lambda value: 1 // value).name("Divide")) as harness,
        pytest.raises(UserCodeError, match=r"(?s)ZeroDivisionError.*Divide"),
    ):
        harness.process_element(0)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigurationError, match="takes 0 streams"):
        StreamHarness(lambda: None)
    with pytest.raises(ConfigurationError, match="2 types"):
        StreamHarness(lambda ones: ones, [Types.INT(), Types.INT()])
    with pytest.raises(ConfigurationError, match="input 1 does not lead to any"):
        StreamHarness(lambda ones, others: ones.map(str))


COUNT = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()])


def plus(one, other):
    return Row(one.word, one["count"] + other["count"])


def counts(words):
    return words.key_by(lambda row: row.word).reduce(plus)


def test_rows_that_a_reduce_makes_have_the_names_of_its_type():
    with StreamHarness(counts, [COUNT]) as harness:
        harness.process_elements(("a", 1), ("a", 2), ("a", 3))
        assert harness.values()[-1] == Row(word="a", count=6)


@pytest.mark.parametrize("combines", ["true", "false"])
def test_in_a_batch_too(combines):
    configuration = Configuration.from_dict({"penstock.batch.combine": combines})
    env = StreamExecutionEnvironment(configuration, MiniCluster().executor()).set_parallelism(2)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    sink = CollectingSink()
    counts(env.from_collection([("a", n) for n in range(10)], COUNT)).sink_to(sink)
    env.execute()
    assert sink.values == [Row(word="a", count=45)]


def test_a_batch_is_for_a_whole_job():
    with pytest.raises(ConfigurationError, match="MiniCluster"):
        StreamHarness(counts, configuration={"execution.runtime-mode": "BATCH"})


class Kept(KeyedProcessFunction):
    """Keeps a list; emits the class of its state, a job parameter, and whether it has metrics."""

    def open(self, runtime_context):
        self.kept = runtime_context.get_list_state(ListStateDescriptor("kept"))
        self.parameter = runtime_context.get_job_parameter("name", "none")
        self.metrics = runtime_context.get_metrics_group()
        self.groups = runtime_context.get_max_number_of_parallel_subtasks()

    def process_element(self, value, ctx):
        self.kept.add(value)
        ctx.timer_service().register_event_time_timer(5)
        yield type(self.kept).__name__, self.parameter, self.metrics is not None, self.groups

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), list(self.kept)


def keeping(records):
    return records.key_by(lambda value: value[0]).process(Kept()).uid("kept")


@pytest.mark.parametrize(("backend", "kind"), [("hashmap", "Heap"), ("rocksdb", "Rocks")])
@pytest.mark.parametrize("restored_with", ["hashmap", "rocksdb"])
def test_state_lies_where_the_configuration_says(backend, kind, restored_with):
    with StreamHarness(keeping, configuration={"state.backend.type": backend}) as harness:
        harness.process_elements("a1", "b1", "a2")
        assert harness.values()[0] == (f"{kind}ListState", "none", True, 128)
        assert harness.keyed_state("kept") == {"a": ["a1", "a2"], "b": ["b1"]}
        assert harness.event_time_timers() == 2
        kept = harness.snapshot()
    configuration = {"state.backend.type": restored_with}
    with StreamHarness(keeping, restored=kept, configuration=configuration) as harness:
        harness.process_watermark(5)
        assert sorted(harness.values()) == [("a", ["a1", "a2"]), ("b", ["b1"])]


def test_other_options_act_as_in_a_job():
    options = {
        "pipeline.global-job-parameters": "name:value",
        "python.metric.enabled": "false",
        "pipeline.max-parallelism": "1000",
    }
    with StreamHarness(keeping, configuration=options) as harness:
        harness.process_element("a1")
        assert harness.values() == [("HeapListState", "value", False, 1000)]
        kept = harness.snapshot()
    with StreamHarness(keeping, configuration=options, restored=kept) as harness:
        assert harness.keyed_state("kept") == {"a": ["a1"]}


@pytest.mark.parametrize(
    "options",
    [
        {"state.backend.type": "memory"},
        {"state.backend.rocksdb.timer-service.factory": "DISK"},
        {"penstock.no.such.option": "1"},
    ],
)
def test_what_a_job_refuses_is_refused(options):
    (key,) = options
    with pytest.raises(ConfigurationError, match=key):
        StreamHarness(keeping, configuration=options)
