"""From a checkpoint to what attempts begin with. Expectations: docs/spec/state.md#key-groups,
#operator-state, #rescaling-keyed-state, docs/spec/checkpoints.md#savepoints-and-stopping,
#finished-tasks.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.checkpoints.key_checks import empty_start, without_their_state
from penstock.engine.machines.checkpoints.restore import RestorePlan, adopt_max_parallelism
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.checkpoints import (
    ChannelStateHandle,
    CheckpointType,
    CompletedCheckpoint,
    InlineHandle,
    OperatorCheckpoint,
    OperatorSubtaskState,
    RedistributionMode,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobGraph, OperatorInfo
from penstock.engine.model.ids import ExecutionVertexId, JobId, VertexId
from penstock.engine.model.key_groups import key_group_range
from penstock.engine.model.key_types import KeyType
from penstock.engine.model.messages import DeployTask, RestoreCoordinators
from penstock.engine.model.types import Types
from tests.tools.machines.checkpoint_bench import keyed_handle, list_handle, with_operators
from tests.tools.machines.job_bench import Bench
from tests.tools.machines.job_graphs import job_graph

UNION = RedistributionMode.UNION


def graph_of(parallelism: int, name: str = "Map") -> JobGraph:
    return with_operators(job_graph({name: parallelism}, []))


def operator(*states: OperatorSubtaskState | None, uid: str = "map", **more) -> OperatorCheckpoint:
    return OperatorCheckpoint(
        uid, uid.title(), len(states), more.pop("groups", 128), states, **more
    )


def checkpoint_of(*operators: OperatorCheckpoint) -> CompletedCheckpoint:
    kind = CheckpointType.CHECKPOINT
    return CompletedCheckpoint(7, JobId("job"), kind, 0, operators)


def plan_of(graph: JobGraph, *operators: OperatorCheckpoint, **more) -> RestorePlan:
    return RestorePlan(graph, checkpoint_of(*operators), **more)


def restored(plan: RestorePlan, subtask: int, name: str = "Map"):
    return plan.of(ExecutionVertexId(VertexId(name), subtask))


def lists(count: int, **more) -> OperatorSubtaskState:
    return OperatorSubtaskState(lists=(list_handle(count, **more),))


def keyed(old: int) -> OperatorCheckpoint:
    ranges = [key_group_range(128, old, index) for index in range(old)]
    return operator(*(OperatorSubtaskState(keyed=(keyed_handle(*r),)) for r in ranges))


@given(st.integers(1, 20), st.integers(1, 20))
def test_each_key_group_is_restored_by_its_owner(old: int, new: int) -> None:
    plan = plan_of(graph_of(new), keyed(old))
    for subtask in range(new):
        first, last = key_group_range(128, new, subtask)
        ((_, state),) = restored(plan, subtask).operators
        covered = {g for h in state.keyed for g in range(h.first_group, h.last_group + 1)}
        assert set(range(first, last + 1)) <= covered
        assert all(h.first_group <= last and h.last_group >= first for h in state.keyed)


def test_lists_are_split_in_order_when_the_parallelism_changes() -> None:
    plan = plan_of(graph_of(3), operator(lists(3), lists(2)))
    shares = [
        [(s.first, s.last, len(s.state.offsets)) for s in restored(plan, i).operators[0][1].lists]
        for i in range(3)
    ]
    assert shares == [[(0, 1, 3)], [(2, 2, 3), (0, 0, 2)], [(1, 1, 2)]]


def test_a_union_list_goes_to_everybody_and_an_unchanged_one_stays() -> None:
    union = plan_of(graph_of(2), operator(lists(3, mode=UNION), lists(2, mode=UNION)))
    assert [len(restored(union, i).operators[0][1].lists) for i in range(2)] == [2, 2]
    same = plan_of(graph_of(2), operator(lists(4), lists(0)))
    assert [len(restored(same, i).operators[0][1].lists) for i in range(2)] == [1, 0]


def test_operators_without_state_begin_with_none() -> None:
    plan = plan_of(graph_of(2, "Other"))
    assert restored(plan, 1, "Other").operators == ()


def test_state_that_nobody_claims_is_refused_by_name_unless_it_may_be_dropped() -> None:
    old = operator(lists(1, name="offsets"), uid="gone")
    with pytest.raises(ConfigurationError, match=r"uid 'gone'.*parallelism 1.*'offsets'.*ids: map"):
        plan_of(graph_of(1), old)
    plan_of(graph_of(1), old, is_unclaimed_state_ignored=True)
    plan_of(graph_of(1), operator(OperatorSubtaskState(), uid="gone"))


def test_the_number_of_key_groups_is_the_checkpoints_unless_the_program_sets_another() -> None:
    old = checkpoint_of(operator(OperatorSubtaskState(keyed=(keyed_handle(0, 255),)), groups=256))
    graph = graph_of(1)
    adopt_max_parallelism(graph, old)
    assert graph.vertices[VertexId("Map")].max_parallelism == 256
    graph = graph_of(1)
    graph.vertices[VertexId("Map")].is_max_parallelism_set = True
    with pytest.raises(ConfigurationError, match=r"uid 'map'.*256 key groups.*max parallelism 128"):
        adopt_max_parallelism(graph, old)
    with pytest.raises(ConfigurationError, match="parallelism 300"):
        adopt_max_parallelism(graph_of(300), old)


def test_a_vertex_that_had_finished_starts_as_finished() -> None:
    graph = with_operators(job_graph({"A": 2, "B": 1}, [("A", "B")]))
    plan = plan_of(graph, operator(None, None, uid="a", is_fully_finished=True))
    assert restored(plan, 1, "A").is_finished
    assert not restored(plan, 0, "B").is_finished


def test_what_had_finished_must_not_read_what_had_not() -> None:
    graph = with_operators(job_graph({"A": 1, "B": 1}, [("A", "B")]))
    with pytest.raises(ConfigurationError, match=r"'B' had finished.*'A', which had not"):
        plan_of(graph, operator(None, uid="b", is_fully_finished=True))


def test_what_had_finished_hears_the_end_again_of_what_only_ends_again() -> None:
    graph = with_operators(job_graph({"A": 1, "B": 1, "C": 1}, [("A", "B"), ("B", "C")]))
    plan = plan_of(
        graph,
        operator(OperatorSubtaskState(), uid="a", is_at_end=True),
        operator(None, uid="b", is_fully_finished=True, is_at_end=True),
        operator(None, uid="c", is_fully_finished=True, is_at_end=True),
    )
    assert not any(restored(plan, 0, name).is_finished for name in "ABC")


def test_operators_of_one_chain_have_finished_together() -> None:
    graph = graph_of(1)
    vertex = graph.vertices[VertexId("Map")]
    vertex.operators += (OperatorInfo(9, "New", "new"),)
    with pytest.raises(ConfigurationError, match=r"uid 'new'.*start_new_chain"):
        plan_of(graph, operator(None, is_fully_finished=True))


def test_a_job_starts_from_a_savepoint() -> None:
    old = checkpoint_of(operator(lists(2), coordinator_state=b"splits"))
    bench = Bench(graph_of(2))
    bench.job = JobMaster(graph_of(2), JobSettings(), 0, (old,))
    assert RestoreCoordinators(7, (("map", b"splits"),)) in bench.start()
    effects = bench.offer("tm1") + bench.offer("tm2")
    restores = [e.deployment.restore for e in effects if isinstance(e, DeployTask)]
    assert [r.checkpoint_id for r in restores] == [7, 7]


# ------------------------------------------------------------------ types of keys


def of_keys(keys: KeyType | None, **more) -> OperatorSubtaskState:
    return OperatorSubtaskState(keyed=(keyed_handle(0, 127),), keys=keys, **more)


def graph_with_keys(keys: KeyType, parallelism: int = 2) -> JobGraph:
    graph = graph_of(parallelism)
    for vertex in graph.vertices.values():
        vertex.operators = tuple(replace(one, keys=keys) for one in vertex.operators)
    return graph


LONG, INT = KeyType.of(Types.LONG()), KeyType.of(Types.INT(), is_int32=True)


@pytest.mark.parametrize(
    ("now", "texts"),
    [
        (KeyType.of(Types.STRING()), ("type LONG", "type STRING")),
        (INT, ("type LONG", "type INT")),
        (KeyType.of(Types.PICKLED_BYTE_ARRAY()), ("type LONG", "type undeclared")),
        (KeyType.of(Types.DOUBLE()), ("type LONG", "type DOUBLE", "allow-int-to-double")),
        (
            KeyType.of(Types.LONG(), namespace="CountWindow"),
            ("windows were of type none", "CountWindow"),
        ),
    ],
)
def test_keys_of_another_type_are_refused_with_the_operator_and_both_types(now, texts):
    with pytest.raises(ConfigurationError) as caught:
        plan_of(graph_with_keys(now), operator(of_keys(LONG)))
    for text in (
        "operator 'Map' (uid 'map')",
        "checkpoint 7",
        *texts,
        "--allow-non-restored-state",
    ):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("former", "now"),
    [(INT, LONG), (KeyType.of(Types.ROW_NAMED(["a"], [Types.INT()])), KeyType.of(
        Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()])
    ))],
)  # fmt: skip
def test_every_subtask_gets_all_of_the_keys_that_move(former, now):
    plan = plan_of(graph_with_keys(now), operator(of_keys(former)))
    for subtask in range(2):
        ((_, share),) = restored(plan, subtask).operators
        assert [(one.first_group, one.last_group) for one in share.keyed] == [(0, 127)]
        assert share.keys.is_rerouted
        assert (share.keys.former, share.keys.present) == (former, now)
        assert "uid 'map'" in share.keys.owner


def test_keys_that_are_widened_but_hashed_as_before_stay():
    former, now = (KeyType.of(Types.TUPLE([one])) for one in (Types.INT(), Types.LONG()))
    plan = plan_of(graph_with_keys(now), operator(of_keys(former)))
    ((_, share),) = restored(plan, 0).operators
    assert not share.keys.is_rerouted


def test_keys_that_move_are_refused_while_data_is_in_flight():
    flying = ChannelStateHandle(None, 0, InlineHandle(b"", 0))
    with pytest.raises(ConfigurationError, match="Begin with a savepoint"):
        plan_of(graph_with_keys(LONG), operator(of_keys(INT, inputs_in_flight=(flying,))))
    plan_of(graph_with_keys(LONG), operator(of_keys(LONG, inputs_in_flight=(flying,))))


@pytest.mark.parametrize("former", [None, KeyType.of(Types.PICKLED_BYTE_ARRAY())])
def test_keys_without_a_type_are_only_checked(former):
    plan = plan_of(graph_with_keys(LONG), operator(of_keys(former)))
    ((_, share),) = restored(plan, 0).operators
    assert (share.keys.former, share.keys.is_rerouted) == (None, False)
    untyped = KeyType.of(Types.PICKLED_BYTE_ARRAY())
    ((_, share),) = restored(
        plan_of(graph_with_keys(untyped), operator(of_keys(former))), 0
    ).operators
    assert share.keys is None


def test_who_starts_empty_while_others_find_their_state_is_told():
    graph = graph_with_keys(LONG)
    new = OperatorInfo(9, "New", "new", keys=LONG)
    for vertex in graph.vertices.values():
        vertex.operators += (new, OperatorInfo(10, "Stateless", "stateless"))
    found = checkpoint_of(operator(of_keys(LONG)))
    assert without_their_state(graph, found) == [new]
    text = empty_start(new, graph, found)
    assert "operator 'New' (uid 'new')" in text
    assert "operator 'Map' (uid 'map')" in text
    assert without_their_state(graph, checkpoint_of(operator(OperatorSubtaskState()))) == []
