"""What a job reports: the names of Flink's metrics, and values that agree with what the program did."""

import threading

import pytest

from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.common.time import Time
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.file_system import FileSink
from penstock.datastream import OutputTag, RuntimeExecutionMode
from penstock.datastream.functions import (
    CoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.metrics.scopes import Component
from penstock.ops.metrics.entities import TaskManagerScope
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.reported_metrics import Reported

ROWS = 300
TASK_NAMES = {
    "numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numBuffersOut",
    "numBytesInLocal", "numBytesInRemote", "numBuffersInLocal", "numBuffersInRemote",
    "numFiredTimers",
}  # fmt: skip
"""Those with a rate beside them. Source: Flink TaskIOMetricGroup."""
TASK_GAUGES = {
    "idleTimeMsPerSecond", "backPressuredTimeMsPerSecond", "softBackPressuredTimeMsPerSecond",
    "hardBackPressuredTimeMsPerSecond", "busyTimeMsPerSecond", "maxSoftBackPressureTimeMs",
    "maxHardBackPressureTimeMs", "accumulateIdleTimeMs", "accumulateBackPressuredTimeMs",
    "accumulateBusyTimeMs", "changelogBusyTimeMsPerSecond", "isBackPressured", "mailboxQueueSize",
    "mailboxMailsPerSecond", "initializationTime", "checkpointStartDelayNanos",
    "estimatedTimeToConsumeBuffersMs",
}  # fmt: skip
WITH_INPUT = {"currentInputWatermark", "checkpointAlignmentTime"}
NETWORK = {
    "Shuffle.Netty.Input.Buffers.inputQueueLength", "Shuffle.Netty.Input.Buffers.inputQueueSize",
    "Shuffle.Netty.Input.Buffers.inPoolUsage", "Shuffle.Netty.Output.Buffers.outPoolUsage",
    "Shuffle.Netty.Input.Buffers.inputFloatingBuffersUsage",
    "Shuffle.Netty.Input.Buffers.inputExclusiveBuffersUsage",
    "Shuffle.Netty.Output.Buffers.outputQueueLength",
    "Shuffle.Netty.Output.Buffers.outputQueueSize",
}  # fmt: skip
COUNTED_INPUT = {"numBytesInLocal", "numBytesInRemote", "numBuffersInLocal", "numBuffersInRemote"}
STATISTICS = {
    "min", "max", "mean", "median", "stddev", "p75", "p90", "p95", "p98", "p99", "p999",
}  # fmt: skip
PROCESS = {
    *(f"Status.JVM.CPU.{name}" for name in ("Load", "Time")),
    *(
        f"Status.JVM.Memory.{kind}.{name}"
        for kind in ("Heap", "NonHeap", "Metaspace")
        for name in ("Used", "Committed", "Max")
    ),
    *(
        f"Status.JVM.Memory.{kind}.{name}"
        for kind in ("Direct", "Mapped")
        for name in ("Count", "MemoryUsed", "TotalCapacity")
    ),
    *(
        f"Status.JVM.GarbageCollector.{collector}.{name}"
        for collector in ("gen0", "gen1", "gen2", "All")
        for name in ("Count", "Time", "TimeMsPerSecond")
    ),
    "Status.JVM.Threads.Count", "Status.JVM.ClassLoader.ClassesLoaded",
    "Status.JVM.ClassLoader.ClassesUnloaded", "Status.JVM.FileDescriptor.Open",
    "Status.JVM.FileDescriptor.Max",
    *(
        f"Status.Shuffle.Netty.{kind}{what}"
        for kind in ("Total", "Available", "Used")
        for what in ("MemorySegments", "Memory")
    ),
    "Status.Shuffle.Netty.RequestedMemoryUsage", "Status.Flink.Memory.Managed.Used",
    "Status.Flink.Memory.Managed.Total",
}  # fmt: skip
LATE = OutputTag("late", Types.LONG())


@pytest.fixture
def reported():
    return Reported()


@pytest.fixture
def make_env(reported):
    def make(settings=None, parallelism=2):
        cluster = MiniCluster(parallelism=parallelism, observer=reported)
        return minicluster_environment(cluster, settings).set_parallelism(parallelism)

    return make


def run(env):
    client = env.execute_async("reported")
    client.get_job_execution_result().result()
    return client


class ValueIsTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


def timed(stream):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ValueIsTime()))


