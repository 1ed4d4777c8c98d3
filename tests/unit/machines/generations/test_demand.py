"""What a job gets of so many slots."""

from penstock.machines.generations.demand import Demand
from penstock.model.graph.job_graph import OperatorInfo
from penstock.model.graph.partitioning import ShipStrategy
from penstock.model.key_types import KeyType
from penstock.model.parallelism_bounds import ParallelismBounds
from tests.tools.machines.job_graphs import job_graph


def demand(groups=None, keyed=False, **bounds):
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")], groups=groups)
    if keyed:
        (edge,) = graph.vertices["B"].inputs
        object.__setattr__(edge, "ship_strategy", ShipStrategy.FORWARD)
        graph.vertices["B"].operators = (OperatorInfo(1, "B", "b", keys=KeyType("INT")),)
    return Demand(graph, {name: ParallelismBounds(*both) for name, both in bounds.items()})


def test_vertices_of_one_group_share_their_slots():
    one = demand(A=(1, 4), B=(2, 3))
    assert (one.desired, one.minimum) == (4, 2)
    assert one.parallelism(1) is None
    assert one.parallelism(3) == {"A": 3, "B": 3}
    assert one.parallelism(9) == {"A": 4, "B": 3}


def test_groups_have_slots_of_their_own():
    one = demand({"A": "first", "B": "second"}, A=(1, 4), B=(2, 3))
    assert (one.desired, one.minimum) == (7, 3)
    assert one.parallelism(5) == {"A": 2, "B": 3}
    assert one.shape({"A": 2, "B": 3}).slots_of_group == {"first": 2, "second": 3}


def test_both_ends_of_a_keyed_stream_that_goes_on_are_equal():
    one = demand({"A": "first", "B": "second"}, keyed=True, A=(1, 4), B=(1, 4))
    assert one.parallelism(7) == {"A": 3, "B": 3}
