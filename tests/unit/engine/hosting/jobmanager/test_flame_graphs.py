"""Flame graphs: asked for, sampled once, kept for a while, merged over TaskManagers."""

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.jobmanager.flame_graphs import (
    FlameGraphs,
    GraphType,
    StackSettings,
    tree_of,
)
from penstock.engine.hosting.jobmanager.questions import NoAnswer
from penstock.engine.hosting.network.wire.messages import encode
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.messages import SampledStack, SampleStacks, StackSamples

FIRST = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)
SECOND = AttemptId(ExecutionVertexId(VertexId("v"), 1), 0)
FRAMES = st.lists(st.sampled_from(["a:1", "b:2", "c:3"]), max_size=5).map(tuple)
STACKS = st.lists(
    st.builds(
        SampledStack, st.sampled_from([FIRST, SECOND]), FRAMES, st.integers(0, 9), st.integers(0, 9)
    ),
    max_size=8,
)


def test_stacks_of_several_tasks_make_one_tree_from_the_outermost_frame_inwards():
    stacks = [
        SampledStack(FIRST, ("app.run:1", "app.parse:5"), 3, 0),
        SampledStack(SECOND, ("app.run:1", "app.parse:5"), 2, 1),
        SampledStack(SECOND, ("app.run:1", "time.wait:9"), 0, 4),
    ]
    assert tree_of(stacks, GraphType.FULL) == {
        "name": "root",
        "value": 10,
        "children": [
            {
                "name": "app.run:1",
                "value": 10,
                "children": [
                    {"name": "app.parse:5", "value": 6, "children": []},
                    {"name": "time.wait:9", "value": 4, "children": []},
                ],
            }
        ],
    }


def test_stacks_that_never_ran_are_not_on_the_processor():
    stacks = [SampledStack(FIRST, ("a:1", "b:2"), 3, 0), SampledStack(FIRST, ("a:1", "c:3"), 0, 4)]
    names = {
        kind: [child["name"] for child in tree_of(stacks, kind)["children"][0]["children"]]
        for kind in (GraphType.ON_CPU, GraphType.OFF_CPU)
    }
    assert names == {GraphType.ON_CPU: ["b:2"], GraphType.OFF_CPU: ["c:3"]}


@given(STACKS)
def test_all_samples_are_those_on_and_those_off_the_processor(stacks):
    values = {kind: tree_of(stacks, kind)["value"] for kind in GraphType}
    assert values[GraphType.FULL] == values[GraphType.ON_CPU] + values[GraphType.OFF_CPU]


@given(STACKS)
def test_no_frame_has_less_samples_than_those_that_it_calls(stacks):
    left = [tree_of(stacks, GraphType.FULL)]
    while left:
        node = left.pop()
        assert node["value"] >= sum(child["value"] for child in node["children"])
        left += node["children"]


def test_a_stack_may_be_deeper_than_pythons_own():
    frames = tuple(f"app.deeper:{line}" for line in range(5000))
    node, depth = tree_of([SampledStack(FIRST, frames, 1, 0)], GraphType.FULL), 0
    while node["children"]:
        (node,) = node["children"]
        depth += 1
    assert depth == 5000


def test_nothing_sampled_is_a_root_alone():
    assert tree_of([], GraphType.FULL) == {"name": "root", "value": 0, "children": []}


VERTEX, OTHER = VertexId("v"), VertexId("w")
SETTINGS = StackSettings(samples=7, delay_ms=3, depth=5, refresh_ms=1000, cleanup_ms=10_000)


def attempt(subtask, vertex=VERTEX):
    return AttemptId(ExecutionVertexId(vertex, subtask), 0)


