"""What graph the methods of the API build."""

import json
from pathlib import Path

import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SlotSharingGroup,
    StreamExchangeMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.columns import col
from penstock.datastream.connectors import DiscardingSink, NumberSequenceSource
from penstock.datastream.slot_sharing_group import MemorySize
from penstock.engine.model.errors import ConfigurationError, GraphError
from penstock.engine.model.graph.partitioning import ShipStrategy
from penstock.engine.model.graph.stream_graph import ChainingStrategy
from tests.tools.hosting.fake_executor import FakeExecutor, edges_of
from tests.tools.programs.user_functions import same


@pytest.fixture
def executor():
    return FakeExecutor()


@pytest.fixture
def env(executor):
    return StreamExecutionEnvironment.get_execution_environment().use_executor(executor)


class Echo(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


class KeyedEcho(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


def test_word_count_has_the_operators_and_edges_of_the_program(env, executor):
    words = env.from_collection(["a b"]).flat_map(str.split).map(lambda w: (w, 1))
    words.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).print()
    env.execute()
    assert edges_of(executor.graph) == [
        ("Source: Collection Source", "FlatMap", None, None),
        ("FlatMap", "Map", None, None),
        ("Map", "Reduce", "HASH", None),
        ("Reduce", "Sink: Print to Std. Out", None, None),
    ]
    nodes = list(executor.graph.nodes.values())
    assert (nodes[0].parallelism, nodes[0].is_parallelism_fixed) == (1, True)
    assert [node.parallelism for node in nodes[1:]] == [-1, -1, -1, -1]
    assert nodes[-1].driver_stream == "print"
    assert nodes[0].coordinator is not None and nodes[0].is_source


def test_a_node_remembers_the_users_line(env, executor):
    env.from_collection([1]).map(same)
    env.execute()
    for node in executor.graph.nodes.values():
        file, _, line = node.defined_at.rpartition(":")
        assert file == __file__
        source = Path(file).read_text(encoding="utf-8").splitlines()
        assert "env.from_collection([1]).map(same)" in source[int(line) - 1]


def test_function_objects_and_callables_are_taken_by_the_same_methods(env):
    class Map(MapFunction):
        def map(self, value):
            return value

    class FlatMap(FlatMapFunction):
        def flat_map(self, value):
            yield value

    class Filter(FilterFunction):
        def filter(self, value):
            return True

    class Key(KeySelector):
        def get_key(self, value):
            return value

    class Reduce(ReduceFunction):
        def reduce(self, value1, value2):
            return value1

    stream = env.from_collection([1]).map(Map()).flat_map(FlatMap()).filter(Filter())
    names = [
        stream.get_name(),
        stream.key_by(Key()).reduce(Reduce()).get_name(),
        stream.key_by(Key()).process(KeyedEcho()).get_name(),
        stream.process(Echo()).get_name(),
        stream.key_by(same).map(Map()).get_name(),
        stream.key_by(same).flat_map(FlatMap()).get_name(),
        stream.key_by(same).filter(Filter()).get_name(),
        stream.key_by(same).sum(0).get_name(),
    ]
    assert names == [
        "Filter", "Reduce", "KEYED PROCESS", "PROCESS", "Map", "FlatMap", "Filter", "Reduce",
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["map", "flat_map", "filter"])
def test_anything_that_cannot_be_called_is_refused(env, method):
    with pytest.raises(TypeError, match="Function or a callable function, got str"):
        getattr(env.from_collection([1]), method)("x")


def test_process_takes_the_right_kind_of_function_only(env):
    stream = env.from_collection([1])
    with pytest.raises(TypeError, match="must be a ProcessFunction, got function"):
        stream.process(lambda value, ctx: [value])
    with pytest.raises(TypeError, match="must be a KeyedProcessFunction, got Echo"):
        stream.key_by(same).process(Echo())


def test_key_by_refuses_names_and_positions_and_tells_what_to_write(env):
    stream = env.from_collection([(1, 2)])
    with pytest.raises(TypeError, match=r"key_by\(col\('name'\)\)"):
        stream.key_by("name")
    with pytest.raises(TypeError, match=r"lambda value: value\[0\].*col\('name'\)"):
        stream.key_by(0)
    with pytest.raises(TypeError, match="key_type must be a TypeInformation"):
        stream.key_by(same, int)


def test_key_by_columns_partitions_by_names(env, executor):
    env.from_collection([1]).key_by(col("a"), col("b")).sink_to(DiscardingSink())
    env.from_collection([1]).key_by(col("a"), col("b")).filter(same)
    env.execute()
    keys = executor.graph.edges[-1].partitioning.key_selector
    assert keys.columns == ("a", "b")
    with pytest.raises(TypeError, match="plain columns"):
        env.from_collection([1]).key_by(col("a") + 1)


@pytest.mark.parametrize(
    "method", ["shuffle", "rebalance", "rescale", "forward", "global_", "broadcast"]
)
def test_a_partitioning_is_carried_by_the_next_edge(env, executor, method):
    getattr(env.from_collection([1]), method)().map(same)
    env.execute()
    (edge,) = executor.graph.edges
    assert edge.partitioning.strategy is ShipStrategy[method.rstrip("_").upper()]


def test_partition_custom_carries_function_and_key(env, executor):
    class ByHalf(Partitioner):
        def partition(self, key, num_partitions):
            return key % num_partitions

    env.from_collection([1]).partition_custom(ByHalf(), same).map(same)
    env.from_collection([1]).partition_custom(lambda key, n: 0, same).map(same)
    env.execute()
    first, second = (edge.partitioning for edge in executor.graph.edges)
    assert first.strategy is ShipStrategy.CUSTOM and first.custom(7, 4) == 3
    assert first.key_selector.keys_of_rows([5]) == [5]
    assert second.custom(7, 4) == 0
    with pytest.raises(TypeError, match="partitioner"):
        env.from_collection([1]).partition_custom(3, same)


def test_union_gives_several_edges_into_one_input(env, executor):
    a, b, c = (env.from_collection([name]) for name in "abc")
    a.union(b.rebalance(), c.key_by(same)).map(same).name("both")
    env.execute()
    assert [(edge.source, edge.input_index) for edge in executor.graph.edges] == [
        (1, 0), (2, 0), (3, 0),
    ]  # fmt: skip
    assert [edge[2] for edge in edges_of(executor.graph)] == [None, "REBALANCE", "HASH"]


def test_union_refuses_different_types_and_environments(env):
    ints = env.from_collection([1], Types.INT())
    with pytest.raises(
        GraphError, match="Cannot union streams of different types: Integer and String"
    ):
        ints.union(env.from_collection(["a"], Types.STRING()))
    other = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(GraphError, match="different environments"):
        ints.union(other.from_collection([1], Types.INT()))


def test_a_side_output_is_an_edge_with_a_tag_and_the_operator_knows(env, executor):
    late, typed = OutputTag("late"), OutputTag("typed", Types.STRING())
    main = env.from_collection([1]).process(Echo())
    main.get_side_output(late).print()
    main.get_side_output(typed).map(same)
    main.get_side_output(late).map(same)
    env.execute()
    tags = [(edge[1], edge[3]) for edge in edges_of(executor.graph) if edge[3]]
    assert tags == [("Sink: Print to Std. Out", "late"), ("Map", "typed"), ("Map", "late")]
    process = executor.graph.nodes[2]
    assert process.operator.side_tags == ("late", "typed")
    assert process.side_output_types == {"late": late.type_info, "typed": Types.STRING()}
    assert main.get_side_output(typed).get_type() == Types.STRING()


def test_operators_whose_function_makes_no_results_have_no_side_outputs(env):
    stream = env.from_collection([1]).filter(same)
    with pytest.raises(
        GraphError,
        match=r"'Filter' \(built at .*test_graphs_that_methods_build.py:\d+\) has no side output 'x'",
    ):
        stream.get_side_output(OutputTag("x"))


def test_types_follow_the_declarations(env):
    ints = env.from_collection([1], Types.INT())
    assert str(ints.get_type()) == "Integer"
    assert str(ints.map(same).get_type()) == "PickledByteArrayTypeInfo"
    assert str(ints.map(same, Types.LONG()).get_type()) == "Long"
    assert str(ints.filter(same).get_type()) == "Integer"
    assert str(ints.key_by(same).reduce(lambda a, b: a).get_type()) == "Integer"
    assert str(ints.key_by(same).sum().get_type()) == "Integer"
    assert str(ints.rebalance().get_type()) == "Integer"
    keyed = ints.key_by(str, Types.STRING())
    assert str(keyed.get_type()) == "RowTypeInfo(String, Integer)"
    assert (
        str(
            env.from_source(
                NumberSequenceSource(1, 2), WatermarkStrategy.no_watermarks(), "n"
            ).get_type()
        )
        == "Long"
    )


def test_project_takes_positions_of_tuples(env, executor):
    pairs = env.from_collection([(1, "a")], Types.TUPLE([Types.INT(), Types.STRING()]))
    swapped = pairs.project(1, 0)
    assert str(swapped.get_type()) == "TupleTypeInfo(String, Integer)"
    assert pairs.key_by(same).project(1).get_type() == Types.TUPLE([Types.STRING()])
    env.execute()
    assert executor.graph.nodes[2].operator.function.call((1, "a")) == ("a", 1)
    with pytest.raises(GraphError, match="position 2"):
        pairs.project(2)
    with pytest.raises(GraphError, match="Only tuple types can be projected"):
        env.from_collection([1]).project(0)


def test_settings_reach_the_operator(env, executor):
    group = SlotSharingGroup.builder("red").set_cpu_cores(1.0).build()
    stream = env.from_collection([1]).map(same)
    stream.name("n").uid("u").set_parallelism(3).set_max_parallelism(30).set_buffer_timeout(7)
    stream.slot_sharing_group(group).set_co_location_group("c").set_description("d")
    stream.disable_chaining()
    sink = stream.print("id").name("p").uid("q").set_parallelism(2).set_description("e")
    sink.slot_sharing_group("blue").disable_chaining()
    stream.map(same).start_new_chain().force_non_parallel()
    env.execute()
    _, node, print_node, last = executor.graph.nodes.values()
    assert (node.name, node.uid, node.parallelism, node.max_parallelism) == ("n", "u", 3, 30)
    assert (node.buffer_timeout_ms, node.slot_sharing_group, node.co_location_key) == (
        7,
        "red",
        "c",
    )
    assert (node.description, node.chaining_strategy) == ("d", ChainingStrategy.NEVER)
    assert (print_node.name, print_node.uid, print_node.parallelism) == ("Sink: p", "q", 2)
    assert print_node.slot_sharing_group == "blue"
    assert (last.chaining_strategy, last.parallelism, last.max_parallelism) == (
        ChainingStrategy.HEAD, 1, 1,
    )  # fmt: skip


def test_a_slot_sharing_group_asks_for_more_than_nothing():
    with pytest.raises(ConfigurationError, match="task_heap_memory must be above 0"):
        SlotSharingGroup.builder("red").set_task_heap_memory(MemorySize(bytes_size=0))
    with pytest.raises(ConfigurationError, match="cpu_cores must be above 0"):
        SlotSharingGroup.builder("red").set_cpu_cores(0)


def test_settings_of_what_is_no_operator_are_refused(env):
    stream = env.from_collection([1]).map(same)
    with pytest.raises(GraphError, match=r"name\(\) on a partitioning"):
        stream.rebalance().name("x")
    with pytest.raises(GraphError, match=r"uid\(\) on a union"):
        stream.union(stream.map(same)).uid("x")
    with pytest.raises(
        GraphError, match=r"'Collection Source' .* runs only with parallelism 1, got 2"
    ):
        env.from_collection([1]).set_parallelism(2)
    with pytest.raises(ConfigurationError, match="parallelism must be a whole number >= 1, got 0"):
        stream.set_parallelism(0)
    with pytest.raises(ConfigurationError, match=r"\[1, 32768\], got 40000"):
        stream.set_max_parallelism(40_000)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("shuffle", ()), ("rebalance", ()), ("rescale", ()), ("broadcast", ()), ("forward", ()),
        ("name", ("x",)), ("set_parallelism", (2,)), ("uid", ("x",)), ("disable_chaining", ()),
        ("start_new_chain", ()), ("force_non_parallel", ()), ("get_name", ()),
    ],
)  # fmt: skip
def test_a_keyed_stream_refuses_what_it_cannot_do(env, method, arguments):
    keyed = env.from_collection([1]).key_by(same)
    with pytest.raises(GraphError, match=rf"Call {method}\(\) before key_by"):
        getattr(keyed, method)(*arguments)


