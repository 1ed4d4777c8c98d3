"""How row functions will run is told before the job runs."""

import pyarrow as pa

from penstock.common import Types, WatermarkStrategy
from penstock.compiler.job_graph_builder import build_job_graph
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.hosting.minicluster import MiniCluster
from penstock.hosting.program.function_ways import note_function_ways, told
from penstock.hosting.program.submitted_jobs import submitted_job
from penstock.hosting.shipping.pickling import serialize
from penstock.model.config import Settings
from penstock.model.ids import JobId
from penstock.model.options.task import TaskOptions
from penstock.runtime.operators import MapOperator

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
    assert ways(build) == [("Filter", "columns", ""), ("Map", "fields", why)]


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
        ("Filter", "records", why),
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
        "records",
        "its records come as Python objects from Source: Collection Source",
    )


def test_an_option_calls_all_functions_with_records():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    columns(env).map(lambda row: row.a).print()
    settings = Settings({TaskOptions.FUNCTIONS_AS_COLUMNS.key: "false"})
    graph, _ = submitted_job(
        MiniCluster(), env.plumbing.stream_graph(), env.plumbing.settings, settings
    )
    (operator,) = (
        node.operator for node in graph.nodes.values() if isinstance(node.operator, MapOperator)
    )
    assert not operator.functions_as_columns


def test_the_text_has_a_line_for_each_function():
    def build(env):
        columns(env).map(lambda row: row).print()

    first, line = told(job_of(build)).split("\n")
    assert first == "Row functions:"
    assert line.startswith("  Map (")
    assert line.endswith("): records - it uses the record itself, not only its fields")
    assert told(job_of(lambda env: columns(env).print())) == "The program has no row functions."
