"""BATCH jobs in this process: what operators see of time, what is refused, what an error tells.

Expectations: docs/spec/programs.md#batch; Flink's documentation of its execution modes.
"""

import threading
from collections import Counter

import pytest

from penstock.common import Encoder, Time, Types, WatermarkStrategy
from penstock.connectors.api.base import QueueEnumerator
from penstock.connectors.file_system import FileSink
from penstock.datastream import KeyedProcessFunction, ProcessFunction, ReduceFunction
from penstock.datastream.columns import col, count
from penstock.datastream.connectors import DataGeneratorSource
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.model.errors import (
    ConfigurationError,
    GraphError,
    JobCancelledError,
    JobExecutionError,
)
from penstock.engine.runtime.elements import MAX_WATERMARK, MIN_WATERMARK
from tests.tools.output_files import files_below
from tests.tools.programs.environments import batch_environment, collected
from tests.tools.programs.user_functions import ValueIsTime

NUMBERS = list(range(20))


class Recorder(JobObserver):
    def __init__(self) -> None:
        self.changes = []

    def on_job_submitted(self, event) -> None:
        self.job_graph = event.job_graph

    def on_execution_state_changed(self, change) -> None:
        name = self.job_graph.vertices[change.attempt_id.execution_vertex_id.vertex_id].name
        self.changes.append((name, change.attempt_id.subtask, change.new.name))


STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ValueIsTime())


def parity(value):
    return value % 2


class Timers(KeyedProcessFunction):
    """Each record sets a timer of its time, and each timer tries to set the next."""

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        service.register_event_time_timer(value)
        service.register_processing_time_timer(service.current_processing_time() + 10**12)
        yield "record", service.current_watermark()

    def on_timer(self, timestamp, ctx):
        service = ctx.timer_service()
        service.register_event_time_timer(timestamp + 1000)
        service.register_processing_time_timer(timestamp + 1000)
        yield ctx.time_domain().name, service.current_watermark()


def test_timers_fire_at_the_end_and_what_they_set_is_dropped():
    stream = batch_environment().set_parallelism(2).from_collection(NUMBERS, Types.LONG())
    stamped = stream.assign_timestamps_and_watermarks(STRATEGY)
    found = Counter(collected(stamped.key_by(parity).process(Timers())))
    processing = found.pop(("PROCESSING_TIME", MAX_WATERMARK))
    assert 2 <= processing <= len(NUMBERS)  # those of one key and one millisecond are one timer
    assert found == Counter({
        ("record", MIN_WATERMARK): len(NUMBERS),
        ("EVENT_TIME", MAX_WATERMARK): len(NUMBERS),
    })


