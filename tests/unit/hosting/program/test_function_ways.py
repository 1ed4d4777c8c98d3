"""How row functions will run is told before the job runs."""

import pyarrow as pa
import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.compiler.job_graph_builder import build_job_graph
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.formats.json_blocks import records
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.hosting.minicluster import MiniCluster
from penstock.hosting.program.function_ways import note_function_ways, told
from penstock.hosting.program.submitted_jobs import submitted_job
from penstock.hosting.shipping.pickling import serialize
from penstock.model.config import Settings
from penstock.model.ids import JobId
from penstock.model.options.task import TaskOptions
from penstock.model.row import Row
from penstock.runtime.operators import MapOperator, ReduceOperator

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
    note_function_ways(graph, job)
    return job


def selector_ways(build):
    """(name, way, why not on columns) of each key selector of a program."""
    return [
        (info.name, one.way, one.why)
        for vertex in job_of(build).vertices.values()
        for info in vertex.operators
        for one in info.selectors
    ]


def ways(build):
    """(name, way, why not on columns) of each row function of a program."""
    return [
        (info.name, info.function.way, info.function.why)
        for vertex in job_of(build).vertices.values()
        for info in vertex.operators
        if info.function is not None
    ]


def test_functions_behind_a_source_of_columns_and_its_filters():
    def build(env):
        columns(env).filter(lambda row: row.a > 1).map(lambda row: print(row.b)).print()

    why = "it calls or reads 'print', of which it is not known what it does"
    assert ways(build) == [("Filter", "kernels", ""), ("Map", "fields", why)]


def test_a_function_behind_another_one_gets_its_objects():
    def build(env):
        columns(env).map(lambda row: (row.a,)).map(lambda pair: {pair}).print()

    why = "its records come as Python objects from Map"
    assert ways(build) == [("Map", "columns", ""), ("Map", "records", why)]


def test_functions_that_run_as_one_run_on_columns():
    def build(env):
        made = columns(env).map(lambda row: (row.a,)).filter(lambda pair: pair[0] > 1)
        made.map(lambda pair: pair[0]).filter(lambda value: value > 2).print()

    why = "its records come as Python objects from Map"
    assert ways(build) == [
        *(("Map", "columns", ""), ("Filter", "columns", ""), ("Map", "columns", "")),
        ("Filter", "inline", why),
    ]


PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])


def told_of(build):
    """How each row function of a program runs, and why not in kernels."""
    lines = told(job_of(build)).split("\n")[1:]
    return [(line.split(" (")[0].strip(), line.split("): ")[1]) for line in lines]


def test_a_map_of_a_declared_type_in_front_of_an_exchange_runs_in_kernels():
    def build(env):
        made = columns(env).map(lambda row: (row.a * 2, row.b), output_type=PAIR)
        made.rebalance().map(lambda pair: pair[0]).set_parallelism(2).print()

    no_type = "columns, not kernels - its results have no declared type"
    assert told_of(build) == [("Map", "kernels"), ("Map", no_type)]


def test_functions_in_kernels_give_columns_to_those_behind_them():
    def build(env):
        made = columns(env).map(lambda row: (row.a * 2, row.b), output_type=PAIR)
        made = made.filter(lambda pair: pair[0] > 1)
        made = made.map(lambda pair: (pair[0], pair[1].lower()), output_type=PAIR)
        made.rebalance().map(lambda pair: {pair}).set_parallelism(2).print()

    assert told_of(build)[:3] == [("Map", "kernels"), ("Filter", "kernels"), ("Map", "kernels")]


def test_functions_that_run_as_one_run_in_kernels_if_the_last_one_has_a_type():
    def build(env):
        made = columns(env).map(lambda row: (row.a * 2, row.b)).filter(lambda pair: pair[0] > 1)
        made = made.map(lambda pair: (pair[0], pair[1].lower()), output_type=PAIR)
        made.rebalance().map(lambda pair: {pair}).set_parallelism(2).print()

    assert told_of(build)[:3] == [("Map", "kernels"), ("Filter", "kernels"), ("Map", "kernels")]


