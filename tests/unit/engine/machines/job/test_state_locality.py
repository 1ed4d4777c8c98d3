"""Where the subtasks of a new generation go: near their keyed state, by docs/spec/elasticity.md#slot-assignment."""

import pytest

from penstock.engine.machines.job.handover_changes import former_assignment
from penstock.engine.model.checkpoints import (
    CheckpointType,
    CompletedCheckpoint,
    OperatorCheckpoint,
    OperatorSubtaskState,
)
from penstock.engine.model.key_groups import key_group_range
from tests.tools.machines.checkpoint_bench import keyed_handle
from tests.tools.machines.generation_bench import GenerationBench
from tests.tools.machines.job_graphs import A2A, job_graph

KEY_GROUPS = 128


def keyed_job(parallelism):
    graph = job_graph({"Source": 1, "Keyed": parallelism}, [("Source", "Keyed", A2A)])
    graph.vertices["Keyed"].max_parallelism = KEY_GROUPS
    return graph


def owners(bench):
    """The slot of each key group."""
    found = {}
    vertices = [one for one in bench.job.state.graph.vertices if one.vertex_id.vertex_id == "Keyed"]
    for vertex in vertices:
        first, last = key_group_range(KEY_GROUPS, len(vertices), vertex.vertex_id.subtask)
        found |= dict.fromkeys(range(first, last + 1), vertex.execution.allocation_id)
    assert len(found) == KEY_GROUPS
    return found


def share_that_stays(before, after):
    bench = GenerationBench(graph=keyed_job(before), is_local_recovery=True)
    bench.begin(*(f"tm{number}" for number in range(before)))
    was = owners(bench)
    bench.rescale(Source=(1, 1), Keyed=(1, after))
    bench.offer("new", after - before)
    bench.hand_over()
    now = owners(bench)
    assert len(set(now.values())) == after
    return round(100 * sum(now[one] == slot for one, slot in was.items()) / KEY_GROUPS)


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [(2, 3, 66), (2, 4, 50), (4, 5, 70), (4, 6, 67), (4, 8, 50), (8, 10, 69), (16, 17, 75)],
)
def test_so_much_state_stays_when_a_job_grows(before, after, percent):
    """Its table, by score."""
    assert share_that_stays(before, after) == percent


def test_without_local_recovery_nobody_has_kept_the_state_so_slots_are_taken_as_they_come():
    bench = GenerationBench(graph=keyed_job(2))
    bench.begin("tm0", "tm1")
    bench.rescale(Source=(1, 1), Keyed=(1, 4))
    bench.offer("new", 2)
    bench.hand_over()
    assert bench.job.state.slots.shared_slots.planned == {}


def test_the_bytes_of_a_vertex_are_those_of_its_keyed_state():
    bench = GenerationBench(graph=keyed_job(2))
    bench.begin("tm0", "tm1")
    (operator,) = bench.job.job_graph.vertices["Keyed"].operators
    handles = [keyed_handle(0, 63), keyed_handle(64, 127)]
    states = tuple(OperatorSubtaskState(keyed=(handle,)) for handle in handles)
    stored = OperatorCheckpoint(operator.uid, "Keyed", 2, KEY_GROUPS, states)
    latest = CompletedCheckpoint(
        1, bench.job.job_graph.job_id, CheckpointType.CHECKPOINT, 0, (stored,)
    )
    found = former_assignment(bench.job.state.graph, latest)
    assert found.state_bytes == {
        "Source": 0,
        "Keyed": sum(handle.handle.size for handle in handles),
    }
    assert found.parallelism == {"Source": 1, "Keyed": 2}
    assert {place.host for place in found.places.values()} == {"host-tm0", "host-tm1"}
