"""Trees of flame graphs: what Flink's dashboard draws."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.jobmanager.stack_trees import GraphType, tree_of
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.engine.model.messages import SampledStack

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