def test_why_a_function_does_not_run_in_kernels_is_told():
    def build(env):
        made = columns(env)
        made.map(lambda row: (row.a, row.b), output_type=PAIR).print()
        made.map(lambda row: (row.a, row.b.title()), output_type=PAIR).rebalance().map(
            lambda pair: {pair}
        ).set_parallelism(2).print()
        made.flat_map(lambda row: [row.a]).print()

    why = [told for name, told in told_of(build) if told.startswith("columns")]
    assert why == [
        "columns, not kernels - Sink: Print to Std. Out takes its results as Python objects",
        "columns, not kernels - no kernel has title() with these arguments",
        "columns, not kernels - a flat_map has none",
    ]


def test_behind_an_exchange_of_a_declared_type_there_are_columns_again():
    def build(env):
        made = columns(env).map(lambda row: row, output_type=KIND).rebalance()
        made.map(lambda row: row.a + 1).set_parallelism(2).print()

    why = "it uses the record itself, not only its fields"
    assert ways(build) == [("Map", "records", why), ("Map", "columns", "")]


def test_a_source_of_rows_gives_objects():
    def build(env):
        env.from_collection([(1, "x")], KIND).map(lambda row: row.a).print()

    assert ways(build)[0][1:] == (
        "inline",
        "its records come as Python objects from Source: Collection Source",
    )


def add(one, other):
    return one[0], one[1] + other[1]


def test_key_selectors_on_columns_and_within_the_loop():
    def build(env):
        made = columns(env)
        made.key_by(lambda row: row.a).map(lambda row: 1).name("field").print()
        made.key_by(lambda row: row.a % 10).map(lambda row: 1).name("computed").print()
        made.key_by(lambda row: hex(print(row))).map(lambda row: 1).name("called").print()
        pairs = made.map(lambda row: (row.a, 1))
        pairs.key_by(lambda pair: pair[0]).map(lambda row: 1).name("pairs").print()

    why = "it calls or reads 'print', of which it is not known what it does"
    assert selector_ways(build) == [
        *(("field", "columns", ""), ("computed", "columns", "")),
        *(("called", "records", why), ("pairs", "inline", "")),
    ]


def test_reduces_run_within_the_loop_if_they_only_compute():
    def build(env):
        pairs = columns(env).map(lambda row: (row.a, 1)).key_by(lambda pair: pair[0])
        pairs.reduce(add).name("add").print()
        pairs.reduce(lambda one, other: print(one) or other).name("called").print()
        pairs.sum(1).name("sum").print()

    why = "it calls or reads 'print', of which it is not known what it does"
    assert ways(build)[1:] == [("add", "inline", ""), ("called", "records", why)]


NO_SUM = "it is no sum, minimum, maximum, first or last value of each field"
SALE = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])


def test_window_reduces_that_are_sums_combine_in_columns():
    def build(env):
        windows = TumblingEventTimeWindows.of(Time.seconds(1))
        sales = columns(env, SALE)
        keyed = sales.key_by(lambda row: row.user)
        keyed.window(windows).reduce(lambda one, other: Row(user=one.user, n=one.n + other.n)).name(
            "sum"
        ).print()
        keyed.window(windows).reduce(lambda one, other: Row(user=one.user, n=one.n * other.n)).name(
            "product"
        ).print()
        sales.key_by(lambda row: row.user[:1]).window(windows).reduce(
            lambda one, other: Row(user=one.user, n=one.n + other.n)
        ).name("computed").print()
        keyed.count_window(3).reduce(lambda one, other: one).name("count").print()
        keyed.reduce(lambda one, other: Row(user=one.user, n=one.n + other.n)).name("all").print()

    assert [one for one in told_of(build) if "key selector" not in one[0]] == [
        ("sum", "partials"),
        (
            "product",
            f"inline, not partials - {NO_SUM}",
        ),
        ("computed", "inline, not partials - its key is no field"),
        ("count", "records - windows of this kind add one record at a time"),
        ("all", "inline, not partials - each record has a result of its own"),
    ]


def test_reduces_of_a_batch_job_combine_in_columns():
    def build(env):
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        keyed = columns(env, SALE).key_by(lambda row: row.user)
        keyed.reduce(lambda one, other: Row(user=one.user, n=one.n + other.n)).print()

    assert ("Reduce", "partials") in told_of(build)


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

    assert ways(build) == [
        ("reads", "fields", "it has state"),
        ("late", "records", "late records have a side output"),
        ("aside", "records", "records at which it raises are put aside"),
        ("counted", "records", "windows of this kind add one record at a time"),
    ]


