"""Small programs of every part of the API, run in threads of this process. Expectations: docs/spec/programs.md#functions."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common import Duration, Encoder, Row, Time, Types, WatermarkStrategy
from penstock.connectors.file_system import BucketAssigner, FileSink, FileSource, StreamFormat
from penstock.datastream import (
    BroadcastProcessFunction,
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from penstock.datastream.columns import avg, col, count, first, last, max_, min_, sum_
from penstock.datastream.connectors import BatchGeneratorSource, NumberSequenceSource
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import GraphError, JobExecutionError
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.programs.user_functions import MeanOf, SecondIsTime, first_of, running_sum


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2))


IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondIsTime())
EVENTS = [("a", 1), ("b", 2), ("a", 900), ("a", 1000), ("b", 1999), ("a", 3500)]


def test_word_count_gives_running_counts(env):
    words = env.from_collection(["a b a", "c a"]).flat_map(str.split).map(lambda w: (w, 1))
    got = collected(words.key_by(first_of).reduce(running_sum))
    assert Counter(got) == Counter([("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)])


def test_process_functions_see_state_and_timers_at_the_end(env):
    class LastValue(KeyedProcessFunction):
        def open(self, runtime_context):
            self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

        def process_element(self, value, ctx):
            self.last.update(value[1])
            ctx.timer_service().register_event_time_timer(2**63 - 2)

        def on_timer(self, timestamp, ctx):
            yield ctx.get_current_key(), self.last.value(), timestamp == ctx.timestamp()

    got = collected(env.from_collection(EVENTS).key_by(first_of).process(LastValue()))
    assert sorted(got) == [("a", 3500, True), ("b", 1999, True)]


def test_tagged_results_leave_the_main_output_when_a_side_output_is_read(env):
    tag = OutputTag("odd", Types.LONG())

    class Split(ProcessFunction):
        def process_element(self, value, ctx):
            yield (tag, value) if value % 2 else value

    numbers = env.from_source(NumberSequenceSource(1, 10), WatermarkStrategy.no_watermarks(), "n")
    main = numbers.process(Split())
    odd = main.get_side_output(tag).map(lambda value: -value)
    assert sorted(collected(main.union(odd))) == sorted([2, 4, 6, 8, 10, -1, -3, -5, -7, -9])


def test_tagged_results_stay_in_the_main_output_when_nobody_reads_them(env):
    tag = OutputTag("odd")

    class Split(ProcessFunction):
        def process_element(self, value, ctx):
            yield tag, value

    assert collected(env.from_collection([1]).process(Split())) == [(tag, 1)]


def test_rolling_aggregates_take_positions_and_names(env):
    rows = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])
    stream = env.from_collection([("a", 3), ("a", 1), ("a", 2)], rows)
    keyed = stream.key_by(lambda row: row.k)
    assert [row.n for row in collected(keyed.sum("n"))] == [3, 4, 6]
    assert [row.n for row in collected(keyed.min(1))] == [3, 1, 1]
    pairs = env.from_collection([("a", 3, "x"), ("a", 4, "y"), ("a", 1, "z")]).key_by(first_of)
    assert collected(pairs.max(1)) == [("a", 3, "x"), ("a", 4, "x"), ("a", 4, "x")]
    assert collected(pairs.max_by(1)) == [("a", 3, "x"), ("a", 4, "y"), ("a", 4, "y")]


@pytest.mark.parametrize("is_keyed", [True, False])
def test_rows_of_a_window_reduce_have_the_names_of_the_records(env, is_keyed):
    rows = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])
    stream = env.from_collection([("a", n) for n in range(4)], rows)
    stream = stream.assign_timestamps_and_watermarks(IN_ORDER)
    assigner = TumblingEventTimeWindows.of(Time.seconds(1))
    if is_keyed:
        windows = stream.key_by(lambda row: row.k).window(assigner)
    else:
        windows = stream.window_all(assigner)
    reduced = windows.reduce(lambda one, other: Row(one.k, one.n + other.n))
    assert collected(reduced) == [Row(k="a", n=6)]


def test_a_keyed_stream_is_collected_with_its_key(env):
    got = collected(env.from_collection([("a", 1)]).key_by(first_of))
    assert got == [Row(f0="a", f1=("a", 1))]


class WithWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, list(elements)


class Plain(WindowFunction):
    def apply(self, key, window, inputs):
        yield key, window.max_timestamp(), len(list(inputs))


def events(env):
    return env.from_collection(EVENTS).assign_timestamps_and_watermarks(IN_ORDER)


def test_tumbling_windows_reduce_aggregate_apply_and_process(env):
    windowed = events(env).key_by(first_of).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    reduced = collected(windowed.reduce(running_sum))
    assert sorted(reduced) == [("a", 901), ("a", 1000), ("a", 3500), ("b", 2), ("b", 1999)]
    averages = collected(windowed.aggregate(MeanOf(1), WithWindow()))
    assert sorted(averages) == [
        ("a", 0, 1000, [450.5]),
        ("a", 1000, 2000, [1000.0]),
        ("a", 3000, 4000, [3500.0]),
        ("b", 0, 1000, [2.0]),
        ("b", 1000, 2000, [1999.0]),
    ]
    counts = collected(windowed.apply(Plain()))
    assert sorted(counts) == [
        ("a", 999, 2), ("a", 1999, 1), ("a", 3999, 1), ("b", 999, 1), ("b", 1999, 1),
    ]  # fmt: skip


def test_sliding_session_and_count_windows(env):
    keyed = events(env).filter(lambda event: event[0] == "b").key_by(first_of)
    sliding = SlidingEventTimeWindows.of(Duration.of_seconds(2), Duration.of_seconds(1))
    got = collected(keyed.window(sliding).process(WithWindow()))
    assert sorted((start, len(inside)) for _, start, _, inside in got) == [
        (-1000, 1), (0, 2), (1000, 1),
    ]  # fmt: skip
    sessions = (
        events(env).key_by(first_of).window(EventTimeSessionWindows.with_gap(Time.seconds(1)))
    )
    spans = {(key, start, end) for key, start, end, _ in collected(sessions.process(WithWindow()))}
    assert spans == {("a", 1, 2000), ("a", 3500, 4500), ("b", 2, 1002), ("b", 1999, 2999)}
    in_order = events(env).set_parallelism(
        1
    )  # With more subtasks a key's records come in any order.
    counted = in_order.key_by(first_of).count_window(2).reduce(running_sum)
    assert sorted(collected(counted)) == [("a", 901), ("a", 4500), ("b", 2001)]


def test_window_all_sees_every_key_in_one_subtask(env):
    class All(ProcessAllWindowFunction):
        def process(self, context, elements):
            yield context.window().start, sorted(value[0] for value in elements)

    whole = events(env).window_all(TumblingEventTimeWindows.of(Time.seconds(2)))
    assert sorted(collected(whole.process(All()))) == [
        (0, ["a", "a", "a", "b", "b"]),
        (2000, ["a"]),
    ]
    assert sorted(sum_ for _, sum_ in collected(whole.reduce(running_sum))) == [3500, 3902]


def test_late_data_goes_to_its_side_output(env):
    tag = OutputTag("late")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondIsTime())
    env.get_config().set_auto_watermark_interval(1)
    stream = env.from_collection([("a", 5000)]).assign_timestamps_and_watermarks(strategy)
    windows = stream.key_by(first_of).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    main = windows.allowed_lateness(10).side_output_late_data(tag).reduce(running_sum)
    late = main.get_side_output(tag).map(lambda value: ("late", value))
    assert collected(main.union(late)) == [("a", 5000)]


def numbers(start, stop):
    index = list(range(start, stop))
    return pa.RecordBatch.from_pydict({
        "k": [i % 3 for i in index],
        "v": [float(i) for i in index],
        "ts": [i * 10 for i in index],
    })


def test_columns_are_filtered_selected_and_aggregated_in_windows(env):
    source = BatchGeneratorSource(numbers, 1000, batch_size=64, timestamps="ts")
    stream = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "columns")
    chosen = stream.filter(col("v") >= 100).select("k", "ts", twice=col("v") * 2)
    windows = chosen.key_by(col("k")).window(TumblingEventTimeWindows.of(Time.seconds(5)))
    aggregates = windows.aggregate(
        count().alias("n"),
        sum_("twice"),
        min_("twice"),
        max_("twice").alias("most"),
        avg("twice"),
        first("ts"),
        last("ts"),
    )
    expected = {}
    for index in range(100, 1000):
        expected.setdefault((index % 3, index * 10 // 5000 * 5000), []).append(index)
    got = {(row["k"], row["window_start"]): row.as_dict() for row in collected(aggregates)}
    assert set(got) == set(expected)
    for key, inside in expected.items():
        row = got[key]
        assert (row["n"], row["sum_twice"]) == (len(inside), 2.0 * sum(inside))
        assert (row["min_twice"], row["most"]) == (2.0 * min(inside), 2.0 * max(inside))
        assert row["window_end"] == key[1] + 5000
        assert row["avg_twice"] == pytest.approx(2 * sum(inside) / len(inside))


def test_map_batches_gets_arrow_and_rows_come_out(env):
    def double(batch):
        return pa.RecordBatch.from_pydict({"v": pc.multiply(batch.column("v"), 2)})

    source = BatchGeneratorSource(numbers, 5)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "columns")
    got = collected(stream.map_batches(double).map(lambda row: row["v"]))
    assert sorted(got) == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_a_declared_float_has_32_bits_in_the_next_function(env):
    stream = env.from_collection([1.1], Types.FLOAT())
    assert collected(stream.map(repr)) == ["1.100000023841858"]


def test_a_failing_function_shows_error_operator_record_and_line(env):
    class Breaks(MapFunction):
        def map(self, value):
            if value == 3:
                raise ValueError("boom at three")
            return value

    env.from_collection([1, 2, 3]).map(Breaks()).name("Fragile").print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute()
    text = str(caught.value)
    assert text.startswith("ValueError: boom at three\n  File ")
    assert "Fragile" in text and "3" in text and "test_every_part_of_the_api.py" in text


def test_files_are_read_and_written_once_each(env, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(f"{name}{i}\n" for i in range(1000)))
    out = tmp_path / "_out"
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    sink = (
        FileSink
        .for_row_format(str(out), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    lines = env.from_source(
        source.set_split_size(997).build(), WatermarkStrategy.no_watermarks(), "files"
    )
    lines.map(str.upper).sink_to(sink)
    env.execute()
    written = [line for path in out.iterdir() for line in path.read_text().splitlines()]
    assert sorted(written) == sorted(f"{name}{i}" for name in "AB" for i in range(1000))
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_print_prefixes_lines_by_subtask_and_identifier(env, capfd):
    env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()])).print("id")
    env.from_collection([(1, "a")]).print("solo").set_parallelism(1)
    env.execute()
    out = capfd.readouterr().out
    assert "(a,1)" in out and "solo> (1, 'a')" in out


def load_example(name):
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nexmark_q5_equals_the_plain_computation(env):
    from penstock.connectors.nexmark import NexmarkSource

    q5 = load_example("nexmark_q5")
    source = NexmarkSource(60_000, 3, events_per_second=2000, batch_size=1000)
    stream = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "Nexmark")
    got = sorted(collected(q5.hot_items(stream)))
    assert got == q5.expected_q5(60_000, 3, 2000)
    assert len({window_end for window_end, _, _ in got}) == 19


def test_the_word_count_example_counts_like_a_counter(tmp_path, capfd, monkeypatch):
    word_count = load_example("word_count")
    (tmp_path / "text").write_text("To be or not\nto be\n")
    cluster = MiniCluster(parallelism=2)
    environment = StreamExecutionEnvironment().use_executor(cluster.executor())
    monkeypatch.setattr(
        StreamExecutionEnvironment, "get_execution_environment", lambda *_: environment
    )
    monkeypatch.setattr(
        sys, "argv", ["word_count", "--input", str(tmp_path), "--repeat", "3", "--top", "2"]
    )
    word_count.main()
    out = capfd.readouterr().out.splitlines()
    assert "6\tbe" in out and "6\tto" in out
    assert any(line.startswith("TOTAL words=18 distinct=4 seconds=") for line in out)
    assert word_count.licence_texts()


# ---------------------------------------------------------------------- connected streams


class Enrich(KeyedCoProcessFunction):
    """Orders wait for the name of their customer."""

    def open(self, runtime_context):
        self.name = runtime_context.get_state(ValueStateDescriptor("name", Types.STRING()))
        self.waiting = runtime_context.get_list_state(
            ListStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element1(self, value, ctx):
        name = self.name.value()
        if name is None:
            self.waiting.add(value)
        else:
            yield (value[1], name)

    def process_element2(self, value, ctx):
        self.name.update(value[1])
        for order in self.waiting.get():
            yield (order[1], value[1])
        self.waiting.clear()


def test_keyed_connected_streams_share_state(env):
    orders = env.from_collection([("c1", 1), ("c2", 2), ("c1", 3), ("c3", 4)])
    names = env.from_collection([("c2", "Bo"), ("c1", "Al")])
    connected = orders.connect(names).key_by(lambda o: o[0], lambda n: n[0])
    assert sorted(collected(connected.process(Enrich()))) == [(1, "Al"), (2, "Bo"), (3, "Al")]


def test_connected_streams_with_one_method_each(env):
    class Sides(CoMapFunction):
        def map1(self, value):
            return ("number", value)

        def map2(self, value):
            return ("word", value)

    numbers, words = env.from_collection([1, 2]), env.from_collection(["a"])
    assert sorted(collected(numbers.connect(words).map(Sides()))) == [
        ("number", 1), ("number", 2), ("word", "a"),
    ]  # fmt: skip


def test_only_one_keyed_stream_is_refused(env):
    keyed = env.from_collection([1]).key_by(lambda v: v)
    with pytest.raises(GraphError, match="Key both"):
        keyed.connect(env.from_collection([2])).process(Enrich())
    both = keyed.connect(env.from_collection([2]).key_by(lambda v: v))
    with pytest.raises(TypeError, match="KeyedCoProcessFunction"):
        both.process(lambda value, ctx: value)


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Limits(BroadcastProcessFunction):
    """Elements at or above their limit; the rules come first."""

    def process_element(self, value, ctx):
        limit = ctx.get_broadcast_state(RULES).get(value[0])
        if limit is not None and value[1] >= limit:
            yield value

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)


class KeyedLimits(KeyedBroadcastProcessFunction):
    """Counts per key what came before the rules; a timer at the end tells it."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(10_000)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)

    def on_timer(self, timestamp, ctx):
        key = ctx.get_current_key()
        yield (key, self.seen.value(), ctx.get_broadcast_state(RULES).get(key))