def test_a_keyed_stream_is_printed_and_sunk_without_its_key(env, executor):
    keyed = env.from_collection([1]).key_by(same)
    keyed.print()
    keyed.sink_to(DiscardingSink())
    keyed.union(env.from_collection([2])).map(same)
    env.execute()
    by_key = [edge for edge in edges_of(executor.graph) if edge[2] is not None]
    assert [edge[2] for edge in by_key] == ["HASH"] * 3


def test_timestamps_and_watermarks_are_an_operator_that_keeps_the_type(env, executor):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    stream = env.from_collection([1], Types.INT()).assign_timestamps_and_watermarks(strategy)
    assert str(stream.get_type()) == "Integer"
    assert stream.get_name() == "Timestamps/Watermarks"


def test_what_is_no_input_format_says_what_to_use(env):
    with pytest.raises(TypeError, match="from_source"):
        env.create_input(None)


def test_the_plan_shows_chains_of_python_operators_as_one_node(env):
    env.set_parallelism(2)
    stream = env.from_collection([1]).map(same).filter(same)
    stream.key_by(same).reduce(lambda a, b: a).map(same).print()
    plan = json.loads(env.get_execution_plan())
    shown = [(node["pact"], node["contents"], node["parallelism"]) for node in plan["nodes"]]
    assert shown == [
        ("Data Source", "Source: Collection Source", 1),
        ("Operator", "Map, Filter, _stream_key_by_map_operator", 2),
        ("Operator", "Reduce, Map", 2),
        ("Data Sink", "Sink: Print to Std. Out", 2),
    ]
    ships = [p["ship_strategy"] for node in plan["nodes"] for p in node.get("predecessors", ())]
    assert ships == ["REBALANCE", "HASH", "FORWARD"]
    ids = {node["id"] for node in plan["nodes"]}
    assert all(p["id"] in ids for node in plan["nodes"] for p in node.get("predecessors", ()))