def test_the_fields_that_a_source_of_json_parses_are_told(tmp_path):
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

    found = [told_of(build)[0] for build in (few, leaves, whole, nothing, printed)]
    assert found == [
        ("Source: bids", "parses 2 of 3 fields: auction, price"),
        ("Source: bids", "parses all 3 fields - records leave the task as columns"),
        ("Source: bids", "parses 3 of 3 fields: auction, price, seller"),
        ("Source: bids", "parses 0 of 3 fields: none"),
        ("Source: bids", "parses all 3 fields - Sink: Print to Std. Out takes whole records"),
    ]


@pytest.mark.parametrize("has_msgspec", [True, False])
def test_records_that_msgspec_decodes_do_not_run_in_kernels(tmp_path, monkeypatch, has_msgspec):
    """They are Python objects. Columns that leave the task are no such objects."""
    if not has_msgspec:
        monkeypatch.setattr(records, "msgspec_module", lambda: None)
    (tmp_path / "lines.json").write_text("{}\n")

    def lines(env, kind=KIND):
        made = StreamFormat.json_lines_format(kind)
        source = FileSource.for_record_stream_format(made, str(tmp_path / "lines.json")).build()
        return env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")

    def behind(env):
        kept = lines(env).filter(lambda row: row.a > 1)
        kept.map(lambda row: row.a, output_type=Types.LONG()).rebalance().print()

    def in_another_task(env):
        lines(env).filter(lambda row: row.a > 1).rebalance().print()

    def of_lists(env):
        kind = Types.ROW_NAMED(["a", "b"], [Types.LIST(Types.LONG()), Types.STRING()])
        lines(env, kind).filter(lambda row: row.a is None).map(lambda row: row.b).print()

    way = "columns" if has_msgspec else "kernels"
    assert ways(behind) == [("Filter", way, ""), ("Map", way, "")]
    assert ways(in_another_task) == [("Filter", "kernels", "")]
    assert ways(of_lists)[0] == ("Filter", "kernels", "")


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

    assert ways(build) == [
        ("text", "fields", "it has state"),
        ("row", "records", "it uses the record itself, not only its fields"),
        ("kept", "records", "the records that it keeps go on"),
        ("prices", "fields", "it has state"),
        ("whole", "records", "it uses the record itself, not only its fields"),
        ("called", "records", "its key selector takes records"),
        ("objects", "records", "its stream has no declared type"),
    ]


def test_with_timestamps_a_filter_does_not_run_as_one_with_the_map_before_it():
    """It would not be known whose timestamps are left. A map behind a filter gets columns from it."""

    def build(env, strategy):
        stamped = env.from_source(BatchGeneratorSource(batch, 10), strategy, "Generated", KIND)
        stamped.map(lambda row: row.a + 1).filter(lambda value: value > 1).print()
        stamped.filter(lambda row: row.a > 1).map(lambda row: row.b).print()

    stamped = ways(lambda env: build(env, WatermarkStrategy.for_monotonous_timestamps()))
    behind = ("Filter", "inline", "with timestamps it does not run as one with Map")
    assert stamped == [
        ("Map", "columns", ""),
        behind,
        ("Filter", "kernels", ""),
        ("Map", "columns", ""),
    ]
    plain = ways(lambda env: build(env, WatermarkStrategy.no_watermarks()))
    assert plain[1] == ("Filter", "columns", "")


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
    text = told(submitted.graph)
    assert text.count("records - penstock.task.functions-as-columns is false") == 3


def test_the_text_has_a_line_for_each_function():
    def build(env):
        columns(env).map(lambda row: row).print()

    first, line = told(job_of(build)).split("\n")
    assert first == "Row functions:"
    assert line.startswith("  Map (")
    assert line.endswith("): records - it uses the record itself, not only its fields")
    assert told(job_of(lambda env: columns(env).print())) == "The program has no row functions."


def test_the_text_has_a_line_for_each_key_selector():
    def build(env):
        columns(env).key_by(lambda row: row.a % 2).reduce(lambda one, other: one).print()

    _, selector, function = told(job_of(build)).split("\n")
    assert selector.startswith("  Reduce, key selector (")
    assert selector.endswith("): columns")
    assert function.startswith("  Reduce (")
    assert function.endswith("): inline, not partials - each record has a result of its own")
