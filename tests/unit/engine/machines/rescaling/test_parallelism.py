"""How many subtasks each vertex gets. Expectations: docs/spec/elasticity.md#from-slots-to-parallelism."""

import pytest

from penstock.engine.machines.rescaling.slot_allocator import (
    SharingGroup,
    desired_slots,
    minimum_slots,
    parallelism_for,
    sharing_groups,
)
from penstock.engine.model.elastic import ParallelismBounds as Bounds
from penstock.engine.model.graph.job_graph import JobVertex

X = SharingGroup("x", {"x1": Bounds(2, 9)})
Y = SharingGroup("y", {"y1": Bounds(1, 3), "y2": Bounds(1, 2)})
Z = SharingGroup("z", {"z1": Bounds(1, 12)})
EXAMPLE = (X, Y, Z)


def test_the_example_of_the_specification():
    found = parallelism_for(EXAMPLE, 11)
    assert found.slots_of_group == {"x": 4, "y": 3, "z": 4}
    assert found.of_vertex == {"x1": 4, "y1": 3, "y2": 2, "z1": 4}
    assert found.slots == 11


def test_a_job_declares_the_largest_upper_bound_of_each_group():
    assert desired_slots(EXAMPLE) == 9 + 3 + 12


@pytest.mark.parametrize("slots", [0, 3])
def test_below_the_minimum_nothing_can_be_scheduled(slots):
    assert minimum_slots(EXAMPLE) == 4
    assert parallelism_for(EXAMPLE, slots) is None


def test_with_the_minimum_each_group_has_its_largest_lower_bound():
    found = parallelism_for(EXAMPLE, 4)
    assert found.slots_of_group == {"x": 2, "y": 1, "z": 1}


def test_the_fewest_slots_of_a_group_are_its_largest_lower_bound_not_its_smallest():
    group = SharingGroup("g", {"a": Bounds(1, 8), "b": Bounds(3, 4)})
    assert parallelism_for([group], 2) is None
    assert parallelism_for([group], 3).of_vertex == {"a": 3, "b": 3}
    assert parallelism_for([group], 6).of_vertex == {"a": 6, "b": 4}


def test_more_slots_than_desired_stay_unused():
    found = parallelism_for(EXAMPLE, 100)
    assert found.slots == 24
    assert found.of_vertex == {"x1": 9, "y1": 3, "y2": 2, "z1": 12}


def test_of_equally_wide_groups_the_later_one_gets_the_odd_slot():
    groups = [SharingGroup("b", {"b": Bounds(1, 2)}), SharingGroup("a", {"a": Bounds(1, 2)})]
    assert parallelism_for(groups, 3).slots_of_group == {"b": 1, "a": 2}


def test_groups_come_in_the_order_of_their_first_vertices():
    vertices = [
        JobVertex("v1", "source", 2, 128, slot_sharing_group="late"),
        JobVertex("v2", "map", 3, 128, slot_sharing_group="early"),
        JobVertex("v3", "sink", 1, 128, slot_sharing_group="late"),
    ]
    bounds = {"v1": Bounds(1, 2), "v2": Bounds(2, 3), "v3": Bounds(1, 1)}
    assert sharing_groups(vertices, bounds) == (
        SharingGroup("late", {"v1": Bounds(1, 2), "v3": Bounds(1, 1)}),
        SharingGroup("early", {"v2": Bounds(2, 3)}),
    )
