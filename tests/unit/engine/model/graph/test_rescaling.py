"""The job graph at another parallelism."""

import pytest

from penstock.engine.model.graph.job_graph import OperatorInfo
from penstock.engine.model.graph.partitioning import DistributionPattern, ShipStrategy
from penstock.engine.model.graph.rescaling import (
    are_ends_equal,
    parallelism_of,
    refusals_of,
    rescaled,
    untouched,
)
from penstock.engine.model.key_types import KeyType
from tests.tools.machines.job_graphs import job_graph


def forward(keyed=False, **more):
    """A -> B, both of 2 subtasks, forward."""
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")], **more)
    (edge,) = graph.vertices["B"].inputs
    object.__setattr__(edge, "ship_strategy", ShipStrategy.FORWARD)
    keys = KeyType("INT") if keyed else None
    graph.vertices["B"].operators = (OperatorInfo(1, "B", "b", keys=keys),)
    return graph


def shipped(graph):
    (edge,) = graph.vertices["B"].inputs
    (data_set,) = graph.vertices["A"].outputs
    return edge.ship_strategy, edge.pattern, data_set.pattern


def test_vertices_that_are_not_named_stay_and_the_submitted_graph_too():
    graph = forward()
    other = rescaled(graph, {"A": 4})
    assert parallelism_of(other) == {"A": 4, "B": 2}
    assert parallelism_of(graph) == {"A": 2, "B": 2}
    assert [one.max_parallelism for one in other.vertices.values()] == [128, 128]
    assert other.blobs is graph.blobs


def test_a_forward_edge_goes_in_turn_while_its_ends_differ_and_back():
    graph = forward()
    everybody = DistributionPattern.ALL_TO_ALL
    assert shipped(rescaled(graph, {"B": 3})) == (ShipStrategy.REBALANCE, everybody, everybody)
    assert shipped(rescaled(graph, {"A": 3, "B": 3})) == shipped(graph)
    (before,) = graph.vertices["B"].inputs
    (after,) = rescaled(graph, {"B": 3}).vertices["B"].inputs
    assert after.data_set_id == before.data_set_id


def test_other_edges_stay_as_they_are():
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")])
    assert shipped(rescaled(graph, {"B": 3})) == shipped(graph)


@pytest.mark.parametrize("wanted", [{"A": 0}, {"A": 129}])
def test_a_parallelism_outside_of_the_limits_is_refused(wanted):
    (text,) = refusals_of(forward(), wanted)
    assert "vertex 'A'" in text
    assert "1 to 128" in text


def test_a_keyed_stream_that_goes_on_needs_the_same_parallelism():
    graph = forward(keyed=True)
    assert are_ends_equal(graph) == [("A", "B")]
    (text,) = refusals_of(graph, {"B": 3})
    assert "key_by" in text
    assert refusals_of(graph, {"A": 3, "B": 3}) == []
    assert refusals_of(forward(), {"B": 3}) == []


def test_vertices_that_share_their_places_need_the_same_parallelism():
    graph = forward(co_location={"A": "together", "B": "together"})
    (text,) = refusals_of(graph, {"B": 3})
    assert "'A', 'B'" in text
    assert refusals_of(graph, {"A": 3, "B": 3}) == []


@pytest.mark.parametrize(
    ("changed", "stay"),
    [
        ((), {"A", "B", "C", "D", "E"}),
        (("A",), {"D", "E"}),
        (("B",), {"D", "E"}),
        (("C",), {"D", "E"}),
        (("E",), {"A", "B", "C"}),
        (("C", "D"), set()),
    ],
)
def test_what_no_edge_joins_with_a_change_is_untouched(changed, stay):
    """A and B are read by C, D by E."""
    vertices = dict.fromkeys("ABCDE", 1)
    graph = job_graph(vertices, [("A", "C"), ("B", "C"), ("D", "E")])
    assert untouched(graph, changed) == stay
