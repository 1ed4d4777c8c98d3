"""Errors that a program gets where it is built: each names the operator and the line."""

import operator
import re
import sys
from functools import partial

import pytest

from penstock.common import Duration, Row, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    CoMapFunction,
    FilterFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
    SourceFunction,
)
from penstock.datastream.columns import col, sum_
from penstock.datastream.connectors import NumberSequenceSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    TumblingEventTimeWindows,
)
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import GraphError, JobExecutionError
from tests.tools.programs.environments import minicluster_environment
from tests.tools.programs.user_functions import first_of

NAMED = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
WINDOW = TumblingEventTimeWindows.of(Time.seconds(1))


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster())


@pytest.fixture
def rows(env):
    return env.from_collection([(1, "x"), (2, "y")], NAMED)


def line():
    """Of who calls, as errors name it."""
    return f"{__file__}:{sys._getframe(1).f_lineno}"


class Kept(FilterFunction):
    def filter(self, value):
        return True


class Doubled(MapFunction):
    def map(self, value):
        return 2 * value


class NoContext(ProcessFunction):
    def process_element(self, value):
        yield value


class NoKey(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def on_timer(self, timestamp):
        yield timestamp


class OneValue(ReduceFunction):
    def reduce(self, value):
        return value


class TwoOfThree(ProcessAllWindowFunction):
    def process(self, key, context, elements):
        yield key


class Same(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


class OpensAlone(MapFunction):
    def open(self):
        pass

    def map(self, value):
        return value


COLUMNS = {
    "Select": lambda rows: rows.select("a", col("c") + 1),
    "Filter": lambda rows: rows.filter((col("a") > 1) & (col("c") > 1)),
    "key_by": lambda rows: rows.key_by(col("a"), col("c")),
    "TumblingEventTimeWindows": lambda rows: (
        rows.key_by(col("a")).window(WINDOW).aggregate(sum_(col("c")).alias("sum"))
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_an_unknown_column_is_named_with_those_that_there_are(rows, name):
    with pytest.raises(GraphError) as error:
        COLUMNS[name](rows)
    text = str(error.value)
    assert text.startswith(f"{name}, built at {__file__}:")
    assert "column 'c' is not in this stream" in text
    assert text.endswith("has the columns a, b.")


def test_known_columns_and_those_of_undeclared_streams_are_taken_without_complaint(env, rows):
    rows.select("a", (col("b") == "x").alias("is_x")).filter(col("is_x"))
    env.from_collection([1]).select("anything")
    env.from_collection([1], Types.INT()).filter(col("value") > 0)
    env.from_collection([(1, 2)], Types.TUPLE([Types.INT(), Types.INT()])).select("f1")


@pytest.mark.parametrize("field", ["c", 2])
def test_an_aggregate_of_a_field_that_is_not_there_is_refused(env, rows, field):
    with pytest.raises(GraphError, match=rf"sum, built at .*: .* has no field {field!r}.*of a, b"):
        rows.key_by(first_of).sum(field)
    pairs = env.from_collection([(1, 2)], Types.TUPLE([Types.INT(), Types.INT()]))
    with pytest.raises(GraphError, match=r"has no field .*Use a position in \[0, 1\]\.$"):
        pairs.key_by(first_of).max_by(field)
    with pytest.raises(TypeError, match="field selected on a basic type"):
        env.from_collection([1], Types.INT()).key_by(bool).min(field)


ARITIES = {
    "Map": lambda rows: rows.map(lambda a, b: a),
    "FlatMap": lambda rows: rows.flat_map(lambda: [1]),
    "Filter": lambda rows: rows.key_by(first_of).filter(lambda a, b: a),
    "Reduce": lambda rows: rows.key_by(first_of).reduce(OneValue()),
    "PROCESS": lambda rows: rows.process(NoContext()),
    "KEYED PROCESS": lambda rows: rows.key_by(first_of).process(NoKey()),
    "key_by": lambda rows: rows.key_by(lambda a, b: a),
    "partition_custom": lambda rows: rows.partition_custom(lambda key: 0, first_of),
    "TumblingEventTimeWindows": lambda rows: rows.window_all(WINDOW).process(TwoOfThree()),
}


@pytest.mark.parametrize("name", ARITIES)
def test_a_function_of_another_arity_is_refused(rows, name):
    with pytest.raises(TypeError, match="but cannot take them") as error:
        ARITIES[name](rows)
    assert str(error.value).startswith(f"{name}, built at {__file__}:")


def test_an_open_without_a_context_is_refused_by_its_name(rows):
    with pytest.raises(TypeError, match=r"OpensAlone\.open\(\) is called with 1 argument"):
        rows.map(OpensAlone())


@pytest.mark.parametrize("func", [str, repr, max, operator.itemgetter(0), lambda *every: every])
def test_functions_of_c_and_those_that_take_anything_are_taken(rows, func):
    assert rows.map(func).get_name() == "Map"


KINDS = {
    "Map": lambda rows: rows.map(Kept()),
    "PROCESS": lambda rows: rows.process(NoKey()),
    "KEYED PROCESS": lambda rows: rows.key_by(first_of).process(NoContext()),
    "Co-Map": lambda rows: rows.connect(rows).map(first_of),
    "TumblingEventTimeWindows": lambda rows: rows.key_by(first_of).window(WINDOW).apply(Kept()),
    "key_by": lambda rows: rows.key_by("a"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_function_of_the_wrong_kind_is_refused(rows, name):
    with pytest.raises(TypeError) as error:
        KINDS[name](rows)
    assert re.search(rf"{re.escape(name)}, built at {re.escape(__file__)}:\d+\.$", str(error.value))


@pytest.mark.parametrize(
    "take", [lambda rows: rows.map(Doubled), lambda rows: rows.key_by(KeySelector)]
)
def test_a_class_instead_of_an_object_is_refused(rows, take):
    with pytest.raises(TypeError, match=r"got the class (Doubled|KeySelector) itself: write "):
        take(rows)


def test_the_keys_of_connected_streams_are_of_one_type(rows):
    typed, pickled = rows.key_by(first_of, Types.INT()), rows.key_by(first_of)
    with pytest.raises(GraphError, match="keys are of different types, Integer and pickled"):
        typed.connect(pickled).map(Same())
    assert typed.connect(rows.key_by(first_of, Types.INT())).map(Same()).get_name() == "Co-Map"
    assert pickled.connect(pickled).map(Same()).get_name() == "Co-Map"


def test_a_key_that_does_not_fit_its_type_names_the_line_of_key_by(env, rows):
    keyed, where = rows.key_by(first_of, Types.STRING()), line()
    keyed.sum().print()
    with pytest.raises(
        JobExecutionError, match=f"the key of key_by, built at {re.escape(where)}: "
    ):
        env.execute()


def test_an_output_tag_is_used_again_with_another_type(rows):
    class Tagging(ProcessFunction):
        def process_element(self, value, ctx):
            yield OutputTag("side", Types.INT()), value

    processed = rows.process(Tagging()).name("Tagging")
    processed.get_side_output(OutputTag("side", Types.INT()))
    processed.get_side_output(OutputTag("side", Types.INT()))
    with pytest.raises(GraphError, match=r"'Tagging' \(built at .* 'side' of type Integer already"):
        processed.get_side_output(OutputTag("side", Types.STRING()))
    rows.process(Tagging()).get_side_output(OutputTag("side", Types.STRING()))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda env, rows: env.set_runtime_mode("BATCH"), "takes a RuntimeExecutionMode"),
        (lambda env, rows: env.from_collection(5), "takes a list of values, got 5"),
        (lambda env, rows: env.from_collection(["x"], Types.INT()), "from_collection: a value of"),
        (lambda env, rows: rows.assign_timestamps_and_watermarks(5), "takes a WatermarkStrategy"),
        (lambda env, rows: rows.union(5), "union takes DataStreams, got int"),
        (lambda env, rows: rows.connect(5), "connect takes a DataStream, got int"),
        (lambda env, rows: rows.get_side_output("late"), "takes an OutputTag, got 'late'"),
        (lambda env, rows: rows.window_all(WINDOW).trigger(5), "takes a Trigger"),
        (
            lambda env, rows: rows.window_all(WINDOW).side_output_late_data("x"),
            "takes an OutputTag",
        ),
        (lambda env, rows: ValueStateDescriptor("x", int), "takes a type such as"),
    ],
)
def test_what_is_no_argument_of_a_method_is_told(env, rows, wrong, text):
    with pytest.raises(TypeError, match=text):
        wrong(env, rows)


def test_a_descriptor_of_another_kind_of_state_is_refused(env, rows):
    class Asks(KeyedProcessFunction):
        def open(self, runtime_context):
            runtime_context.get_state(ListStateDescriptor("x", Types.INT()))

        def process_element(self, value, ctx):
            yield Row(1)

    rows.key_by(first_of).process(Asks()).print()
    with pytest.raises(JobExecutionError, match="takes a ValueStateDescriptor, got <"):
        env.execute()


class Greatest(ReduceFunction):
    def reduce(self, value1, value2):
        return max(value1, value2)


@pytest.mark.parametrize("function", [5, None, "max", Greatest])
def test_a_reducing_state_takes_a_function(function):
    with pytest.raises(TypeError, match=r"ReducingStateDescriptor\('total'\) takes an object with"):
        ReducingStateDescriptor("total", function, Types.INT())
    assert ReducingStateDescriptor("total", max, Types.INT()).reduce(1, 2) == 2


class Half:
    def add(self, value, accumulator):
        return accumulator


@pytest.mark.parametrize("function", [5, max, Half(), AggregateFunction])
def test_an_aggregating_state_takes_an_aggregate_function(function):
    with pytest.raises(TypeError, match="create_accumulator, add, get_result, merge, got"):
        AggregatingStateDescriptor("total", function, Types.INT())


def test_a_field_that_a_row_type_has_not_has_no_position():
    assert NAMED.get_field_index("b") == 1
    with pytest.raises(ValueError, match="no field 'c', only"):
        NAMED.get_field_index("c")


class EveryFive(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 5


class ByFirst(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[0]


@pytest.mark.parametrize("extractor", [EveryFive, lambda element: 5, 5, None])
@pytest.mark.parametrize("assigner", [EventTimeSessionWindows, ProcessingTimeSessionWindows])
def test_a_dynamic_gap_takes_an_extractor(assigner, extractor):
    with pytest.raises(TypeError, match="extends SessionWindowTimeGapExtractor .*, got "):
        assigner.with_dynamic_gap(extractor)
    assigner.with_dynamic_gap(EveryFive())


@pytest.mark.parametrize("assigner", [ByFirst, lambda value, timestamp: 5])
def test_a_strategy_takes_an_object_as_its_assigner(assigner):
    with pytest.raises(TypeError, match="with_timestamp_assigner takes a TimestampAssigner"):
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(assigner)


@pytest.mark.parametrize("given", [int, Types.INT, "INT"])
def test_the_type_of_a_source_is_a_type(env, given):
    source, strategy = NumberSequenceSource(1, 2), WatermarkStrategy.no_watermarks()
    told = f"{re.escape(__file__)}:.*: type_info must be None, a TypeInformation such as"
    with pytest.raises(TypeError, match=told):
        env.from_collection([1], given)
    with pytest.raises(TypeError, match=told):
        env.from_source(source, strategy, "numbers", given)


@pytest.mark.parametrize("lateness", [5, Time.milliseconds(5), Duration.of_millis(5)])
def test_an_allowed_lateness_is_any_length_of_time(rows, lateness):
    windows = TumblingEventTimeWindows.of(Time.seconds(1))
    rows.key_by(first_of).window(windows).allowed_lateness(lateness)
    rows.window_all(windows).allowed_lateness(lateness)
    with pytest.raises(TypeError, match="expected a Duration, Time"):
        rows.window_all(windows).allowed_lateness("5 ms")


def yielding(*values):
    yield values


async def awaiting(value):
    return value


class YieldingMap(MapFunction):
    def map(self, value):
        yield value


class YieldingCall:
    def __call__(self, value):
        yield value


class YieldingCoMap(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        yield value


GIVE_NO_RESULT = {
    "partial": (lambda rows: rows.map(partial(yielding)), "flat_map"),
    "object with a call": (lambda rows: rows.map(YieldingCall()), "flat_map"),
    "co map": (lambda rows: rows.connect(rows).map(YieldingCoMap()), "flat_map"),
    "map": (lambda rows: rows.map(yielding), "flat_map"),
    "map of an object": (lambda rows: rows.map(YieldingMap()), "flat_map"),
    "keyed map": (lambda rows: rows.key_by(first_of).map(yielding), "flat_map"),
    "filter": (lambda rows: rows.filter(yielding), "return"),
    "reduce": (lambda rows: rows.key_by(first_of).reduce(yielding), "return"),
    "coroutine": (lambda rows: rows.map(awaiting), "AsyncDataStream"),
}


@pytest.mark.parametrize("name", GIVE_NO_RESULT)
def test_a_function_whose_call_gives_no_result_yet_is_refused(rows, name):
    build, instead = GIVE_NO_RESULT[name]
    with pytest.raises(TypeError, match=rf"built at .*must return one result.*{instead}"):
        build(rows)


@pytest.mark.parametrize("method", ["window", "count_window", "sum", "min_by", "reduce"])
def test_what_only_a_keyed_stream_has_says_to_call_key_by(rows, method):
    with pytest.raises(AttributeError, match=rf"no attribute '{method}'.*key_by"):
        getattr(rows.key_by(first_of).map(first_of), method)


class OfKey(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class OfKeys(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    process_element2 = process_element1


@pytest.mark.parametrize(
    "build",
    [lambda rows: rows.process(OfKey()), lambda rows: rows.connect(rows).process(OfKeys())],
    ids=["one", "two"],
)
def test_a_function_for_keys_on_a_stream_without_them_says_to_call_key_by(rows, build):
    with pytest.raises(TypeError, match=r"Call key_by first: a Keyed(Co)?ProcessFunction"):
        build(rows)


@pytest.mark.parametrize("base", [SinkFunction, SourceFunction])
def test_a_python_class_cannot_extend_what_names_a_java_class(base):
    class Mine(base):
        def __init__(self, place):
            self.place = place

    with pytest.raises(
        NotImplementedError, match=rf"Mine extends {base.__name__}.*subclass of its"
    ):
        Mine("here")
    with pytest.raises(NotImplementedError, match=rf"^{base.__name__} wraps a Java class"):
        base("a.java.Class")


def test_results_given_in_javas_way_are_refused_with_pythons(rows):
    class Javas(ProcessFunction):
        def process_element(self, value, ctx):
            ctx.output(OutputTag("aside"), value)

    with pytest.raises(
        JobExecutionError, match=r"no 'output'\. Results are yielded.*yield tag, value"
    ):
        rows.process(Javas()).execute_and_collect(limit=1)


def test_a_checkpointing_mode_is_not_a_text(env):
    with pytest.raises(TypeError, match=r"CheckpointingMode\.EXACTLY_ONCE, got 'AT_LEAST_ONCE'"):
        env.enable_checkpointing(1000, "AT_LEAST_ONCE")


def _parquet(tmp_path):
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    return FileSink.for_bulk_format(
        str(tmp_path), ParquetBulkWriters.for_row_type(row_type)
    ).build()


@pytest.mark.parametrize(
    "kind", [Types.BIG_DEC(), Types.BIG_INT(), Types.PICKLED_BYTE_ARRAY()], ids=str
)
@pytest.mark.parametrize(
    "build",
    [
        lambda ds, path: ds.filter(col("n") > 0).print(),
        lambda ds, path: ds.select(col("n")).print(),
        lambda ds, path: ds.map_batches(lambda batch: batch).print(),
        lambda ds, path: ds.filter(lambda row: True).sink_to(_parquet(path)).on_error("skip"),
        lambda ds, path: ds.rebalance().filter(col("n") > 0).on_error("skip").print(),
    ],
)
def test_records_beside_a_field_without_a_column_are_refused_by_an_operator_on_columns(
    env, rows, build, kind, tmp_path
):
    typed = rows.map(lambda row: row, Types.ROW_NAMED(["n", "bad"], [Types.INT(), kind]))
    build(typed, tmp_path)
    told = f"built at .*{re.escape(__file__)}.* takes columns: .*the fields 'bad' \\({kind}\\)"
    with pytest.raises(GraphError, match=told):
        env.execute()


@pytest.mark.parametrize(
    "build",
    [
        lambda ds: ds.map(lambda row: row),
        lambda ds: ds.flat_map(lambda row: [row]).filter(lambda row: True),
        lambda ds: ds.map(lambda row: row).union(ds.map(lambda row: row)).rebalance(),
        lambda ds: ds.filter(lambda row: True),
    ],
    ids=["map", "filtered", "union", "collection"],
)
def test_rows_without_a_type_are_refused_by_a_sink_of_columns(env, build, tmp_path):
    build(env.from_collection([Row(1)])).sink_to(_parquet(tmp_path)).on_error("skip")
    with pytest.raises(GraphError, match=r"takes columns: .*declare the stream's type"):
        env.execute()
