"""Which readers take barriers early: docs/spec/checkpoints.md#data-in-flight (point-wise and
broadcast do not), and that those that do never wait for ever.
"""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.compiler.overtaking import Exchange, overtaking_readers
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from penstock.engine.model.ids import JobId

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
