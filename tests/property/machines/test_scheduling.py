"""Laws of the control plane: sharing, distribution, regions, and what any order of reports can
do."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.machines.execution.execution_graph import (
    ExecutionGraph,
    partition_ranges,
    subpartition_of,
)
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.machines.slots.slot_sharing import local_input_preferred, task_balanced
from penstock.engine.model.graph.job_graph import JobGraph, ResultPartitionType
from penstock.engine.model.graph.partitioning import DistributionPattern
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.key_groups import default_max_parallelism
from penstock.engine.model.messages import (
    CancelJob,
    FailureInfo,
    TaskManagerGone,
    TaskReported,
    TaskStateChanged,
    TimerFired,
)
from penstock.engine.model.states import ExecutionState
from tests.tools.machines.job_bench import Bench
from tests.tools.machines.job_graphs import job_graph

NAMES = "ABCDE"
TYPES = list(ResultPartitionType)


@st.composite
def graphs(draw: st.DrawFn, types: list[ResultPartitionType] = TYPES) -> JobGraph:
    count = draw(st.integers(1, 5))
    vertices = {name: draw(st.integers(1, 6)) for name in NAMES[:count]}
    edges = []
    for place, name in enumerate(NAMES[1:count], start=1):
        for source in draw(st.sets(st.sampled_from(NAMES[:place]), max_size=2)):
            pattern = draw(st.sampled_from(list(DistributionPattern)))
            edges.append((source, name, pattern, draw(st.sampled_from(types))))
    groups = {name: draw(st.sampled_from(["default", "default", "other"])) for name in vertices}
    return job_graph(vertices, edges, groups=groups)


@given(graphs())
def test_slot_sharing_places_every_subtask_once_and_never_two_of_a_vertex_together(
    graph: JobGraph,
) -> None:
    for strategy in (local_input_preferred, task_balanced):
        execution_graph = ExecutionGraph(graph)
        groups = strategy(execution_graph)
        placed = [vertex.index for group in groups for vertex in group.vertices]
        assert sorted(placed) == list(range(len(execution_graph.vertices)))
        for group in groups:
            kinds = [vertex.job_vertex for vertex in group.vertices]
            assert len(kinds) == len(set(kinds))
            assert {kind.slot_sharing_group for kind in kinds} == {group.slot_sharing_group}


@given(graphs())
def test_a_slot_sharing_group_needs_as_many_slots_as_its_widest_vertex(graph: JobGraph) -> None:
    execution_graph = ExecutionGraph(graph)
    widest: dict[str, int] = {}
    for vertex in graph.vertices.values():
        name = vertex.slot_sharing_group
        widest[name] = max(widest.get(name, 0), vertex.parallelism)
    for strategy in (local_input_preferred, task_balanced):
        assert len(strategy(execution_graph)) == sum(widest.values())


@st.composite
def co_located_graphs(draw: st.DrawFn) -> JobGraph:
    """Some vertices of equal parallelism in pairs and triples, all in one pipelined region."""
    vertices = {name: draw(st.sampled_from([2, 2, 3, 5])) for name in NAMES}
    edges = [(a, b, DistributionPattern.ALL_TO_ALL) for a, b in pairwise(NAMES)]
    keys = {name: draw(st.sampled_from(["x", "y", None])) for name in NAMES}
    co_location = {name: f"{key}{vertices[name]}" for name, key in keys.items() if key is not None}
    return job_graph(vertices, edges, co_location=co_location)


@given(co_located_graphs())
def test_subtasks_of_co_located_vertices_sit_together_by_their_index(graph: JobGraph) -> None:
    for strategy in (local_input_preferred, task_balanced):
        execution_graph = ExecutionGraph(graph)
        where = {
            v.index: group.index for group in strategy(execution_graph) for v in group.vertices
        }
        seats: dict[tuple[str, int], set[int]] = {}
        for vertex in execution_graph.vertices:
            key = vertex.job_vertex.co_location_group
            if key is not None:
                seats.setdefault((key, vertex.subtask), set()).add(where[vertex.index])
        assert all(len(slots) == 1 for slots in seats.values()), seats


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from(list(DistributionPattern)))
def test_every_subpartition_has_one_reader_and_every_consumer_reads(
    producers: int, consumers: int, pattern: DistributionPattern
) -> None:
    readers: dict[tuple[int, int], int] = {}
    seen = []
    for span in partition_ranges(pattern, producers, consumers):
        sharing = span.last_consumer - span.first_consumer + 1
        for consumer in range(span.first_consumer, span.last_consumer + 1):
            seen.append(consumer)
            for partition in range(span.first_partition, span.last_partition + 1):
                key = (partition, subpartition_of(pattern, consumer, sharing))
                assert key not in readers
                assert key[1] < sharing
                readers[key] = consumer
    assert seen == list(range(consumers))
    assert {partition for partition, _ in readers} == set(range(producers))


@given(graphs())
def test_regions_are_a_partition_of_the_tasks_and_pipelined_neighbours_stay_together(
    graph: JobGraph,
) -> None:
    execution_graph = ExecutionGraph(graph)
    regions = Regions(execution_graph)
    members = [vertex.index for region in regions.regions for vertex in region.vertices]
    assert sorted(members) == list(range(len(execution_graph.vertices)))
    for group in execution_graph.consumed_groups:
        if group.result_type.must_be_pipelined_consumed:
            ends = [*(p.producer for p in group.partitions), *group.consumers.vertices]
            assert len({id(regions.of(vertex)) for vertex in ends}) == 1


@given(graphs())
def test_groups_cost_no_more_than_the_tasks_at_their_ends(graph: JobGraph) -> None:
    execution_graph = ExecutionGraph(graph)
    edges = [edge for vertex in graph.vertices.values() for edge in vertex.inputs]
    ends = sum(
        graph.vertices[edge.source].parallelism + graph.vertices[edge.target].parallelism
        for edge in edges
    )
    references = sum(
        len(group.partitions) + len(group.consumers.vertices)
        for group in execution_graph.consumed_groups
    )
    assert references <= 2 * ends


@given(st.integers(1, 32768))
def test_the_default_maximum_is_a_power_of_two_that_leaves_room(parallelism: int) -> None:
    maximum = default_max_parallelism(parallelism)
    assert maximum & (maximum - 1) == 0
    assert 128 <= maximum <= 32768
    assert maximum >= min(32768, parallelism + parallelism // 2)


FAILURES = [
    None,
    FailureInfo("ValueError", "boom", is_user_code=True),
    FailureInfo("PartitionConnectionError", "reset"),
]
REPORTS = st.tuples(
    st.just("report"),
    st.integers(0, 10),
    st.integers(0, 3),
    st.sampled_from(list(ExecutionState)),
    st.sampled_from(FAILURES),
)
OTHERS = st.one_of(
    st.tuples(st.just("offer"), st.integers(0, 5)),
    st.tuples(st.just("lose"), st.integers(0, 5)),
    st.tuples(
        st.just("timer"), st.sampled_from(["restart-0", "restart-1", "slots-0", "idle-slots"])
    ),
    st.tuples(st.just("honest"), st.integers(0, 10)),
    st.tuples(st.just("honest"), st.integers(0, 10)),
    st.tuples(st.just("cancel")),
)


@settings(max_examples=300)
@given(
    graphs([ResultPartitionType.PIPELINED_BOUNDED]),
    st.lists(st.one_of(REPORTS, OTHERS), max_size=60),
)
def test_no_order_of_stale_and_repeated_news_breaks_an_invariant(
    graph: JobGraph, news: list[tuple]
) -> None:
    """`Bench.step` runs the job's own checks after every event."""
    bench = Bench(graph)
    bench.start()
    for slot in range(8):
        bench.offer(f"tm{slot}", 3)
    vertices = bench.job.state.graph.vertices
    for item in news:
        bench.now_ms += 50
        match item:
            case ("report", place, attempt, state, failure):
                vertex_id = vertices[place % len(vertices)].vertex_id
                report = TaskStateChanged(AttemptId(vertex_id, attempt), state, failure)
                bench.step(TaskReported(report, bench.now_ms))
            case ("honest", place):
                _report_next(bench, place)
            case ("offer", place):
                bench.offer(f"more{place}-{bench.now_ms}", 2)
            case ("lose", place):
                bench.step(TaskManagerGone(ResourceId(f"tm{place}"), "killed", bench.now_ms))
            case ("timer", name):
                bench.step(TimerFired(name, bench.now_ms))
            case ("cancel",):
                bench.step(CancelJob(bench.now_ms))
    stranger = AttemptId(ExecutionVertexId(VertexId("nobody"), 0), 0)
    report = TaskStateChanged(stranger, ExecutionState.RUNNING)
    assert bench.step(TaskReported(report, bench.now_ms)) == []


