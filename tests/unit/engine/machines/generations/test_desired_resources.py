"""What a job gets of so many slots."""

from penstock.engine.machines.generations.desired_resources import (
    DesiredResources,
    refusal_of_graph,
)
from penstock.engine.model.elastic.parallelism_bounds import ParallelismBounds
from penstock.engine.model.graph.job_graph import OperatorInfo
from penstock.engine.model.graph.partitioning import ShipStrategy
from penstock.engine.model.graph.rescaling import rescaled
from penstock.engine.model.key_types import KeyType
from tests.tools.machines.job_graphs import job_graph


def desired(groups=None, keyed=False, **bounds):
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")], groups=groups)
    if keyed:
        (edge,) = graph.vertices["B"].inputs
        object.__setattr__(edge, "ship_strategy", ShipStrategy.FORWARD)
        graph.vertices["B"].operators = (OperatorInfo(1, "B", "b", keys=KeyType("INT")),)
    return DesiredResources(
        graph, {name: ParallelismBounds(*both) for name, both in bounds.items()}
    )


def test_vertices_of_one_group_share_their_slots():
    one = desired(A=(1, 4), B=(2, 3))
    assert (one.desired_slots, one.minimum_slots) == (4, 2)
    assert one.parallelism(1) is None
    assert one.parallelism(3) == {"A": 3, "B": 3}
    assert one.parallelism(9) == {"A": 4, "B": 3}


def test_groups_have_slots_of_their_own():
    one = desired({"A": "first", "B": "second"}, A=(1, 4), B=(2, 3))
    assert (one.desired_slots, one.minimum_slots) == (7, 3)
    assert one.parallelism(5) == {"A": 2, "B": 3}
    assert one.shape({"A": 2, "B": 3}).slots_of_group == {"first": 2, "second": 3}


def test_both_ends_of_a_keyed_stream_that_goes_on_are_equal():
    one = desired({"A": "first", "B": "second"}, keyed=True, A=(1, 4), B=(1, 4))
    assert one.parallelism(7) == {"A": 3, "B": 3}


def shared(wide=4):
    """A and C share their places, and B lies between them."""
    edges = [("A", "B"), ("B", "C")]
    return job_graph({"A": wide, "B": 2, "C": wide}, edges, co_location={"A": "one", "C": "one"})


def test_vertices_that_share_their_places_get_a_parallelism_at_which_pipelines_join_them():
    """With 2 subtasks of B, pairs of the 4 of A and C are in one region; of 3 and 3 with B = 2, A[1] and C[1] may be in two."""
    graph = shared()
    bounds = {
        one: ParallelismBounds(1, vertex.parallelism) for one, vertex in graph.vertices.items()
    }
    desired = DesiredResources(graph, bounds)
    for slots in range(1, 5):
        found = desired.parallelism(slots)
        assert refusal_of_graph(rescaled(graph, found)) is None
        assert max(found.values()) <= slots


def test_with_more_slots_than_it_can_use_it_takes_fewer():
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")], co_location={"A": "one", "B": "one"})
    apart = {"A": ParallelismBounds(1, 2), "B": ParallelismBounds(1, 4)}
    desired = DesiredResources(graph, apart)
    assert refusal_of_graph(rescaled(graph, {"A": 2, "B": 4})) is not None
    found = desired.parallelism(4)
    assert found == {"A": 2, "B": 2}
    assert desired.parallelism(9) == found


def test_if_no_number_fits_there_is_no_parallelism():
    graph = job_graph({"A": 2, "B": 2}, [], co_location={"A": "one", "B": "one"})
    two = {"A": ParallelismBounds(2, 2), "B": ParallelismBounds(2, 2)}
    assert DesiredResources(graph, two).parallelism(4) is None
