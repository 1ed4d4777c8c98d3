"""Groups, distribution and attempts, by docs/spec/execution-graph.md#attempts, #who-reads-what,
#groups.
"""

import pytest

from penstock.engine.machines.execution.execution import ExecutionEvent as E
from penstock.engine.machines.execution.execution_graph import (
    ExecutionGraph,
    partition_ranges,
    subpartition_of,
)
from penstock.engine.model.errors import GraphError, IllegalTransition
from penstock.engine.model.states import ExecutionState as S
from tests.tools.machines.job_graphs import A2A, BLOCKING, POINTWISE, figure, job_graph, word_count


@pytest.mark.parametrize(
    ("producers", "consumers", "expected"),
    [
        (3, 2, [(0, 0, 0, 0), (1, 2, 1, 1)]),
        (2, 3, [(0, 0, 0, 1), (1, 1, 2, 2)]),
        (5, 3, [(0, 0, 0, 0), (1, 2, 1, 1), (3, 4, 2, 2)]),
        (7, 3, [(0, 1, 0, 0), (2, 3, 1, 1), (4, 6, 2, 2)]),
        (3, 7, [(0, 0, 0, 2), (1, 1, 3, 4), (2, 2, 5, 6)]),
    ],
)
def test_pointwise_ranges_of_the_spec(producers: int, consumers: int, expected: list) -> None:
    spans = partition_ranges(POINTWISE, producers, consumers)
    assert [
        (s.first_partition, s.last_partition, s.first_consumer, s.last_consumer) for s in spans
    ] == expected


def test_a_consumer_reads_the_subpartition_of_its_own_index() -> None:
    assert [subpartition_of(POINTWISE, consumer, 2) for consumer in (3, 4)] == [1, 0]
    assert subpartition_of(A2A, 5, 7) == 5


def test_an_all_to_all_edge_is_one_pair_of_groups_whatever_its_size() -> None:
    graph = ExecutionGraph(job_graph({"A": 300, "B": 500}, [("A", "B", A2A)]))
    (group,) = graph.consumed_groups
    assert len(group.partitions) == 300
    assert len(group.consumers.vertices) == 500
    assert graph.vertices[0].partitions[0].subpartitions == 500


def test_vertices_come_in_topological_order_with_their_subtasks() -> None:
    graph = ExecutionGraph(word_count())
    assert list(map(str, graph.vertices)) == [
        "Source[0]", "FlatMap[0]", "FlatMap[1]", "KeyAggSink[0]", "KeyAggSink[1]",
    ]  # fmt: skip
    assert [vertex.index for vertex in graph.vertices] == list(range(5))


def test_complete_partitions_are_counted_per_group_and_taken_back_on_reset() -> None:
    graph = ExecutionGraph(job_graph({"A": 2, "B": 2}, [("A", "B", A2A, BLOCKING)]))
    (group,) = graph.consumed_groups
    for vertex in graph.vertices[:2]:
        for event in (E.SCHEDULE, E.DEPLOY, E.REPORT_FINISHED):
            vertex.execution.apply(event, 1)
        graph.mark_finished(vertex)
    assert group.is_all_data_produced
    assert graph.job_vertices[0].is_finished
    graph.vertices[0].reset()
    assert group.unfinished == 1
    assert graph.job_vertices[0].finished == 1


def test_reset_makes_the_next_attempt_and_keeps_a_bounded_history() -> None:
    graph = ExecutionGraph(figure(), history_size=2)
    vertex = graph.vertices[0]
    for attempt in range(4):
        assert vertex.execution.attempt_id.attempt == attempt
        vertex.execution.apply(E.FAIL, 1)
        vertex.reset()
    assert [old.attempt_id.attempt for old in vertex.history] == [2, 3]
    assert vertex.state is S.CREATED


def test_only_the_current_attempt_is_found() -> None:
    graph = ExecutionGraph(figure())
    vertex = graph.vertices[0]
    first = vertex.execution.attempt_id
    assert graph.current(first) is vertex
    vertex.execution.apply(E.FAIL, 1)
    vertex.reset()
    assert graph.current(first) is None


def test_a_running_attempt_cannot_be_reset() -> None:
    vertex = ExecutionGraph(figure()).vertices[0]
    with pytest.raises(IllegalTransition, match="RESET"):
        vertex.reset()


# ------------------------------------------------------------------ graphs that grow


def test_attaching_without_news_changes_nothing() -> None:
    graph = ExecutionGraph(word_count())
    before = list(graph.vertices)
    assert graph.attach() == []
    assert graph.vertices == before


def test_a_new_reader_of_a_finished_blocking_result_finds_it_complete() -> None:
    model = job_graph({"A": 1, "B": 1}, [("A", "B", A2A, BLOCKING)])
    later = model.vertices.pop(next(v for v in model.vertices if v == "B"))
    graph = ExecutionGraph(model)
    producer = graph.vertices[0]
    producer.execution.state = S.FINISHED
    graph.mark_finished(producer)
    model.vertices[later.vertex_id] = later
    (consumer,) = graph.attach()
    assert graph.vertices[0] is producer
    assert consumer.consumed_groups[0].is_all_data_produced
    assert str(consumer) == "B[0]"
    assert consumer.index == 1


def test_a_known_vertex_cannot_read_a_new_one() -> None:
    model = job_graph({"A": 1, "B": 1}, [("A", "B")])
    first = model.vertices.pop(next(v for v in model.vertices if v == "A"))
    with pytest.raises(GraphError, match="no vertex produces"):
        ExecutionGraph(model)
    inputs, model.vertices["B"].inputs = model.vertices["B"].inputs, []
    graph = ExecutionGraph(model)
    model.vertices["B"].inputs = inputs
    model.vertices[first.vertex_id] = first
    with pytest.raises(GraphError, match="was added later"):
        graph.attach()


def test_a_job_vertex_has_one_state_for_all_its_subtasks() -> None:
    graph = ExecutionGraph(job_graph({"A": 3}, []))
    (job_vertex,) = graph.job_vertices
    assert job_vertex.state is S.CREATED
    graph.vertices[0].execution.state = S.FINISHED
    assert job_vertex.state is S.RUNNING
    graph.vertices[1].execution.state = S.FAILED
    assert job_vertex.state is S.FAILED
