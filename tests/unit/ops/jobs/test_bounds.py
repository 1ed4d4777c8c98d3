"""Answers about 9,900 subtasks of 300 vertices: each is of a size that a page can ask for every 2 s."""

import json
from dataclasses import replace

import pytest

from penstock.engine.model.ids import AllocationId, ResourceId, TaskManagerLocation, VertexId
from penstock.engine.model.job_events import TaskDeployed
from penstock.engine.model.messages import RegisterTaskManager, TaskIoReported
from penstock.ops.jobs.record import JobRecord
from penstock.ops.jobs.snapshots import InputFacts
from penstock.ops.jobs.vertex_history import JobLanes
from penstock.ops.jobs.views import bottleneck, checkpoints, graph, lanes, timeline
from penstock.ops.jobs.views.rows import answer_of
from penstock.ops.jobs.views.slots import slot_map
from penstock.ops.jobs.views.table import Table
from penstock.ops.metrics.history_rings import STEPS
from tests.tools.observation.job_records import ToldJob, attempt, facts, io_of

VERTICES, PARALLELISM, SLOTS = 300, 33, 4
MOST_BYTES = 500_000


def facts_of_chain():
    """Each vertex reads the one before it by key."""
    pattern = facts(PARALLELISM).vertices[1]
    ids = [VertexId(f"{number:032x}") for number in range(VERTICES)]
    inputs = [
        (),
        *((InputFacts(one, "HASH", "pipelined_bounded", "data set"),) for one in ids[:-1]),
    ]
    name = "an operator with a name of a usual length -> and another one"
    return tuple(
        replace(pattern, vertex_id=one, name=name, inputs=read)
        for one, read in zip(ids, inputs, strict=True)
    )


@pytest.fixture(scope="module")
def job():
    """Everybody runs, has reported, and has acknowledged a checkpoint."""
    told = ToldJob()
    told.record = JobRecord(replace(facts(), vertices=facts_of_chain()))
    told.status("RUNNING")
    for number in range(-(-PARALLELISM // SLOTS)):
        name = ResourceId(f"tm-{number}")
        told.tell(RegisterTaskManager(name, f"host-{number}", 5001, SLOTS, 1, 2, "3.12"))
    attempts = [
        attempt(one.vertex_id, subtask)
        for one in told.record.facts.vertices
        for subtask in range(PARALLELISM)
    ]
    for one in attempts:
        number = one.subtask // SLOTS
        place = TaskManagerLocation(ResourceId(f"tm-{number}"), f"host-{number}", 5001)
        told.moves(one, "SCHEDULED", "DEPLOYING")
        told.tell(TaskDeployed(one, place, AllocationId(f"{one.subtask:032x}")))
        told.moves(one, "INITIALIZING", "RUNNING")
    counts = {"records_in": 10**9, "records_out": 10**9, "bytes_in": 10**12}
    io = io_of(**counts, busy_ms_per_s=333.3, idle_ms_per_s=666.7)
    told.tell(TaskIoReported(tuple((one, io) for one in attempts), 0)).triggers(1)
    for one in attempts:
        told.acknowledges(1, one)
    return told.ends(1).now_it_is(5)


def size(answer):
    return len(json.dumps(answer, default=list))


def test_the_graph(job):
    nodes = [graph.node(job, one, lambda *_: 0.123, is_sink=False) for one in job.vertices]
    assert size(graph.graph(job, nodes)) < MOST_BYTES


def test_the_slots(job):
    told = answer_of(slot_map([job], job.now_ms, "http://localhost:4040"))
    assert told["total"] == 36
    assert {slot["total"] for box in told["taskmanagers"] for slot in box["slots"]} == {300}
    assert size(told) < MOST_BYTES


def test_the_states_over_time(job):
    told = timeline.timeline(job)
    assert sum(lane["shown"] for lane in told["vertices"]) <= timeline.MOST_SPANS
    assert size(told) < MOST_BYTES
    assert size(timeline.of_vertex(job, job.vertices[0], None)) < MOST_BYTES


def test_a_checkpoint(job):
    told = answer_of(checkpoints.gantt(job, job.checkpoints.latest_completed, job.vertices))
    assert (told["total"], told["shown"]) == (VERTICES * PARALLELISM, 200)
    assert size(told) < MOST_BYTES
    assert size(checkpoints.strip(job)) < MOST_BYTES


def test_a_vertex(job):
    vertex = job.vertices[1]
    table = Table(job, vertex)
    assert list(table.measure()) == []
    assert size(table.page(0, 200, "busy", is_descending=True)) < MOST_BYTES
    assert size(bottleneck.skew(job, vertex)) < MOST_BYTES


def test_ten_minutes_of_a_wide_vertex():
    told, history = ToldJob(parallelism=1_000), JobLanes(lambda _subtasks: True)
    for subtask in range(1_000):
        one = attempt(subtask=subtask)
        told.moves(one, "RUNNING").has(one, busy_ms_per_s=1000.0, backpressured_ms_per_s=1000.0)
    for _ in range(STEPS):
        job = told.now_it_is(2_000)
        for _ in history.look(job):
            pass
    vertex = job.vertices[0]
    steps = history.vertices[vertex.facts.vertex_id].steps(job.now_ms + 1)
    told = lanes.lanes(job, vertex, steps, "busy")
    assert (len(told["timestamps"]), len(told["subtasks"])) == (STEPS, 200)
    assert size(told) < 2 * MOST_BYTES  # Asked for once; later with `since`.