def with_rates(names):
    return names | {f"{name}PerSecond" for name in names}


def test_a_task_has_the_metrics_of_flinks_tasks(make_env, reported):
    env = make_env()
    env.from_collection(list(range(ROWS))).key_by(lambda n: n % 7).map(lambda n: n).name(
        "Map"
    ).print()
    run(env)
    histogram = {f"mailboxLatencyMs_{one}" for one in STATISTICS}
    inputs = {f"Shuffle.Netty.Input.{name}" for name in with_rates(COUNTED_INPUT)}
    common = with_rates(TASK_NAMES) | TASK_GAUGES | histogram | NETWORK | inputs
    found = set(reported.values("Map"))
    assert common | WITH_INPUT - {"checkpointAlignmentTime"} <= found
    assert common <= set(reported.values("Source"))
    assert not WITH_INPUT & set(reported.values("Source"))


def test_each_operator_of_a_chain_counts_its_own_records(make_env, reported):
    env = make_env()
    numbers = env.from_collection(list(range(ROWS))).rebalance()
    evens = numbers.map(lambda n: n).name("First").filter(lambda n: n % 2 == 0).name("Even")
    evens.flat_map(lambda n: [n, n, n]).name("Triple").print()
    run(env)
    counts = {
        name: (
            reported.sum("First", f"{name}.numRecordsIn"),
            reported.sum("First", f"{name}.numRecordsOut"),
        )
        for name in ("First", "Even", "Triple")
    }
    half, triple = ROWS // 2, 3 * (ROWS // 2)
    assert counts == {"First": (ROWS, ROWS), "Even": (ROWS, half), "Triple": (half, triple)}
    assert reported.sum("First", "numRecordsIn") == ROWS
    assert reported.sum("Source", "numRecordsOut") == ROWS
    assert {"First.numRecordsInPerSecond", "First.numBytesIn"} <= set(reported.values("First"))


def test_a_source_that_makes_its_records_counts_none_as_read(make_env, reported):
    env = make_env(parallelism=1)
    env.from_collection([1, 2, 3]).name("Numbers").print()
    run(env)
    found = reported.values("Source: Numbers")
    source = "Source__Numbers"
    assert (found[f"{source}.numRecordsIn"], found[f"{source}.numRecordsOut"]) == ("0", "3")
    assert found["numRecordsIn"] == "0"


def test_side_outputs_count_as_output_of_their_operator(make_env, reported):
    tag = OutputTag("odd", Types.LONG())

    class Split(KeyedProcessFunction):
        def process_element(self, value, ctx):
            if value % 2:
                yield tag, value
            else:
                yield value

    env = make_env(parallelism=1)
    split = env.from_collection(list(range(10))).key_by(lambda _n: 0).process(Split()).name("Split")
    split.get_side_output(tag).print()
    split.print()
    run(env)
    assert reported.sum("Split", "Split.numRecordsOut") == 10


def test_late_records_and_watermarks_are_of_the_operator(make_env, reported):
    env = make_env(parallelism=1)
    stream = timed(env.from_collection([0, 10, 2000, 3000, 9000]).rebalance())
    windows = stream.key_by(lambda _n: 0).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    windows.reduce(lambda a, b: a + b).name("Windows").print()
    run(env)
    found = reported.values("Windows")
    assert found["Windows.numLateRecordsDropped"] == "0"
    assert found["Windows.currentInputWatermark"] == str(2**63 - 1)
    assert found["Windows.currentOutputWatermark"] == str(2**63 - 1)
    assert "Sink__Print_to_Std__Out.numLateRecordsDropped" not in found


