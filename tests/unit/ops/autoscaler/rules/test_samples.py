"""The graph as the autoscaler sees it. Source: docs/spec/autoscaler.md#evaluation, #where-penstock-differs."""

import pytest

from penstock.engine.model.errors import GraphError
from tests.tools.machines.topologies import topology_of


def graph(names, *edges, groups=None):
    return topology_of(names, edges, groups=groups)


def test_vertices_stand_in_topological_order():
    found = list(graph("dcba", "ab", "bc", "ad", "dc").vertices)
    assert (found[0], sorted(found[1:3]), found[3]) == ("a", ["b", "d"], "c")


def test_two_edges_between_the_same_vertices_are_one_input():
    topology = graph("ab", "ab", "ab")
    assert (topology.inputs("b"), topology.outputs("a")) == (["a"], ["b"])


def test_a_source_has_no_input():
    topology = graph("abc", "ab")
    assert [topology.is_source(one) for one in "abc"] == [True, False, True]


def test_a_hash_edge_makes_its_target_keyed():
    topology = topology_of("abc", [("a", "b", True), ("b", "c")])
    assert [topology.is_keyed(one) for one in "abc"] == [False, True, False]


def test_slots_are_the_largest_parallelism_of_each_group():
    topology = graph("abc", "ab", "bc", groups={"c": "own"})
    assert topology.slots({"a": 2, "b": 5, "c": 3}) == 8


def test_a_slow_vertex_slows_down_what_shares_its_input():
    topology = graph("sxtou", "sx", "st", "ot", "ou")
    assert topology.sharing_flow_with("x") == {"s", "t"}
    assert topology.sharing_flow_with("t") == {"s", "x", "o", "u"}


def test_an_edge_of_an_unknown_vertex_is_refused():
    with pytest.raises(GraphError, match="x, which is none of the job's: a, b"):
        graph("ab", "xa")


def test_a_circle_is_refused():
    with pytest.raises(GraphError, match="circle: b, c, b"):
        graph("abc", "ab", "bc", "cb")