def shown_in_plan(env):
    nodes = json.loads(env.get_execution_plan())["nodes"]
    types = {node["id"]: node["type"] for node in nodes}
    return [
        (
            node["type"],
            node["parallelism"],
            [(types[p["id"]], p["ship_strategy"]) for p in node.get("predecessors", ())],
        )
        for node in nodes
    ]


def test_the_plan_shows_where_pyflink_takes_keys_and_lets_go_of_them(env):
    env.set_parallelism(2)
    keyed = env.from_collection([1]).key_by(same)
    keyed.map(same).set_parallelism(3)
    keyed.sink_to(DiscardingSink()).set_parallelism(4)
    source, takes, lets_go = (
        "Source: Collection Source",
        "_stream_key_by_map_operator",
        "_keyed_stream_values_operator",
    )
    assert shown_in_plan(env) == [
        (source, 1, []),
        (takes, 1, [(source, "FORWARD")]),
        ("Map", 3, [(takes, "HASH")]),
        (lets_go, 2, [(takes, "HASH")]),
        ("Sink: Writer", 4, [(lets_go, "REBALANCE")]),
    ]


def test_the_plan_shows_own_partitioners_and_projections_by_themselves(env):
    env.set_parallelism(1)
    pairs = env.from_collection([(1, 2)], Types.TUPLE([Types.INT(), Types.INT()]))
    pairs.project(1).map(same).partition_custom(lambda key, n: 0, same).filter(same)
    assert [name for name, _, _ in shown_in_plan(env)] == [
        "Source: Collection Source",
        "Projection",
        "Map, _partition_custom_map_operator",
        "_keyed_stream_values_operator, Filter",
    ]


def test_the_exchange_mode_belongs_to_the_edges_that_leave_a_stream(env):
    numbers = env.from_collection([1, 2]).map(str)
    batch = numbers.with_exchange_mode(StreamExchangeMode.BATCH)
    batch.rebalance().map(str).print()
    batch.key_by(str).map(str).print()
    numbers.key_by(str).with_exchange_mode(StreamExchangeMode.BATCH).reduce(max).print()
    numbers.map(str).print()
    graph = env.plumbing.program.graph()
    leaving = next(out for out in map(graph.outputs_of, graph.nodes) if len(out) == 4)
    assert [edge.exchange_mode.name for edge in leaving] == ["BATCH"] * 3 + ["UNDEFINED"]
    assert [edge.partitioning.strategy.name for edge in leaving[:3]] == [
        "REBALANCE", "HASH", "HASH",
    ]  # fmt: skip
