"""From reports of tasks to samples. Source: docs/spec/autoscaler.md#measurements; the figures are summed by hand."""

from penstock.engine.model.ids import ResourceId, VertexId
from penstock.engine.model.job_events import TaskManagerLost
from penstock.engine.model.messages import RegisterTaskManager, TaskIo
from penstock.engine.model.states import ExecutionState
from penstock.ops.autoscaler.autoscaling import _sample, memory_of, room_of
from penstock.ops.autoscaler.rules.samples import ClusterRoom, MemorySample, Topology, VertexSample
from penstock.ops.jobs.snapshots import AttemptSnapshot, InputFacts, VertexFacts, VertexSnapshot
from tests.tools.observation.job_records import ToldJob, io_of

SOURCE = VertexFacts(VertexId("a"), "source", 2, 128, "default", (), ())
COUNT = VertexFacts(
    VertexId("b"),
    "count",
    2,
    64,
    "other",
    (),
    (InputFacts(VertexId("a"), "HASH", "pipelined", "data set"),),
)
FIRST = io_of(
    records_in=10, records_out=30, busy_ms=400, busy_ms_per_s=700.0, backpressured_ms_per_s=50.0
)
SECOND = io_of(
    records_in=5, records_out=12, busy_ms=100, busy_ms_per_s=200.0, backpressured_ms_per_s=90.0
)


class Reported:
    """Metrics of the job's tasks and processes."""

    def __init__(self, pending=0, partitions=None, **processes):
        self.pending = pending
        self.known = partitions
        self.processes = processes

    def pending_records(self, _vertex):
        return self.pending

    def partitions(self, _vertex):
        return self.known

    def process(self, tm_id):
        return self.processes.get(tm_id.partition("-")[0], {})


def vertex(facts, *ios, state=ExecutionState.RUNNING):
    attempts = tuple(AttemptSnapshot(place, 0, state, ()) for place in range(len(ios)))
    return VertexSnapshot(facts, attempts, ios)


def test_counts_are_summed_and_shares_are_of_the_worst_subtask():
    assert _sample(vertex(COUNT, FIRST, SECOND), Reported(7)) == VertexSample(
        2, 700.0, 200.0, 500, 90.0, 15, 42
    )


def test_a_source_has_records_that_wait_and_counts_what_it_makes():
    made = TaskIo(records_out=42)
    found = _sample(vertex(SOURCE, made, TaskIo()), Reported(7))
    assert (found.pending_records, found.records_in) == (7, 42)


def test_a_vertex_that_has_not_reported_is_left_out_and_a_finished_one_is_told():
    assert _sample(vertex(COUNT, FIRST, None), Reported(0)) is None
    done = vertex(COUNT, FIRST, SECOND, state=ExecutionState.FINISHED)
    assert _sample(done, Reported(0)).is_finished


def test_the_topology_knows_hash_inputs_and_sharing_groups():
    found = Topology([SOURCE, COUNT])
    assert found.is_source(SOURCE.vertex_id)
    assert found.is_keyed(COUNT.vertex_id)
    assert found.slots({SOURCE.vertex_id: 2, COUNT.vertex_id: 3}) == 5


def test_partitions_are_those_of_sources():
    assert _sample(vertex(SOURCE, FIRST), Reported(partitions=12)).partitions == 12
    assert _sample(vertex(COUNT, FIRST), Reported(partitions=12)).partitions is None


USED, MOST = "Status.JVM.Memory.Heap.Used", "Status.JVM.Memory.Heap.Max"
GARBAGE = "Status.JVM.GarbageCollector.All.TimeMsPerSecond"


def taskmanagers(*ones, lost=()):
    """(name, slots, cores) of each."""
    told = ToldJob()
    for name, slots, cores in ones:
        registered = RegisterTaskManager(ResourceId(name), "h", 1, slots, 1, 2, "3.11", cores=cores)
        told.tell(registered)
    for name in lost:
        told.tell(TaskManagerLost(ResourceId(name), "killed"))
    return told.now_it_is()


def test_the_fullest_taskmanager_that_is_there_decides_on_memory():
    job = taskmanagers(("a", 1, 1), ("b", 1, 1), ("c", 1, 1), lost=["c"])
    told = Reported(
        a={USED: 50, MOST: 100, GARBAGE: 300.0},
        b={USED: 80, MOST: 100, GARBAGE: 20.0},
        c={USED: 99, MOST: 100, GARBAGE: 900.0},
    )
    assert memory_of(job, told) == MemorySample(0.3, 0.8)
    assert memory_of(job, Reported()) == MemorySample(None, None)
    assert memory_of(job, Reported(a={USED: 50, MOST: -1})).heap_usage is None


def test_a_slot_takes_its_share_of_the_taskmanager_that_takes_most():
    job = taskmanagers(("a", 2, 4), ("b", 1, 1))
    told = Reported(a={USED: 100}, b={USED: 40})
    assert room_of(job, told, 7) == ClusterRoom(7, 2.0, 50)
    assert room_of(taskmanagers(), Reported(), None) == ClusterRoom(None, 1.0, 0)
