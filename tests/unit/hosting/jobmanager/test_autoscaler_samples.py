"""From reports of tasks to samples. Source: docs/spec/autoscaler.md#measurements; the figures are summed by hand."""

from penstock.hosting.jobmanager.autoscaler_samples import _sample, topology_of
from penstock.machines.autoscaler.samples import VertexSample
from penstock.model.ids import VertexId
from penstock.model.messages import TaskIo
from penstock.model.states import ExecutionState
from penstock.observation.jobs.snapshots import (
    AttemptSnapshot,
    InputFacts,
    VertexFacts,
    VertexSnapshot,
)

SOURCE = VertexFacts(VertexId("a"), "source", 2, 128, "default", (), ())
COUNT = VertexFacts(
    VertexId("b"), "count", 2, 64, "other", (), (InputFacts(VertexId("a"), "HASH", "pipelined"),)
)
FIRST = TaskIo(
    records_in=10, records_out=30, busy_ms=400, busy_ms_per_s=700.0, backpressured_ms_per_s=50.0
)
SECOND = TaskIo(
    records_in=5, records_out=12, busy_ms=100, busy_ms_per_s=200.0, backpressured_ms_per_s=90.0
)


def vertex(facts, *ios, state=ExecutionState.RUNNING):
    attempts = tuple(AttemptSnapshot(place, 0, state, ()) for place in range(len(ios)))
    return VertexSnapshot(facts, attempts, ios)


def test_counts_are_summed_and_shares_are_of_the_worst_subtask():
    assert _sample(vertex(COUNT, FIRST, SECOND), lambda _one: 7) == VertexSample(
        2, 700.0, 200.0, 500, 90.0, 15, 42
    )


def test_a_source_has_records_that_wait_and_counts_what_it_makes():
    made = TaskIo(records_out=42)
    found = _sample(vertex(SOURCE, made, TaskIo()), lambda _one: 7)
    assert (found.pending_records, found.records_in) == (7, 42)


def test_a_vertex_that_has_not_reported_is_left_out_and_a_finished_one_is_told():
    assert _sample(vertex(COUNT, FIRST, None), lambda _one: 0) is None
    done = vertex(COUNT, FIRST, SECOND, state=ExecutionState.FINISHED)
    assert _sample(done, lambda _one: 0).is_finished


def test_the_topology_knows_hash_inputs_and_sharing_groups():
    found = topology_of([SOURCE, COUNT])
    assert found.is_source(SOURCE.vertex_id)
    assert found.is_keyed(COUNT.vertex_id)
    assert found.slots({SOURCE.vertex_id: 2, COUNT.vertex_id: 3}) == 5