def test_broadcast_elements_reach_every_subtask(env):
    env.set_parallelism(3)
    rules = env.from_collection([("a", 5), ("b", 7)]).broadcast(RULES)
    values = env.from_collection([("a", 4), ("a", 5), ("b", 9), ("c", 99)])
    timed = values.assign_timestamps_and_watermarks(IN_ORDER)
    keyed = timed.key_by(lambda v: v[0]).connect(rules).process(KeyedLimits())
    assert sorted(collected(keyed)) == [("a", 2, 5), ("b", 1, 7), ("c", 1, None)]


def test_the_other_side_may_only_read_broadcast_state(env):
    class Changes(Limits):
        def process_element(self, value, ctx):
            ctx.get_broadcast_state(RULES).clear()

    rules = env.from_collection([("a", 5)]).broadcast(RULES)
    changed = env.from_collection([("a", 4)]).connect(rules).process(Changes())
    with pytest.raises(JobExecutionError, match="process_broadcast_element only"):
        collected(changed)


def test_a_state_that_was_not_broadcast_is_named(env):
    class Misses(Limits):
        def process_element(self, value, ctx):
            ctx.get_broadcast_state(MapStateDescriptor("rule", Types.STRING(), Types.INT()))

    rules = env.from_collection([("a", 5)]).broadcast(RULES)
    missed = env.from_collection([("a", 4)]).connect(rules).process(Misses())
    with pytest.raises(JobExecutionError, match=r"no broadcast state 'rule'.*\['rules'\]"):
        collected(missed)


def test_a_broadcast_side_needs_its_own_kind_of_function(env):
    rules = env.from_collection([("a", 5)]).broadcast(RULES)
    with pytest.raises(TypeError, match="KeyedBroadcastProcessFunction"):
        env.from_collection([1]).key_by(lambda v: v).connect(rules).process(Limits())
    with pytest.raises(TypeError, match="BroadcastProcessFunction"):
        env.from_collection([1]).connect(rules).process(Enrich())