def test_fired_timers_are_counted_by_the_task(make_env, reported):
    class Timed(KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(value)

        def on_timer(self, timestamp, ctx):
            yield timestamp

    env = make_env(parallelism=1)
    stream = timed(env.from_collection([1, 2, 2, 3]).rebalance()).key_by(lambda _n: 0)
    stream.process(Timed()).name("Timed").print()
    run(env)
    assert reported.sum("Timed", "numFiredTimers") == 3, "a timer exists once for each time"
    assert reported.sum("Timed", "Timed.numRecordsOut") == 3


def test_an_operator_with_two_inputs_has_a_watermark_for_each(make_env, reported):
    class Both(CoProcessFunction):
        def process_element1(self, value, ctx):
            yield value

        def process_element2(self, value, ctx):
            yield value

    env = make_env(parallelism=1)
    left, right = timed(env.from_collection([1, 2])), timed(env.from_collection([3]))
    left.connect(right).process(Both()).name("Both").print()
    run(env)
    found = reported.values("Both")
    assert found["Both.currentInput1Watermark"] == found["Both.currentInput2Watermark"]
    assert "Both.currentInput3Watermark" not in found
    assert "Sink__Print_to_Std__Out.currentInput1Watermark" not in found


def test_a_source_tells_how_far_behind_it_is(make_env, reported):
    env = make_env(parallelism=1)
    timed(env.from_collection([1, 2, 3]).name("Numbers")).print()
    run(env)
    found = reported.values("Source: Numbers")
    names = {"numRecordsInErrors", "sourceIdleTime", "currentEmitEventTimeLag"}
    assert {f"Source__Numbers.{name}" for name in names} <= set(found)
    assert "Source__Numbers.watermarkLag" not in found, "the last watermark is no time"
    assert found["Source__Numbers.numRecordsInErrors"] == "0"
    assert found["Source__Numbers.currentEmitEventTimeLag"] == "-1", "no record has a timestamp yet"


class Counting(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        group = runtime_context.get_metrics_group()
        self.has_group = group is not None
        if group is None:
            return
        self.seen = group.add_group("my grp").add_group("k.1", "v:1 x").counter("my counter")
        self.sizes = group.distribution("sizes")
        self.marks = group.meter("marks", 5)
        group.gauge("constant", lambda: 42)
        group.distribution("unused")

    def map(self, value):
        if self.has_group:
            self.seen.inc()
            self.sizes.update(value)
            self.marks.mark_event(2)
        return self.has_group


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_metrics_of_functions_arrive_as_pyflink_shows_them(make_env, reported, mode):
    env = make_env(parallelism=1).set_runtime_mode(mode)
    rows = env.from_collection(list(range(ROWS)))
    rows.key_by(lambda n: n % 7).map(Counting()).name("My map").print()
    run(env)
    found = reported.values("My map")
    assert found["My_map.my_grp.k_1.v_1_x.my_counter"] == str(ROWS)
    total = sum(range(ROWS))
    expected = f"DistributionResult{{sum={total}, count={ROWS}, min=0, max={ROWS - 1}}}"
    assert found["My_map.sizes"] == expected
    assert found["My_map.constant"] == "42"
    assert reported.value("My map", "My_map.marks").count == 2 * ROWS
    assert "My_map.unused" not in found
    assert found["userMetricsLeftOut"] == "0"
    metrics = reported.store.metrics(with_ended=True)
    (mine,) = (one for one in metrics if one.measured.name == "my counter")
    assert mine.logical_scope() == "taskmanager.job.task.operator.my grp.k_1"
    assert mine.variables["k.1"] == "v:1 x"
    assert mine.variables["operator_name"] == "My map"


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_without_python_metrics_functions_get_no_group(make_env, reported, mode):
    env = make_env({"python.metric.enabled": "false"}, 1).set_runtime_mode(mode)
    stream = env.from_collection([1, 2]).rebalance().map(Counting()).name("Map")
    with stream.execute_and_collect("no group") as results:
        assert list(results) == [False, False]
    assert "numRecordsIn" in reported.values("Map")


def test_a_task_reports_at_most_200_metrics_of_functions_and_counts_the_others(make_env, reported):
    class Wild(MapFunction):
        def open(self, runtime_context):
            self.group = runtime_context.get_metrics_group()

        def map(self, value):
            self.group.counter(f"of {value}").inc()
            return value

    env = make_env(parallelism=1)
    env.from_collection(list(range(ROWS))).rebalance().map(Wild()).name("Wild").print()
    run(env)
    found = reported.values("Wild")
    assert len([one for one in found if one.startswith("Wild.of_")]) == 200
    assert found["userMetricsLeftOut"] == str(ROWS - 200)


def test_batch_subtasks_report_when_they_have_finished(make_env, reported):
    env = make_env().set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_collection(list(range(ROWS))).key_by(lambda n: n % 7).map(lambda n: n).name(
        "Map"
    ).print()
    run(env)
    assert reported.sum("Map", "numRecordsIn") == ROWS
    assert reported.sum("Map", "Map.numRecordsOut") == ROWS


def test_an_interval_of_0_reports_nothing(make_env, reported):
    env = make_env({"metrics.fetcher.update-interval": "0"})
    env.from_collection([1]).print()
    run(env)
    env = make_env({"metrics.fetcher.update-interval": "0"})
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).from_collection([1]).print()
    run(env)
    assert reported.reports == 0


GO = threading.Event()


class Held(KeyedProcessFunction):
    """Sets a timer that does not fire, and waits in the last row until the test has looked."""

    def open(self, runtime_context):
        self.rows = 0

    def process_element(self, value, ctx):
        self.rows += 1
        ctx.timer_service().register_processing_time_timer(2**50 + value)
        if self.rows == ROWS:
            GO.wait()
        yield value


def test_a_running_job_reports_in_intervals(make_env, reported):
    GO.clear()
    env = make_env({"metrics.fetcher.update-interval": "100 ms"}, 1)
    rows = env.from_collection(list(range(ROWS))).key_by(lambda n: n % 3)
    rows.process(Held()).name("Held").print()
    client = env.execute_async("held")

    def processes() -> list[TaskManagerScope]:
        places = [one.place for one in reported.store.metrics()]
        found = [one for one in places if one.component is Component.TASKMANAGER]
        return [TaskManagerScope(one.variables["tm_id"]) for one in found]

    def has_all() -> bool:
        held = [scope for name, scope in reported.vertices().items() if name.startswith("Held")]
        values = reported.store.values(held[0]) if held else {}
        return values.get("0.Held.numTimers") == str(ROWS) and bool(processes())

    try:
        reported.await_report(has_all)
        manager = processes()[0]
        assert set(reported.store.values(manager)) >= PROCESS
        assert int(reported.store.values(manager)["Status.JVM.Memory.Heap.Used"]) > 1 << 20
    finally:
        GO.set()
        client.get_job_execution_result().result()


def test_queues_have_metrics_of_their_own_on_demand(make_env, reported):
    details = {
        f"Shuffle.Netty.{side}.0.{name}"
        for side in ("Input", "Output")
        for name in ("totalQueueLen", "minQueueLen", "maxQueueLen", "avgQueueLen")
    }
    env = make_env({"taskmanager.network.detailed-metrics": "true"}, 1)
    env.from_collection([1]).rebalance().map(lambda n: n).name("Map").rebalance().print()
    run(env)
    assert details <= set(reported.values("Map"))


def test_latency_histograms_stand_below_the_task(make_env, reported):
    env = make_env({"metrics.latency.history-size": "16"}, 1)
    env.get_config().set_latency_tracking_interval(5)
    env.from_collection(list(range(1000))).key_by(lambda n: n % 3).map(lambda n: n).name(
        "Map"
    ).print()
    run(env)
    found = [one for one in reported.values("Map") if one.startswith("latency.")]
    (one,) = {
        name.removesuffix("_p99") for name in found if "_p99" in name and "999" not in name
    } & {
        name.removesuffix("_max")
        for name in found
        if name.endswith("_max") and _is_of_map(name, reported)
    }
    words = one.split(".")
    assert words[:2] == ["latency", "source_id"]
    assert words[-3:] == ["operator_subtask_index", "0", "latency"]


def _is_of_map(name, reported):
    metrics = reported.store.metrics(with_ended=True)
    (uid,) = {
        one.place.variables["operator_id"]
        for one in metrics
        if one.place.variables.get("operator_name") == "Map"
    }
    return f"operator_id.{uid}." in name


def test_state_checkpoints_and_commits_are_measured(make_env, reported, tmp_path):
    GO.clear()
    target = tmp_path / "out"
    settings = {
        "metrics.fetcher.update-interval": "100 ms",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
    }
    env = make_env(settings, 1)
    rows = env.from_collection(list(range(ROWS)), type_info=Types.LONG()).key_by(lambda n: n % 3)
    held = rows.process(Kept(), output_type=Types.STRING()).name("Kept").disable_chaining()
    sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build()
    held.sink_to(sink).name("Files").disable_chaining()
    client = env.execute_async("kept")

    def is_measured() -> bool:
        names = set(reported.vertices())
        if len(names) < 3:
            return False
        kept, files = reported.values("Kept"), reported.values("Sink: Files")
        size, done = (
            kept.get("Kept.stateSize", "0"),
            files.get("Sink__Files.totalCommittables", "0"),
        )
        return int(size) > 0 and int(done) > 0

    try:
        reported.await_report(is_measured)
        kept, files = reported.values("Kept"), reported.values("Sink: Files")
        assert kept["Kept.numKeys"] == "3"
        assert int(kept["checkpointAlignmentTime"]) >= 0
        assert int(kept["checkpointStartDelayNanos"]) >= 0
        assert "checkpointAlignmentTime" not in reported.values("Source")
        committed = int(files["Sink__Files.successfulCommittables"])
        total = int(files["Sink__Files.totalCommittables"])
        assert total == committed + int(files["Sink__Files.pendingCommittables"])
        assert (
            files["Sink__Files.numRecordsSendErrors"]
            == files["Sink__Files.retriedCommittables"]
            == "0"
        )
    finally:
        GO.set()
        client.get_job_execution_result().result()
    files = reported.values("Sink: Files")
    assert files["Sink__Files.numRecordsSend"] == files["Sink__Files.numRecordsOut"] == str(ROWS)
    written = sum(path.stat().st_size for path in target.rglob("part-*"))
    assert int(files["Sink__Files.numBytesSend"]) == written > 0


class Kept(KeyedProcessFunction):
    """Keeps the last row of each key. In the last row it lets checkpoints pass until the test has looked."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))
        self.is_over = False

    def process_element(self, value, ctx):
        self.last.update(value)
        if value == ROWS - 1:
            ctx.timer_service().register_processing_time_timer(0)
        yield str(value)

    def on_timer(self, timestamp, ctx):
        if not GO.is_set():
            now = ctx.timer_service().current_processing_time()
            ctx.timer_service().register_processing_time_timer(now + 10)
        return []


def test_after_a_failure_only_the_new_attempt_is_shown(make_env, reported):
    class Failing(MapFunction):
        def open(self, runtime_context):
            self.is_first = runtime_context.get_attempt_number() == 0

        def map(self, value):
            if value == ROWS - 1 and self.is_first:
                raise ValueError("once")
            return value

    env = make_env(RESTARTS, 1)
    env.from_collection(list(range(ROWS))).rebalance().map(Failing()).name("Failing").print()
    run(env)
    metrics = reported.store.metrics(with_ended=True)
    numbers = {one.variables["task_attempt_num"] for one in metrics if "task_id" in one.variables}
    assert numbers == {"1"}
    assert reported.sum("Failing", "Failing.numRecordsOut") == ROWS
