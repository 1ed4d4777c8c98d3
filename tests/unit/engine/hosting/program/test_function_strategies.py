"""How row functions will run is reported before the job runs."""

import pyarrow as pa

from penstock.common import Time, Types, WatermarkStrategy
from penstock.connectors.datagen import BatchGeneratorSource
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.program.function_strategies import note_function_strategies, report
from penstock.engine.hosting.program.submitted_jobs import submitted_job
from penstock.engine.hosting.shipping.pickling import serialize
from penstock.engine.model.config import Settings
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.task import TaskOptions
from penstock.engine.runtime.operators import MapOperator, ReduceOperator

KIND = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])


def batch(start, rows):
    return pa.RecordBatch.from_pydict({"a": list(range(start, start + rows)), "b": ["x"] * rows})


def columns(env, kind=KIND):
    no_watermarks = WatermarkStrategy.no_watermarks()
    return env.from_source(BatchGeneratorSource(batch, 10), no_watermarks, "Generated", kind)


def job_of(build):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    build(env)
    graph = env.plumbing.stream_graph()
    job = build_job_graph(graph, JobId("0" * 32), serialize)
    note_function_strategies(graph, job)
    return job


def selector_strategies(build):
    """(name, strategy, why not on columns) of each key selector of a program."""
    return [
        (info.name, one.strategy, one.why)
        for vertex in job_of(build).vertices.values()
        for info in vertex.operators
        for one in info.selectors
    ]


def strategies(build):
    """(name, strategy, why not on columns) of each row function of a program."""
    return [
        (info.name, info.function.strategy, info.function.why)
        for vertex in job_of(build).vertices.values()
        for info in vertex.operators
        if info.function is not None
    ]


def test_functions_after_a_source_of_columns_and_its_filters():
    def build(env):
        columns(env).filter(lambda row: row.a > 1).map(lambda row: print(row.b)).print()

    why = "it calls or reads 'print', of which it is not known what it does"
    assert strategies(build) == [("Filter", "columns", ""), ("Map", "fields", why)]


def test_a_function_after_another_one_gets_its_objects():
    def build(env):
        columns(env).map(lambda row: (row.a,)).map(lambda pair: pair[0]).print()

    why = "its records come as Python objects from Map"
    assert strategies(build) == [("Map", "columns", ""), ("Map", "records", why)]


def lines_of(build):
    """The name of each operator of the report, and what it says of its function."""
    lines = report(job_of(build)).split("\n")[1:]
    return [(line.split(" (")[0].strip(), line.split("): ")[1]) for line in lines]


def test_after_an_exchange_of_a_declared_type_there_are_columns_again():
    def build(env):
        made = columns(env).map(lambda row: row, output_type=KIND).rebalance()
        made.map(lambda row: row.a + 1).set_parallelism(2).print()

    why = "it uses the record itself, not only its fields"
    assert strategies(build) == [("Map", "records", why), ("Map", "columns", "")]


def test_a_source_of_rows_gives_objects():
    def build(env):
        env.from_collection([(1, "x")], KIND).map(lambda row: row.a).print()

    assert strategies(build)[0][1:] == (
        "records",
        "its records come as Python objects from Source: Collection Source",
    )


def test_key_selectors_on_columns_and_on_records():
    def build(env):
        made = columns(env)
        made.key_by(lambda row: row.a).map(lambda row: 1).name("field").print()
        made.key_by(lambda row: row.a % 10).map(lambda row: 1).name("computed").print()
        made.key_by(lambda row: hex(print(row))).map(lambda row: 1).name("called").print()
        pairs = made.map(lambda row: (row.a, 1))
        pairs.key_by(lambda pair: pair[0]).map(lambda row: 1).name("pairs").print()

    why = "it calls or reads 'print', of which it is not known what it does"
    assert selector_strategies(build) == [
        *(("field", "columns", ""), ("computed", "columns", "")),
        *(("called", "records", why), ("pairs", "records", "its stream has no declared type")),
    ]


def test_reduces_are_always_called():
    def build(env):
        columns(env).key_by(lambda row: row.a).reduce(lambda one, other: one).print()

    assert strategies(build) == []


def noted(value):
    return value


class Longest(AggregateFunction):
    def create_accumulator(self):
        return ""

    def add(self, value, accumulator):
        return max(noted(value.b), accumulator, key=len)

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return max(acc_a, acc_b, key=len)


