"""StreamGraph to JobGraph, by docs/spec/job-graph.md#vertices-and-their-order, #chaining."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.compiler.job_graph_builder import (
    ChainCandidate,
    Exchange,
    build_job_graph,
    is_chainable,
    overtaking_readers,
)
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.chain import ChainSpec
from penstock.engine.model.graph.job_graph import (
    JobGraph,
    ResultPartitionType,
    sort_job_vertices,
    topological_order,
)
from penstock.engine.model.graph.partitioning import (
    DistributionPattern,
    Partitioning,
    ShipStrategy,
    StreamExchangeMode,
)
from penstock.engine.model.graph.stream_graph import (
    ChainingStrategy,
    StreamEdge,
    StreamGraph,
    StreamNode,
)
from penstock.engine.model.graph.stream_graph import ChainingStrategy as C
from penstock.engine.model.ids import JobId
from penstock.engine.model.key_groups import default_max_parallelism

HASH = Partitioning(ShipStrategy.HASH, "selector")


def program(*nodes: StreamNode, edges: list[StreamEdge], parallelism: int = 2) -> StreamGraph:
    return StreamGraph(
        nodes={node.node_id: node for node in nodes}, edges=edges, default_parallelism=parallelism
    )


def node(node_id: int, name: str, **more) -> StreamNode:
    return StreamNode(node_id, name, f"code of {name}", defined_at=f"job.py:{node_id}", **more)


def build(graph: StreamGraph) -> JobGraph:
    return build_job_graph(graph, JobId("job"), pickle.dumps)


def spec_of(graph: JobGraph, name: str) -> ChainSpec:
    vertex = next(v for v in graph.vertices.values() if v.name == name)
    return pickle.loads(graph.blobs[vertex.chain_blob])


def word_count() -> StreamGraph:
    return program(
        node(1, "Source", parallelism=1, is_source=True, coordinator="source"),
        node(2, "FlatMap", output_type="words"),
        node(3, "KeyAgg"),
        node(4, "Sink", driver_stream="print"),
        edges=[StreamEdge(1, 2), StreamEdge(2, 3, HASH), StreamEdge(3, 4)],
    )


def test_word_count_has_three_vertices_with_the_sink_chained() -> None:
    graph = build(word_count())
    assert [v.name for v in graph.vertices.values()] == ["Source", "FlatMap", "KeyAgg -> Sink"]
    assert [v.parallelism for v in graph.vertices.values()] == [1, 2, 2]
    source, flat_map, agg = graph.vertices.values()
    assert source.is_source
    assert source.operators[0].has_coordinator
    assert flat_map.inputs[0].ship_strategy is ShipStrategy.REBALANCE
    assert agg.inputs[0].pattern is DistributionPattern.ALL_TO_ALL
    assert flat_map.outputs[0].result_type is ResultPartitionType.PIPELINED_BOUNDED
    assert agg.inputs[0].data_set_id == flat_map.outputs[0].data_set_id


def test_the_chain_travels_in_its_blob_with_targets_inputs_and_outputs() -> None:
    graph = build(word_count())
    agg = spec_of(graph, "KeyAgg -> Sink")
    assert [op.name for op in agg.operators] == ["KeyAgg", "Sink"]
    assert [(t.tag, t.operator_index) for t in agg.operators[0].targets] == [(None, 1)]
    assert [(i.input_index, i.element_type) for i in agg.inputs] == [(0, "words")]
    assert [(o.operator_index, o.driver_stream, o.data_set_id) for o in agg.outputs] == [
        (1, "print", None)
    ]
    flat_map = spec_of(graph, "FlatMap")
    assert flat_map.outputs[0].partitioning == HASH
    assert flat_map.outputs[0].element_type == "words"


def test_the_same_program_gives_the_same_ids_and_32_hex_digits() -> None:
    one, two = build(word_count()), build(word_count())
    assert list(one.vertices) == list(two.vertices)
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in one.vertices)
    assert list(one.blobs) == list(two.blobs)


def test_a_uid_makes_the_vertex_id_independent_of_the_place() -> None:
    def with_uid(first: int) -> str:
        graph = program(node(first, "A", uid="mine", is_source=True), edges=[])
        return next(iter(build(graph).vertices))

    assert with_uid(1) == with_uid(7)


def test_chained_side_by_side_is_named_as_flink_names_it() -> None:
    graph = build(
        program(
            node(1, "Source"),
            node(2, "A"),
            node(3, "B"),
            node(4, "C"),
            edges=[StreamEdge(1, 2), StreamEdge(1, 3), StreamEdge(3, 4)],
        )
    )
    assert [v.name for v in graph.vertices.values()] == ["Source -> (A, B -> C)"]


def test_a_side_output_inside_a_chain_is_a_target_with_its_tag() -> None:
    graph = build(program(node(1, "S"), node(2, "L"), edges=[StreamEdge(1, 2, tag="late")]))
    (target,) = spec_of(graph, "S -> L").operators[0].targets
    assert (target.tag, target.operator_index) == ("late", 1)


def test_a_union_is_not_chained_and_has_one_gate_per_edge() -> None:
    graph = build(
        program(
            node(1, "A"),
            node(2, "B"),
            node(3, "U"),
            edges=[StreamEdge(1, 3), StreamEdge(2, 3)],
        )
    )
    union = next(v for v in graph.vertices.values() if v.name == "U")
    assert [edge.input_index for edge in union.inputs] == [0, 0]
    assert len(spec_of(graph, "U").inputs) == 2


def test_one_node_read_by_two_partitionings_makes_two_data_sets() -> None:
    graph = build(
        program(
            node(1, "A"),
            node(2, "B"),
            edges=[StreamEdge(1, 2, HASH), StreamEdge(1, 2, HASH, input_index=1)],
        )
    )
    a, b = graph.vertices.values()
    assert len({d.data_set_id for d in a.outputs}) == 2
    assert [e.data_set_id for e in b.inputs] == [d.data_set_id for d in a.outputs]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (100, 256), (128, 256), (1000, 2048), (30000, 32768)],
)
def test_the_default_max_parallelism(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


def test_slot_sharing_groups_are_inherited_when_the_inputs_agree() -> None:
    graph = build(
        program(
            node(1, "A", slot_sharing_group="red"),
            node(2, "B", slot_sharing_group="blue"),
            node(3, "FromA"),
            node(4, "FromBoth"),
            edges=[StreamEdge(1, 3, HASH), StreamEdge(2, 4, HASH), StreamEdge(3, 4, HASH)],
        )
    )
    groups = {v.name: v.slot_sharing_group for v in graph.vertices.values()}
    assert groups == {"A": "red", "B": "blue", "FromA": "red", "FromBoth": "default"}


REFUSED = {
    "forward with unequal parallelism": (
        program(
            node(1, "A", parallelism=2),
            node(2, "B", parallelism=3),
            edges=[StreamEdge(1, 2, Partitioning(ShipStrategy.FORWARD))],
        ),
        [r"'A' \(built at job.py:1\) has 2", r"'B' \(built at job.py:2\) has 3"],
    ),
    "cycle": (
        program(
            node(1, "S"),
            node(2, "B"),
            node(3, "C"),
            edges=[StreamEdge(1, 2), StreamEdge(2, 3), StreamEdge(3, 2)],
        ),
        ["cycle", "'B'", "'C'"],
    ),
    "too parallel": (
        program(node(1, "A", parallelism=5, max_parallelism=4), edges=[]),
        ["'A'", "parallelism 5", "maximum parallelism 4"],
    ),
    "zero parallelism": (program(node(1, "A", parallelism=0), edges=[]), ["at least 1"]),
    "duplicate uid": (
        program(node(1, "A", uid="x"), node(2, "B", uid="x"), edges=[]),
        ["uid 'x'", "'A'", "'B'"],
    ),
    "empty": (program(edges=[]), ["no operators"]),
    "co-location": (
        program(
            node(1, "A", parallelism=1, co_location_key="c"),
            node(2, "B", parallelism=2, co_location_key="c"),
            edges=[],
        ),
        ["co-location group 'c'", "parallelism"],
    ),
    "co-location across groups": (
        program(
            node(1, "A", co_location_key="c", slot_sharing_group="g"),
            node(2, "B", co_location_key="c"),
            edges=[],
        ),
        ["co-location group 'c'", "slot sharing group"],
    ),
    "empty group name": (program(node(1, "A", slot_sharing_group=" "), edges=[]), ["empty slot"]),
    "stranger": (program(node(1, "A"), edges=[StreamEdge(1, 9)]), ["node 9"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_with_names_and_lines(name: str) -> None:
    graph, words = REFUSED[name]
    with pytest.raises(GraphError) as error:
        build(graph)
    for word in words:
        assert error.match(word)


def test_a_chaining_break_makes_two_vertices() -> None:
    graph = program(
        node(1, "A"),
        node(2, "B", chaining_strategy=ChainingStrategy.HEAD),
        edges=[StreamEdge(1, 2)],
    )
    assert len(build(graph).vertices) == 2
    edge = next(iter(build(graph).vertices.values())).outputs[0]
    assert edge.pattern is DistributionPattern.POINTWISE


def test_vertices_are_sorted_from_sources_and_depth_first() -> None:
    outputs = {"A": ["B", "C"], "B": ["D"], "C": [], "D": []}
    inputs = {"A": [], "B": ["A"], "C": ["A"], "D": ["B"]}
    order = topological_order(list("DCBA"), inputs.__getitem__, outputs.__getitem__)
    assert order == ["A", "B", "D", "C"]
    assert sort_job_vertices(build(word_count()))[0].name == "Source"


def test_a_join_is_placed_at_the_first_edge_that_reaches_it() -> None:
    outputs = {"S": ["J", "X"], "T": ["J"], "J": [], "X": []}
    inputs = {"S": [], "T": [], "J": ["S", "T"], "X": ["S"]}
    order = topological_order(list("STXJ"), inputs.__getitem__, outputs.__getitem__)
    assert order == ["S", "T", "J", "X"]


def test_a_chain_of_five_thousand_nodes_is_built() -> None:
    count = 5000
    graph = program(
        *(node(i, f"n{i}") for i in range(count)),
        edges=[StreamEdge(i, i + 1) for i in range(count - 1)],
    )
    assert len(build(graph).vertices) == 1


GOOD = ChainCandidate(C.ALWAYS, C.ALWAYS, 4, 4, ShipStrategy.FORWARD)


@pytest.mark.parametrize("strategy", [C.ALWAYS, C.HEAD, C.HEAD_WITH_SOURCES])
def test_upstream_may_have_any_strategy_but_never(strategy: C) -> None:
    assert is_chainable(replace(GOOD, upstream_strategy=strategy))


@pytest.mark.parametrize(
    "change",
    [
        {"is_chaining_enabled": False},
        {"in_edges_of_downstream": 2},
        {"is_same_slot_sharing_group": False},
        {"upstream_strategy": C.NEVER},
        {"downstream_strategy": C.NEVER},
        {"downstream_strategy": C.HEAD},
        {"downstream_strategy": C.HEAD_WITH_SOURCES},
        {"downstream_parallelism": 3},
        {"ship_strategy": ShipStrategy.REBALANCE},
        {"ship_strategy": ShipStrategy.RESCALE},
        {"exchange_mode": StreamExchangeMode.BATCH},
        {"is_max_parallelism_accepted": False},
    ],
    ids=str,
)
def test_each_condition_alone_breaks_the_chain(change: dict) -> None:
    assert is_chainable(GOOD)
    assert not is_chainable(replace(GOOD, **change))


def test_head_with_sources_takes_a_source_and_undecided_parallelism_passes() -> None:
    edge = replace(GOOD, downstream_strategy=C.HEAD_WITH_SOURCES, is_upstream_source=True)
    assert is_chainable(edge)
    assert is_chainable(replace(GOOD, downstream_parallelism=-1))


S = ShipStrategy
EARLY = [S.REBALANCE, S.SHUFFLE, S.GLOBAL, S.HASH, S.CUSTOM]


def readers(*edges) -> set:
    return set(overtaking_readers([Exchange(*edge) for edge in edges]))


@pytest.mark.parametrize("strategy", S)
def test_all_to_all_edges_are_overtaken_and_no_others(strategy):
    is_early = strategy not in (S.FORWARD, S.RESCALE, S.BROADCAST)
    assert readers((0, 1, strategy)) == ({1} if is_early else set())


def test_one_edge_that_is_not_keeps_all_of_its_reader_aligned():
    edges = (0, 2, S.HASH), (1, 2, S.BROADCAST), (0, 3, S.HASH)
    assert readers(*edges) == {3}


def test_behind_an_aligned_reader_barriers_overtake_again():
    assert readers((0, 1, S.RESCALE), (1, 2, S.HASH)) == {2}
    assert readers((0, 1, S.HASH), (1, 2, S.FORWARD)) == {1}
    assert readers((0, 1, S.HASH), (1, 2, S.BROADCAST)) == {1}


def test_between_two_that_align_nothing_is_overtaken():
    assert readers((0, 1, S.RESCALE), (1, 2, S.HASH), (2, 3, S.BROADCAST)) == set()
    chain = (0, 1, S.RESCALE), (1, 2, S.HASH), (2, 3, S.FORWARD)
    assert readers(*chain) == {2}  # a single channel has its barrier at once


EDGES = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 7), st.sampled_from(S)).filter(
        lambda edge: edge[0] < edge[1]
    ),
    max_size=12,
)


@given(EDGES)
def test_no_early_reader_has_one_that_blocks_behind_it_and_one_that_aligns_before_it(edges):
    early = readers(*edges)
    targets = {edge[1] for edge in edges}
    aligned = targets - early

    def reached(start, *, forwards) -> set:
        found, ahead = set(), [start]
        while ahead:
            at = ahead.pop()
            for source, target, _ in edges:
                begin, end = (source, target) if forwards else (target, source)
                if begin == at and end not in found:
                    found.add(end)
                    ahead.append(end)
        return found

    def blocks(target) -> bool:
        return [strategy for _, to, strategy in edges if to == target] != [S.FORWARD]

    for reader in early:
        behind = reached(reader, forwards=True) & aligned
        before = reached(reader, forwards=False) & aligned
        assert not before or not any(blocks(one) for one in behind)


def test_the_chain_of_the_producer_says_it_for_each_output():
    nodes = [
        StreamNode(1, "Source", "code", is_source=True),
        StreamNode(2, "Keyed", "code"),
        StreamNode(3, "Rules", "code"),
    ]
    ways = {2: S.HASH, 3: S.BROADCAST}
    edges = [
        StreamEdge(1, to, Partitioning(way, "selector" if way is S.HASH else None))
        for to, way in ways.items()
    ]
    graph = StreamGraph(nodes={n.node_id: n for n in nodes}, edges=edges, default_parallelism=2)
    made = build_job_graph(graph, JobId("job"), pickle.dumps)
    source = next(vertex for vertex in made.vertices.values() if vertex.is_source)
    spec = pickle.loads(made.blobs[source.chain_blob])
    found = {out.partitioning.strategy: out.may_be_overtaken for out in spec.outputs}
    assert found == {S.HASH: True, S.BROADCAST: False}
    keyed = next(vertex for vertex in made.vertices.values() if vertex.name == "Keyed")
    (read,) = pickle.loads(made.blobs[keyed.chain_blob]).inputs
    assert read.partitioning == Partitioning(S.HASH, "selector")


def test_an_edge_has_the_same_name_at_any_parallelism_and_however_it_is_chained():
    def names(parallelism, *, is_chaining):
        nodes = [
            StreamNode(1, "Source", "code", is_source=True),
            StreamNode(2, "Map", "code"),
            StreamNode(3, "Count", "code"),
        ]
        edges = [StreamEdge(1, 2), StreamEdge(2, 3, Partitioning(S.HASH, "selector"))]
        graph = StreamGraph(
            nodes={n.node_id: n for n in nodes}, edges=edges, default_parallelism=parallelism,
            is_chaining_enabled=is_chaining,
        )  # fmt: skip
        made = build_job_graph(graph, JobId("job"), pickle.dumps)
        return {
            edge.data_set_id
            for vertex in made.vertices.values()
            for edge in vertex.inputs
            if edge.ship_strategy is S.HASH
        }

    assert names(2, is_chaining=True) == names(5, is_chaining=False)