class Bench:
    """Three subtasks on two TaskManagers, and one of another vertex."""

    def __init__(self):
        self.where = {
            attempt(0): ResourceId("tm-1"),
            attempt(1): ResourceId("tm-1"),
            attempt(2): ResourceId("tm-2"),
            attempt(0, OTHER): ResourceId("tm-2"),
        }
        self.asked, self.now_ms = [], 0
        self.graphs = FlameGraphs(self.ask, lambda: self.where, SETTINGS, lambda: self.now_ms)

    def ask(self, resource_id, question):
        future = Future()
        self.asked.append((resource_id, question, future))
        return future

    def answer(self, frame="f:1"):
        """Everything that was asked: each attempt was seen 3 times on the processor and 4 times off it."""
        asked, self.asked = self.asked, []
        for _, question, future in asked:
            stacks = tuple(SampledStack(one, (frame,), 3, 4) for one in question.attempts)
            future.set_result(StackSamples(len(stacks), encode(stacks)))


@pytest.fixture
def bench():
    return Bench()


def values(bench, **more):
    found = {kind: bench.graphs.graph(VERTEX, kind, **more) for kind in GraphType}
    return {kind: graph.tree["value"] for kind, graph in found.items()}


def test_the_first_request_asks_all_taskmanagers_of_the_vertex_once(bench):
    assert bench.graphs.graph(VERTEX) is None
    assert bench.graphs.graph(VERTEX) is None
    first, second = bench.asked
    assert first[:2] == ("tm-1", SampleStacks((attempt(0), attempt(1)), 7, 3, 5))
    assert second[:2] == ("tm-2", SampleStacks((attempt(2),), 7, 3, 5))


def test_the_answers_make_one_tree_of_each_type(bench):
    bench.graphs.graph(VERTEX)
    bench.answer()
    assert values(bench) == {GraphType.FULL: 21, GraphType.ON_CPU: 9, GraphType.OFF_CPU: 12}
    (child,) = bench.graphs.graph(VERTEX).tree["children"]
    assert (child["name"], child["value"]) == ("f:1", 21)
    assert bench.graphs.graph(VERTEX).end_ms > 0
    assert bench.asked == []


def test_an_old_graph_is_given_while_a_new_one_is_made(bench):
    bench.graphs.graph(VERTEX)
    bench.answer("old:1")
    bench.now_ms = 999
    bench.graphs.graph(VERTEX)
    assert bench.asked == []
    bench.now_ms = 1000
    assert bench.graphs.graph(VERTEX).tree["children"][0]["name"] == "old:1"
    assert len(bench.asked) == 2
    bench.answer("new:1")
    assert bench.graphs.graph(VERTEX).tree["children"][0]["name"] == "new:1"


def test_one_subtask_alone_is_sampled_alone(bench):
    assert bench.graphs.graph(VERTEX, subtask=2) is None
    ((resource_id, question, _),) = bench.asked
    assert (resource_id, question.attempts) == ("tm-2", (attempt(2),))
    bench.answer()
    assert values(bench, subtask=2)[GraphType.FULL] == 7
    assert bench.graphs.graph(VERTEX) is None


def test_a_sample_of_the_vertex_serves_its_subtasks_too(bench):
    bench.graphs.graph(VERTEX, subtask=0)
    bench.graphs.graph(VERTEX)
    alone, *of_all = bench.asked
    bench.asked = of_all
    bench.answer()
    assert values(bench, subtask=0)[GraphType.FULL] == 7
    assert alone[2].done() is False


def test_a_taskmanager_that_fails_leaves_the_samples_of_the_others(bench):
    bench.graphs.graph(VERTEX)
    (_, _, lost), answered = bench.asked
    lost.set_exception(NoAnswer("it has ended"))
    bench.asked = [answered]
    bench.answer()
    assert values(bench)[GraphType.FULL] == 7


def test_when_all_fail_the_next_request_asks_again(bench):
    bench.graphs.graph(VERTEX)
    for _, _, future in bench.asked:
        future.set_exception(NoAnswer("it has ended"))
    bench.asked = []
    assert bench.graphs.graph(VERTEX) is None
    assert len(bench.asked) == 2


def test_a_vertex_that_runs_nowhere_has_none_and_nobody_is_asked(bench):
    assert bench.graphs.graph(VertexId("gone")) is None
    assert bench.asked == []


def test_what_nobody_asks_for_is_dropped(bench):
    bench.graphs.graph(VERTEX)
    bench.answer()
    bench.now_ms = 10_000
    bench.graphs.graph(OTHER)
    assert bench.graphs.graph(VERTEX) is None