def test_aggregates_of_windows_are_called_with_fields_where_they_only_read():
    late = OutputTag("late", KIND)

    def build(env):
        keyed = columns(env).key_by(lambda row: row.a)
        windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
        windows.aggregate(Longest()).name("reads")
        windows.side_output_late_data(late).aggregate(Longest()).name("late")

        plain = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
        plain.aggregate(Longest()).name("aside").on_error("skip")
        keyed.count_window(3).aggregate(Longest()).name("counted")

    assert strategies(build) == [
        ("reads", "fields", "it has state"),
        ("late", "records", "late records have a side output"),
        ("aside", "records", "records at which it raises are put aside"),
        ("counted", "records", "windows of this kind add one record at a time"),
    ]


def test_the_fields_that_a_source_of_json_parses_are_report(tmp_path):
    (tmp_path / "bids.json").write_text("{}\n")
    kind = Types.ROW_NAMED(["auction", "price", "seller"], [Types.LONG()] * 3)

    def bids(env):
        lines = StreamFormat.json_lines_format(kind)
        source = FileSource.for_record_stream_format(lines, str(tmp_path / "bids.json")).build()
        return env.from_source(source, WatermarkStrategy.no_watermarks(), "bids")

    def few(env):
        bids(env).filter(lambda bid: bid.price > 1).map(lambda bid: bid.auction).print()

    def leaves(env):
        bids(env).rebalance().map(lambda bid: bid.auction).set_parallelism(2).print()

    def whole(env):
        bids(env).map(lambda bid: bid).print()

    def nothing(env):
        bids(env).map(lambda bid: 1).print()

    def printed(env):
        bids(env).print()

    found = [lines_of(build)[0] for build in (few, leaves, whole, nothing, printed)]
    assert found == [
        ("Source: bids", "parses 2 of 3 fields: auction, price"),
        ("Source: bids", "parses all 3 fields - records leave the task as columns"),
        ("Source: bids", "parses 3 of 3 fields: auction, price, seller"),
        ("Source: bids", "parses 0 of 3 fields: none"),
        ("Source: bids", "parses all 3 fields - Sink: Print to Std. Out takes whole records"),
    ]


def test_functions_of_keyed_streams_are_called_with_fields_or_records():
    class Prices(KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield ctx.get_current_key(), value.b

    class Whole(KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield value

    def build(env):
        keyed = columns(env).key_by(lambda row: row.a % 3)
        keyed.map(lambda row: row.b).name("text").print()
        keyed.flat_map(lambda row: [row]).name("row").print()
        keyed.filter(lambda row: row.a > 1).name("kept").print()
        keyed.process(Prices()).name("prices").print()
        keyed.process(Whole()).name("whole").print()
        columns(env).key_by(lambda row: print(row.a)).map(lambda row: row.b).name("called").print()
        untyped = env.from_collection([(1, 2)])
        untyped.key_by(lambda pair: pair[0]).map(lambda pair: pair[1]).name("objects").print()

    assert strategies(build) == [
        ("text", "fields", "it has state"),
        ("row", "records", "it uses the record itself, not only its fields"),
        ("kept", "records", "the records that it keeps go on"),
        ("prices", "fields", "it has state"),
        ("whole", "records", "it uses the record itself, not only its fields"),
        ("called", "records", "its key selector takes records"),
        ("objects", "records", "its stream has no declared type"),
    ]


def test_an_option_calls_all_functions_with_records():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    made = columns(env).map(lambda row: row.a)
    made.key_by(lambda value: value % 3).reduce(lambda one, other: one + other).print()
    settings = Settings({TaskOptions.FUNCTIONS_AS_COLUMNS.key: "false"})
    graph, submitted = submitted_job(
        MiniCluster(), env.plumbing.stream_graph(), env.plumbing.settings, settings
    )
    found = [one.operator for one in graph.nodes.values()]
    (operator,) = (one for one in found if isinstance(one, MapOperator))
    (reduce,) = (one for one in found if isinstance(one, ReduceOperator))
    assert not operator.functions_as_columns
    assert not reduce.functions_as_columns
    selections = [reduce.keys]
    selections += [edge.partitioning.key_selector for edge in graph.edges if edge.partitioning]
    assert [one.computed.is_on for one in selections if one is not None] == [False, False]
    text = report(submitted.graph)
    assert text.count("records - penstock.task.functions-as-columns is false") == 2


def test_the_text_has_a_line_for_each_function():
    def build(env):
        columns(env).map(lambda row: row).print()

    first, line = report(job_of(build)).split("\n")
    assert first == "Row functions:"
    assert line.startswith("  Map (")
    assert line.endswith("): records - it uses the record itself, not only its fields")
    assert report(job_of(lambda env: columns(env).print())) == "The program has no row functions."


def test_the_text_has_a_line_for_each_key_selector():
    def build(env):
        columns(env).key_by(lambda row: row.a % 2).reduce(lambda one, other: one).print()

    _, selector = report(job_of(build)).split("\n")
    assert selector.startswith("  Reduce, key selector (")
    assert selector.endswith("): columns")
