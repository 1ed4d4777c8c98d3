"""The exchange mode of an edge: from the stream graph to data sets and chains."""

import pytest

from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.graph.partitioning import StreamExchangeMode
from penstock.engine.model.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from penstock.engine.model.ids import JobId

BLOCKING, PIPELINED = ResultPartitionType.BLOCKING, ResultPartitionType.PIPELINED_BOUNDED


def graph(*modes, is_bounded=True) -> StreamGraph:
    """A line of operators, with the mode of each edge."""
    made = StreamGraph()
    for number in range(len(modes) + 1):
        made.nodes[number] = StreamNode(
            number, f"op {number}", object(), is_source=number == 0, is_bounded=is_bounded
        )
    made.edges = [
        StreamEdge(number, number + 1, exchange_mode=StreamExchangeMode(mode))
        for number, mode in enumerate(modes)
    ]
    return made


def types(*modes) -> list[ResultPartitionType]:
    job_graph = build_job_graph(graph(*modes), JobId("j"), lambda _: b"")
    return [out.result_type for vertex in job_graph.vertices.values() for out in vertex.outputs]


def test_without_a_mode_operators_are_chained():
    assert types("UNDEFINED", "PIPELINED") == []


def test_a_batch_edge_is_not_chained_over_and_its_result_is_blocking():
    assert types("BATCH", "UNDEFINED") == [BLOCKING]


def test_one_graph_has_edges_of_both_kinds():
    made = graph("BATCH", "UNDEFINED")
    made.nodes[2].parallelism = 2
    job_graph = build_job_graph(made, JobId("j"), lambda _: b"")
    kinds = [out.result_type for vertex in job_graph.vertices.values() for out in vertex.outputs]
    assert kinds == [BLOCKING, PIPELINED]


@pytest.mark.parametrize("mode", ["HYBRID_FULL", "HYBRID_SELECTIVE"])
def test_a_mode_that_there_is_not_is_refused(mode):
    with pytest.raises(GraphError, match=rf"'op 1'.*{mode}.*BATCH"):
        types(mode)


def test_to_wait_for_the_end_of_an_endless_source_is_refused():
    with pytest.raises(GraphError, match=r"'op 2'.*'op 0' has no end"):
        build_job_graph(graph("UNDEFINED", "BATCH", is_bounded=False), JobId("j"), lambda _: b"")
    build_job_graph(graph("PIPELINED", is_bounded=False), JobId("j"), lambda _: b"")