class Watermarks(ProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.timer_service().current_watermark()


def test_a_function_behind_an_assigner_sees_no_watermark_before_the_end():
    stream = batch_environment().set_parallelism(2).from_collection(NUMBERS, Types.LONG())
    stamped = stream.assign_timestamps_and_watermarks(STRATEGY)
    assert set(collected(stamped.process(Watermarks()))) == {MIN_WATERMARK}


def test_no_record_is_late_however_the_times_are_mixed():
    mixed = [95, 5, 99, 7, 1, 50, 98, 2]
    stream = batch_environment().set_parallelism(2).from_collection(mixed, Types.LONG())
    stamped = stream.assign_timestamps_and_watermarks(STRATEGY).key_by(lambda value: 0)
    windows = stamped.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    assert sorted(collected(windows.reduce(max))) == [7, 50, 99]


def test_a_reduce_emits_once_for_each_key_and_a_count_window_when_it_is_full():
    env = batch_environment().set_parallelism(2)
    by_parity = env.from_collection(NUMBERS, Types.LONG()).key_by(parity)
    assert sorted(collected(by_parity.reduce(lambda left, right: left + right))) == [90, 100]
    env = batch_environment().set_parallelism(1)
    by_parity = env.from_collection(NUMBERS, Types.LONG()).key_by(parity)
    counts = by_parity.count_window(4).reduce(lambda left, right: left + right)
    assert sorted(collected(counts)) == [12, 16, 44, 48]


def test_empty_input_gives_nothing_and_ends():
    env = batch_environment().set_parallelism(3)
    empty = env.from_collection([], Types.LONG())
    assert collected(empty.key_by(parity).reduce(max)) == []


def test_every_subtask_goes_through_its_states(tmp_path):
    recorder = Recorder()
    env = batch_environment(recorder).set_parallelism(2)
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    env.from_collection(NUMBERS, Types.LONG()).rebalance().map(str, Types.STRING()).sink_to(sink)
    env.execute("states")
    way = ["SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED"]
    by_subtask: dict = {}
    for name, subtask, state in recorder.changes:
        by_subtask.setdefault((name, subtask), []).append(state)
    assert len(by_subtask) == 3
    assert all(states == way for states in by_subtask.values())
    lines = [line for path in tmp_path.rglob("part-*") for line in path.read_text().split()]
    assert sorted(map(int, lines)) == NUMBERS


def test_an_error_names_operator_record_and_line_and_leaves_no_output(tmp_path):
    env = batch_environment().set_parallelism(2)
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    numbers = env.from_collection(NUMBERS, Types.LONG()).rebalance()
    numbers.map(lambda value: str(1 // (value - 7)), Types.STRING()).sink_to(sink)
    with pytest.raises(JobExecutionError, match=r"(?s)ZeroDivisionError.*at record: +7"):
        env.execute("wrong")
    assert files_below(tmp_path) == []


def test_a_cancelled_job_says_so(tmp_path):
    is_running, may_go_on = threading.Event(), threading.Event()
    HELD["now"] = (is_running, may_go_on)
    env = batch_environment().set_parallelism(2)
    env.from_collection([1, 2], Types.LONG()).map(held).print()
    client = env.execute_async("held")
    assert is_running.wait(20)
    answered = client.cancel()
    may_go_on.set()
    answered.result()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()


HELD: dict = {}


def held(value):
    is_running, may_go_on = HELD["now"]
    is_running.set()
    assert may_go_on.wait(20)
    return value


def test_what_has_no_end_is_refused_at_submit():
    env = batch_environment().set_parallelism(2)
    env.from_source(
        DataGeneratorSource(str, None), WatermarkStrategy.no_watermarks(), "endless"
    ).print()
    with pytest.raises(GraphError, match=r"endless'.*has no end.*BATCH"):
        env.execute("endless")


class Silent(QueueEnumerator):
    def handle_split_request(self, subtask, host) -> None:
        """Says nothing."""


class SilentSource(DataGeneratorSource):
    def create_enumerator(self, context):
        return Silent(context, [])


def test_an_enumerator_that_never_says_that_there_is_no_more_fails_the_job():
    env = batch_environment().set_parallelism(2)
    source = SilentSource(str, 3)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "silent").print()
    with pytest.raises(JobExecutionError, match=r"enumerator of '.*silent'.*neither assigns"):
        env.execute("silent")


def test_savepoints_are_refused_with_the_way_to_them():
    env = batch_environment().set_parallelism(2)
    env.from_collection([1], Types.LONG()).print()
    client = env.execute_async("no savepoint")
    with pytest.raises(ConfigurationError, match=r"BATCH takes no savepoints.*STREAMING"):
        client.trigger_savepoint("anywhere").result()
    client.get_job_execution_result().result()


@pytest.mark.parametrize("is_combining", ["true", "false"])
def test_windows_over_columns_give_each_window_once(is_combining):
    env = batch_environment().set_parallelism(2)
    env.get_configuration().set_string("penstock.batch.combine", is_combining)
    row = Types.ROW_NAMED(["key", "at"], [Types.LONG(), Types.LONG()])
    rows = env.from_collection([(n % 2, n) for n in NUMBERS], row).rebalance()
    stamped = rows.map_batches(lambda batch: batch, row, timestamp_column="at")
    window = TumblingEventTimeWindows.of(Time.milliseconds(10))
    counts = stamped.key_by(col("key")).window(window).aggregate(count().alias("n"))
    found = collected(counts.select(col("key"), col("window_start"), col("n")))
    assert sorted(map(tuple, found)) == [(0, 0, 5), (0, 10, 5), (1, 0, 5), (1, 10, 5)]


@pytest.mark.parametrize("kind", [None, Types.TUPLE([Types.STRING(), Types.LONG()])], ids=str)
@pytest.mark.parametrize("is_combining", ["true", "false"])
def test_a_reduce_whose_order_of_calls_matters_gets_its_records_one_by_one(is_combining, kind):
    """The first records of a key look as if it were a sum."""
    env = batch_environment().set_parallelism(4)
    env.get_configuration().set_string("penstock.batch.combine", is_combining)
    payments = env.from_collection([("ann", 1)] * 400, kind).rebalance().map(lambda one: one, kind)

    def without_outliers(total, one):
        return total[0], total[1] + (one[1] if one[1] < 100 else 0)

    reduced = payments.key_by(lambda one: one[0]).reduce(without_outliers)
    assert collected(reduced) == [("ann", 400)]


def test_a_marked_reduce_combines():
    """Seen at its calls: with a mark it gets sums of several payments as its second argument."""
    env = batch_environment().set_parallelism(2)
    payments = env.from_collection([("ann", 1)] * 40).rebalance().map(lambda one: one)

    def largest_seen(total, one):
        return total[0], total[1] + one[1], max(total[-1], one[1])

    reduced = payments.key_by(lambda one: one[0]).reduce(largest_seen, combine=True)
    ((_, total, seen),) = collected(reduced)
    assert (total, seen > 1) == (40, True)


def test_a_mark_and_open_do_not_go_together():
    class Adds(ReduceFunction):
        def open(self, runtime_context):
            pass

        def reduce(self, value1, value2):
            return value1 + value2

    keyed = batch_environment().from_collection([1]).key_by(lambda one: one)
    with pytest.raises(GraphError, match=r"combine=True.*open"):
        keyed.reduce(Adds(), combine=True)
