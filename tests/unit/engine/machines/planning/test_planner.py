"""Plans: the examples of docs/spec/slots.md#sharing-by-local-input, shortage, regions behind
blocking edges.
"""

import pytest

from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.planning.plan import alike, parse_shape, render_loss, task_ranges
from penstock.engine.machines.planning.planner import plan, plan_loss, plan_on
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.cluster import LoadBalanceMode
from tests.tools.machines.job_graphs import A2A, BLOCKING, figure, job_graph, word_count


def test_the_plan_of_a_word_count() -> None:
    found = plan(word_count(), 2, 1)
    assert [slot.tasks for slot in found.slots] == [
        ["Source[0]", "FlatMap[0]", "KeyAggSink[0]"],
        ["FlatMap[1]", "KeyAggSink[1]"],
    ]
    assert [slot.resource_id for slot in found.slots] == ["tm-1", "tm-2"]
    assert found.is_sufficient


def test_the_figure_of_flinks_documentation_leaves_two_slots_free() -> None:
    found = plan(figure(), 2, 3)
    assert len(found.slots) == 4
    assert found.slot_of("Reduce[2]").tasks == ["Source[2]", "Map[2]", "Reduce[2]"]
    assert found.slot_of("Map[3]").resource_id == "tm-2"
    assert "2 slots stay free" in found.render()


def test_spread_over_task_managers_and_hosts() -> None:
    settings = JobSettings(load_balance=LoadBalanceMode.SLOTS)
    found = plan(figure(), 2, 3, ["left", "right"], settings)
    assert sorted(slot.host for slot in found.slots) == ["left", "left", "right", "right"]
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
    assert "25 more slots" in text


def test_runs_of_subtasks_are_drawn_together() -> None:
    assert task_ranges(["A[0]", "A[1]", "A[2]", "A[4]", "B[1]"]) == ["A[0..2]", "A[4]", "B[1]"]


def test_a_plan_for_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one TaskManager"):
        plan(figure(), 0, 1)


# ------------------------------------------------------------------ clusters of a given shape


def test_a_shape_is_read_host_by_host() -> None:
    shape = parse_shape(["left=3,2", "right=1"])
    assert shape.taskmanagers == (("left", 3), ("left", 2), ("right", 1))
    assert shape.named(["left"]) == ["tm-1", "tm-2"]
    assert shape.named(["tm-3", "right"]) == ["tm-3"]
    assert str(shape) == "3 TaskManagers: 6 slots there"


@pytest.mark.parametrize("text", ["left", "left=", "left=0", "left=two", "=2"])
def test_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match="left=3,3"):
        parse_shape([text])


def test_all_task_managers_of_a_cluster_are_there_to_be_spread_over() -> None:
    settings = JobSettings(load_balance=LoadBalanceMode.SLOTS)
    shape = parse_shape(["a=2", "b=2", "c=2"])
    graph = job_graph({"A": 3}, [])
    assert [slot.host for slot in plan_on(graph, shape, settings).slots] == ["a", "b", "c"]
    assert [slot.host for slot in plan_on(graph, shape).slots] == ["a", "a", "b"]


def test_with_local_recovery_a_loss_moves_only_what_was_lost() -> None:
    shape, settings = parse_shape(["a=1", "b=1", "c=1"]), JobSettings(is_local_recovery=True)
    before, after = plan_loss(word_count(), shape, ["b"], settings)
    assert before.slot_of("FlatMap[1]").resource_id == "tm-2"
    assert after.slot_of("FlatMap[1]").resource_id == "tm-3"
    assert after.slot_of("FlatMap[0]").resource_id == "tm-1"
    assert len(after.restarted) == 5
    text = render_loss(before, after, ["tm-2"])
    assert "tm-2 slot 0 -> tm-3 slot 0: FlatMap[1], KeyAggSink[1]" in text
    assert "in their old slots, restarted or not: Source[0], FlatMap[0]" in text


def test_without_it_a_restarted_region_takes_the_slots_as_they_come() -> None:
    before, after = plan_loss(word_count(), parse_shape(["a=1", "b=1", "c=1"]), ["b"])
    assert {slot.resource_id for slot in before.slots} == {"tm-1", "tm-2"}
    assert {slot.resource_id for slot in after.slots} == {"tm-1", "tm-3"}
    assert len(after.restarted) == 5


def test_a_loss_leaves_other_regions_alone() -> None:
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")])
    before, after = plan_loss(graph, parse_shape(["a=1", "b=1", "c=1"]), ["tm-1"])
    assert sorted(after.restarted) == ["A[0]", "B[0]"]
    assert after.slot_of("A[1]") == before.slot_of("A[1]")
    assert after.slot_of("A[0]").resource_id == "tm-3"


def test_a_loss_that_leaves_too_few_slots_says_who_waits() -> None:
    before, after = plan_loss(word_count(), alike(2, 1), ["tm-1"])
    assert before.is_sufficient
    assert not after.is_sufficient
    assert "no slot" in render_loss(before, after, ["tm-1"])
    assert "1 TaskManager of 1 slot: 1 slot there, 2 wanted" in render_loss(before, after, ["tm-1"])


def test_what_is_lost_must_be_there_and_something_must_be_left() -> None:
    with pytest.raises(ConfigurationError, match="tm-1 to tm-2"):
        plan_loss(word_count(), alike(2, 1), ["tm-9"])
    with pytest.raises(ConfigurationError, match="nothing is left"):
        plan_loss(word_count(), alike(2, 1), ["tm-1", "host-2"])
