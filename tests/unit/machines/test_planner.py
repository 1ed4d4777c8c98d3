"""Plans: the figure and the walk of the seeds (A2, A5, A6), shortage, regions behind blocking
edges."""

import pytest

from penstock.machines.job_settings import JobSettings, LoadBalanceMode
from penstock.machines.plan import task_ranges
from penstock.machines.planner import plan
from penstock.model.errors import ConfigurationError
from tests.unit.machines.graphs import A2A, BLOCKING, figure, job_graph, word_count


def test_the_walk_of_the_seeds() -> None:
    found = plan(word_count(), 2, 1)
    assert [slot.tasks for slot in found.slots] == [
        ["Source[0]", "FlatMap[0]", "KeyAggSink[0]"],
        ["FlatMap[1]", "KeyAggSink[1]"],
    ]
    assert [slot.resource_id for slot in found.slots] == ["tm-1", "tm-2"]
    assert found.is_sufficient


def test_the_figure_of_the_seeds_leaves_two_slots_free() -> None:
    found = plan(figure(), 2, 3)
    assert len(found.slots) == 4
    assert found.slot_of("Reduce[2]").tasks == ["Source[2]", "Map[2]", "Reduce[2]"]
    assert found.slot_of("Map[3]").resource_id == "tm-2"
    assert "2 slots stay free" in found.render()


def test_spread_over_task_managers_and_hosts() -> None:
    settings = JobSettings(load_balance=LoadBalanceMode.SLOTS)
    found = plan(figure(), 2, 3, ["left", "right"], settings)
    assert sorted(slot.host for slot in found.slots) == ["left", "left", "left", "right"]
    assert [slot.host for slot in plan(word_count(), 2, 1, ["only"]).slots] == ["only", "only"]


def test_a_slot_tree_nests_co_located_tasks_and_a_single_task_is_a_simple_slot() -> None:
    graph = job_graph(
        {"A": 2, "B": 1, "C": 1},
        [("A", "B", A2A), ("B", "C", A2A)],
        co_location={"B": "pair", "C": "pair"},
    )
    first, second = plan(graph, 1, 2).slots
    assert second.tree.kind == "SimpleSlot"
    assert second.tree.label == "A[1]"
    assert first.tree.kind == "SharedSlot"
    leaf, nested = first.tree.children
    assert (leaf.kind, leaf.label) == ("SimpleSlot", "A[0]")
    assert [child.label for child in nested.children] == ["B[0]", "C[0]"]
    assert "co-location 'pair'" in plan(graph, 1, 2).render()


def test_too_few_slots_name_the_subtasks_without_one_and_what_to_change() -> None:
    found = plan(figure(), 1, 3)
    assert not found.is_sufficient
    assert found.without_slot == ["Source[3]", "Map[3]"]
    assert len(found.waiting) == 11
    text = found.render()
    for words in ("1 are missing", "Source[3], Map[3]", "Take 2 TaskManagers", "numberOfTaskSlots"):
        assert words in text


def test_regions_behind_blocking_results_reuse_the_slots() -> None:
    found = plan(job_graph({"A": 2, "B": 2}, [("A", "B", A2A, BLOCKING)]), 1, 2)
    assert found.is_sufficient
    assert [slot.tasks for slot in found.slots] == [["A[0]", "B[0]"], ["A[1]", "B[1]"]]
    assert len(found.regions) == 4


def test_lines_are_short_even_with_long_names_and_many_tasks() -> None:
    name = "A very long operator name -> " * 9
    text = plan(job_graph({name: 30, "B": 20}, [(name, "B", A2A)]), 30, 1).render(max_slots=5)
    assert max(map(len, text.splitlines())) <= 100
    assert "25 slots more" in text


def test_runs_of_subtasks_are_drawn_together() -> None:
    assert task_ranges(["A[0]", "A[1]", "A[2]", "A[4]", "B[1]"]) == ["A[0..2]", "A[4]", "B[1]"]


def test_a_plan_for_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        plan(figure(), 0, 1)