def _report_next(bench: Bench, place: int) -> None:
    """What a healthy TaskManager would say next of a task."""
    vertices = bench.job.state.graph.vertices
    vertex = vertices[place % len(vertices)]
    following = {
        ExecutionState.DEPLOYING: ExecutionState.INITIALIZING,
        ExecutionState.INITIALIZING: ExecutionState.RUNNING,
        ExecutionState.RUNNING: ExecutionState.FINISHED,
        ExecutionState.CANCELING: ExecutionState.CANCELED,
    }.get(vertex.state)
    if following is not None:
        bench.report(str(vertex), following)


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from([None, "x", "y"])), min_size=1, max_size=6
    )
)
def test_co_located_tasks_are_dealt_to_the_least_filled_group_that_lacks_their_vertex(
    kinds: list[tuple[int, str | None]],
) -> None:
    vertices = {f"V{number}": parallelism for number, (parallelism, _) in enumerate(kinds)}
    names = {f"V{number}": name for number, (_, name) in enumerate(kinds) if name}
    graph = ExecutionGraph(job_graph(vertices, [], co_location=names))
    width = max(vertices.values())
    expected: list[list[str]] = [[] for _ in range(width)]
    constraints: dict[tuple[str, int], list[str]] = {}
    turn = 0
    for job_vertex in graph.job_vertices:
        is_narrow, name = len(job_vertex.vertices) != width, job_vertex.co_location_group
        for offset, vertex in enumerate(job_vertex.vertices):
            if name is None:
                group = expected[((turn if is_narrow else 0) + offset) % width]
            else:
                lacking = [
                    g for g in expected if not any(t.startswith(vertex.job_vertex.name) for t in g)
                ]
                least = min(lacking, key=len) if lacking else None
                group = constraints.setdefault((name, vertex.subtask), least)
            group.append(str(vertex))
        if is_narrow and name is None:
            turn = (turn + len(job_vertex.vertices)) % width
        elif is_narrow:
            turn = min(range(width), key=lambda place: len(expected[place]))
    found = [[str(vertex) for vertex in group.vertices] for group in task_balanced(graph)]
    assert found == expected
