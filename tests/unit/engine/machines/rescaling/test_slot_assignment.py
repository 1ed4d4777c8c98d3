"""Which subtask goes where. Expectations: docs/spec/elasticity.md#slot-assignment."""

from dataclasses import dataclass

import pytest

from penstock.engine.machines.rescaling.slot_allocator import (
    FormerAssignment,
    FormerPlace,
    SharingGroup,
    parallelism_for,
)
from penstock.engine.model.elastic import ParallelismBounds as Bounds
from penstock.engine.model.ids import ExecutionVertexId as Subtask
from penstock.engine.model.key_groups import key_group_range
from tests.tools.machines.slot_plans import execution_groups, make_plan


@dataclass(frozen=True)
class Slot:
    allocation_id: str
    resource_id: str = "tm"
    host: str = "host"


def slots(count, first=0):
    return [Slot(f"s{index:02}") for index in range(first, first + count)]


def group(upper, name="g", vertex="v", lower=1):
    return SharingGroup(name, {vertex: Bounds(lower, upper)})


def former(parallelism, *, state_bytes=1_000_000, vertex="v", host="host"):
    """Subtask k in slot k."""
    return FormerAssignment(
        {Subtask(vertex, k): FormerPlace(f"s{k:02}", host) for k in range(parallelism)},
        {vertex: parallelism},
        {vertex: 128},
        {vertex: state_bytes},
    )


def test_a_group_has_the_subtasks_of_its_index_of_all_vertices_that_have_so_many():
    groups = [
        SharingGroup("g", {"a": Bounds(1, 3), "b": Bounds(1, 2)}),
        SharingGroup("h", {"c": Bounds(1, 1)}),
    ]
    found = execution_groups(groups, parallelism_for(groups, 4))
    assert [(one.name, one.index, one.subtasks) for one in found] == [
        ("g", 0, (Subtask("a", 0), Subtask("b", 0))),
        ("g", 1, (Subtask("a", 1), Subtask("b", 1))),
        ("g", 2, (Subtask("a", 2),)),
        ("h", 0, (Subtask("c", 0),)),
    ]


@pytest.mark.parametrize(
    ("before", "after", "stay"),
    [
        (2, 3, 66), (2, 4, 50), (4, 5, 70), (4, 6, 67), (4, 8, 50),
        (8, 10, 69), (16, 17, 75), (8, 4, 50), (6, 4, 67), (10, 8, 69),
    ],
)  # fmt: skip
def test_so_many_key_groups_stay_in_their_slots(before, after, stay):
    plan = make_plan([group(after)], slots(max(before, after)), former=former(before))
    placed = plan.slot_of()
    kept = 0
    for subtask, slot in placed.items():
        old = int(slot[1:])
        first, last = key_group_range(128, after, subtask.subtask)
        if old < before:
            old_first, old_last = key_group_range(128, before, old)
            kept += max(0, min(last, old_last) - max(first, old_first) + 1)
    assert int(kept * 100 / 128 + 0.5) == stay


def test_state_decides_before_the_order_of_slots():
    turned = list(reversed(slots(3)))
    plan = make_plan([group(3)], turned, former=former(3))
    assert plan.slot_of() == {Subtask("v", k): f"s{k:02}" for k in range(3)}


def test_the_larger_state_decides():
    """Subtask 0 of the vertex with more bytes was in s01, that of the other in s00."""
    groups = [SharingGroup("g", {"small": Bounds(1, 1), "large": Bounds(1, 1)})]
    before = FormerAssignment(
        {
            Subtask("small", 0): FormerPlace("s00", "h"),
            Subtask("large", 0): FormerPlace("s01", "h"),
        },
        {"small": 1, "large": 1},
        {"small": 128, "large": 128},
        {"small": 1280, "large": 2560},
    )
    assert list(make_plan(groups, slots(2), former=before).assignment) == ["s01"]


def test_key_groups_count_even_if_nothing_is_known_of_their_bytes():
    plan = make_plan([group(2)], slots(4), former=former(2, state_bytes=0))
    assert plan.slot_of() == {Subtask("v", 0): "s00", Subtask("v", 1): "s01"}


def test_of_equal_scores_the_smaller_slot_then_the_earlier_group_wins():
    """Both halves of the only old range are equally large, and so are both old ranges of the only new one."""
    plan = make_plan([group(2)], slots(2), former=former(1))
    assert plan.slot_of() == {Subtask("v", 0): "s00", Subtask("v", 1): "s01"}
    plan = make_plan([group(1)], list(reversed(slots(2))), former=former(2))
    assert list(plan.assignment) == ["s00"]


def test_of_equal_scores_the_host_with_more_of_the_state_wins():
    """Two of four old slots are left, each with a quarter. The slots that are gone were on h2."""
    places = {Subtask("v", k): FormerPlace(f"s0{k}", "h1" if k == 0 else "h2") for k in range(4)}
    before = FormerAssignment(places, {"v": 4}, {"v": 128}, {"v": 1_000_000})
    plan = make_plan([group(1)], [Slot("s00", host="h1"), Slot("s01", host="h2")], former=before)
    assert list(plan.assignment) == ["s01"]


def test_a_slot_that_is_gone_leaves_its_subtask_on_the_same_host_if_there_is_one():
    before = former(2, host="h2")
    given = [Slot("new1", host="h1"), Slot("new2", host="h2"), Slot("new3", host="h1")]
    plan = make_plan([group(1)], given, former=before)
    assert list(plan.assignment) == ["new2"]


def test_a_new_vertex_without_a_past_goes_anywhere():
    plan = make_plan([group(2, vertex="other")], slots(2), former=former(2))
    assert sorted(plan.assignment) == ["s00", "s01"]
