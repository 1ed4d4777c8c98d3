"""Who shares a slot, by docs/spec/slots.md#sharing-by-local-input, #sharing-by-balance."""

from itertools import pairwise

import pytest

from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.slots.slot_sharing import local_input_preferred, task_balanced
from tests.tools.machines.job_graphs import A2A, POINTWISE, figure, job_graph, word_count


def groups(strategy, graph) -> list[str]:
    found = strategy(ExecutionGraph(graph))
    return [" ".join(map(str, group.vertices)) for group in found]


def chain(*widths: int, pattern=POINTWISE):
    names = "ABCDE"[: len(widths)]
    edges = [(a, b, pattern) for a, b in pairwise(names)]
    return job_graph(dict(zip(names, widths, strict=True)), edges)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (chain(2, 4), ["A[0] B[0]", "A[1] B[2]", "B[1]", "B[3]"]),
        (chain(4, 2), ["A[0] B[0]", "A[1]", "A[2] B[1]", "A[3]"]),
        (
            figure(),
            [
                "Source[0] Map[0] Reduce[0]",
                "Source[1] Map[1] Reduce[1]",
                "Source[2] Map[2] Reduce[2]",
                "Source[3] Map[3]",
            ],
        ),
        (word_count(), ["Source[0] FlatMap[0] KeyAggSink[0]", "FlatMap[1] KeyAggSink[1]"]),
    ],
)
def test_subtasks_sit_beside_their_producers(graph, expected: list[str]) -> None:
    assert groups(local_input_preferred, graph) == expected


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (chain(1, 3, 2, pattern=A2A), ["A[0] B[0]", "B[1] C[0]", "B[2] C[1]"]),
        (chain(3, 2, 4, pattern=A2A), ["A[0] B[1] C[0]", "A[1] C[1]", "A[2] C[2]", "B[0] C[3]"]),
    ],
)
def test_tasks_are_dealt_out_evenly(graph, expected: list[str]) -> None:
    assert groups(task_balanced, graph) == expected


def test_other_slot_sharing_groups_get_other_slots() -> None:
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")], groups={"B": "b"})
    assert groups(local_input_preferred, graph) == ["A[0]", "A[1]", "B[0]", "B[1]"]
    assert groups(task_balanced, graph) == ["A[0]", "A[1]", "B[0]", "B[1]"]


def test_co_located_subtasks_of_one_index_share_a_slot() -> None:
    graph = job_graph(
        {"A": 2, "B": 3, "C": 2},
        [("A", "B", A2A), ("B", "C", A2A)],
        co_location={"A": "c", "C": "c"},
    )
    for strategy in (local_input_preferred, task_balanced):
        for group in strategy(ExecutionGraph(graph)):
            names = {str(vertex) for vertex in group.vertices}
            for index in range(2):
                assert (f"A[{index}]" in names) == (f"C[{index}]" in names)


def test_a_wide_all_to_all_edge_is_placed_in_linear_time() -> None:
    graph = job_graph({"A": 3000, "B": 3000}, [("A", "B", A2A)])
    assert len(local_input_preferred(ExecutionGraph(graph))) == 3000
