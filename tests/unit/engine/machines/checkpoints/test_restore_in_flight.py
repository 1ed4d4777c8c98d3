"""Who reads data in flight at another parallelism. Expectations:
docs/spec/exchange.md#choosing-a-channel, docs/spec/state.md#key-groups,
docs/spec/checkpoints.md#data-in-flight.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.checkpoints.restore import RestorePlan
from penstock.engine.model.checkpoints import (
    ChannelStateHandle,
    CheckpointType,
    CompletedCheckpoint,
    InlineHandle,
    OperatorCheckpoint,
    OperatorSubtaskState,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorInfo,
    ResultPartitionType,
)
from penstock.engine.model.graph.partitioning import ShipStrategy, pattern_of
from penstock.engine.model.ids import DataSetId, ExecutionVertexId, JobId, VertexId
from penstock.engine.model.key_groups import operator_index

EDGE = DataSetId("a to b")
ARBITRARY = [ShipStrategy.REBALANCE, ShipStrategy.SHUFFLE, ShipStrategy.GLOBAL]
GROUPS = 128


def graph_of(producers, consumers, strategy=ShipStrategy.HASH, groups=GROUPS) -> JobGraph:
    graph = JobGraph(JobId("job"), "job")
    ends = []
    for name, parallelism in zip("ab", (producers, consumers), strict=True):
        info = OperatorInfo(0, name.upper(), name)
        vertex = JobVertex(VertexId(name), name, parallelism, groups, operators=(info,))
        graph.vertices[vertex.vertex_id] = vertex
        ends.append(vertex)
    up, down = ends
    pattern, kind = pattern_of(strategy), ResultPartitionType.PIPELINED_BOUNDED
    up.outputs.append(IntermediateDataSet(EDGE, up.vertex_id, kind, pattern))
    down.inputs.append(JobEdge(EDGE, up.vertex_id, down.vertex_id, pattern, strategy))
    return graph


def flying(place, edge=EDGE, channel=0) -> ChannelStateHandle:
    return ChannelStateHandle(edge, channel, InlineHandle(place.encode(), 0))


def everywhere(producers, consumers, groups=GROUPS) -> CompletedCheckpoint:
    """Something in hand of every consumer, and at both ends of every channel: "consumer<-producer at"."""
    sending = [
        OperatorSubtaskState(
            outputs_in_flight=tuple(flying(f"{c}<-{p} out", channel=c) for c in range(consumers))
        )
        for p in range(producers)
    ]
    reading = [
        OperatorSubtaskState(
            inputs_in_flight=(
                flying(f"{c} in hand", None),
                *(flying(f"{c}<-{p} in", channel=p) for p in range(producers)),
            )
        )
        for c in range(consumers)
    ]
    operators = (
        OperatorCheckpoint("a", "A", producers, groups, tuple(sending)),
        OperatorCheckpoint("b", "B", consumers, groups, tuple(reading)),
    )
    return CompletedCheckpoint(7, JobId("job"), CheckpointType.CHECKPOINT, 0, operators)


def shares_of(graph, checkpoint, **more) -> list:
    """By subtask of the consumer, what it reads in order."""
    plan = RestorePlan(graph, checkpoint, **more)
    parallelism = graph.vertices[VertexId("b")].parallelism
    tasks = [plan.of(ExecutionVertexId(VertexId("b"), i)) for i in range(parallelism)]
    return [task.in_flight for task in tasks]


def text_of(share) -> str:
    return share.handle.data.decode()


def test_at_the_same_parallelism_each_reads_its_own_first_in_hand_then_inputs_then_outputs():
    first, second = shares_of(graph_of(2, 2), everywhere(2, 2))
    assert [text_of(one) for one in first] == [
        "0 in hand", "0<-0 in", "0<-0 out", "0<-1 in", "0<-1 out",
    ]  # fmt: skip
    assert {text_of(one)[0] for one in second} == {"1"}
    assert not any(one.is_filtered for one in (*first, *second))


PARALLELISM = st.integers(1, 9)


@given(PARALLELISM, PARALLELISM, PARALLELISM, PARALLELISM)
def test_a_key_in_flight_comes_to_its_owner_once_and_in_order(p_old, c_old, p_new, c_new):
    found = shares_of(graph_of(p_new, c_new), everywhere(p_old, c_old))
    for group in range(GROUPS):
        former = operator_index(group, GROUPS, c_old)
        mine = found[operator_index(group, GROUPS, c_new)]
        about = [text_of(one) for one in mine if text_of(one).startswith(f"{former}")]
        expected = [f"{former} in hand"]
        for p in range(p_old):
            expected += [f"{former}<-{p} in", f"{former}<-{p} out"]
        assert about == expected
    if c_old != c_new:
        assert all(one.is_filtered for shares in found for one in shares)


@given(PARALLELISM, PARALLELISM, PARALLELISM, st.sampled_from(ARBITRARY))
def test_without_a_key_each_former_subtasks_data_goes_to_one(p_old, c_old, c_new, strategy):
    found = shares_of(graph_of(1, c_new, strategy), everywhere(p_old, c_old))
    read = [text_of(one) for shares in found for one in shares if one.is_owner]
    assert len(read) == len(set(read)) == c_old * (1 + 2 * p_old)
    for shares in found:
        assert all(one.is_owner for one in shares)
        order = [text_of(one) for one in shares if one.data_set_id is not None]
        for former in {text[0] for text in order}:
            of_former = [text for text in order if text[0] == former]
            assert of_former == sorted(of_former)  # "in" before "out"


@given(PARALLELISM, PARALLELISM)
def test_where_a_function_of_the_user_decides_all_are_asked(c_old, c_new):
    found = shares_of(graph_of(1, c_new, ShipStrategy.CUSTOM), everywhere(1, c_old))
    if c_old == c_new:
        assert all(not one.is_filtered for shares in found for one in shares)
        assert [len(shares) for shares in found] == [3] * c_new
    else:
        assert [len(shares) for shares in found] == [3 * c_old] * c_new
        owners = [text_of(one) for shares in found for one in shares if one.is_owner]
        assert len(owners) == len(set(owners)) == 3 * c_old


def test_another_number_of_key_groups_has_all_read_all():
    found = shares_of(graph_of(1, 2, groups=64), everywhere(1, 2, groups=128))
    assert [len(shares) for shares in found] == [6, 6]
    assert all(one.is_filtered for shares in found for one in shares)


def test_an_edge_that_is_no_more_is_refused_by_name_unless_its_records_may_be_lost():
    other = graph_of(1, 2)
    reader = other.vertices[VertexId("b")]
    reader.inputs[0] = replace(reader.inputs[0], data_set_id=DataSetId("a to b, otherwise"))
    with pytest.raises(ConfigurationError, match=r"out of operator 'A' \(uid 'a'\).*no such edge"):
        shares_of(other, only("outputs_in_flight"))
    with pytest.raises(ConfigurationError, match=r"into operator 'B' \(uid 'b'\).*no such edge"):
        shares_of(other, only("inputs_in_flight"))
    lost = shares_of(other, only("outputs_in_flight"), is_unclaimed_state_ignored=True)
    assert lost == [(), ()]


def only(side) -> CompletedCheckpoint:
    """Something at one end of the edge."""
    at_a, at_b = OperatorSubtaskState(), OperatorSubtaskState()
    if side == "outputs_in_flight":
        at_a = OperatorSubtaskState(outputs_in_flight=(flying("x"),))
    else:
        at_b = OperatorSubtaskState(inputs_in_flight=(flying("x"),))
    operators = (
        OperatorCheckpoint("a", "A", 1, GROUPS, (at_a,)),
        OperatorCheckpoint("b", "B", 2, GROUPS, (at_b, None)),
    )
    return CompletedCheckpoint(7, JobId("job"), CheckpointType.CHECKPOINT, 0, operators)


def test_what_was_in_hand_of_an_operator_that_is_chained_now_is_refused():
    graph = graph_of(1, 1)
    vertex = graph.vertices[VertexId("b")]
    vertex.operators = (OperatorInfo(5, "Before", "before"), *vertex.operators)
    in_hand = OperatorSubtaskState(inputs_in_flight=(flying("x", None),))
    operators = (OperatorCheckpoint("b", "B", 1, GROUPS, (in_hand,)),)
    old = CompletedCheckpoint(7, JobId("job"), CheckpointType.CHECKPOINT, 0, operators)
    with pytest.raises(ConfigurationError, match=r"into operator 'B'.*as the head of a chain"):
        shares_of(graph, old)


@pytest.mark.parametrize("strategy", [ShipStrategy.RESCALE, ShipStrategy.BROADCAST])
def test_an_edge_that_nothing_overtakes_has_nothing_in_flight(strategy):
    with pytest.raises(ConfigurationError, match="point-wise or broadcast"):
        shares_of(graph_of(2, 2, strategy), everywhere(2, 2))
