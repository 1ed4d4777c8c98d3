"""The first screen of a job: what is known is told, and what is not has a reason."""

import json
from dataclasses import replace

import pytest

from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.record import JobRecord
from penstock.ops.jobs.snapshots import ElasticFacts, InputFacts
from penstock.ops.jobs.views import graph
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt, facts

RATES = {
    "records_in_per_s": 5.0,
    "records_out_per_s": 7.25,
    "bytes_in_per_s": 50.0,
    "bytes_out_per_s": 0.12345,
}


def told_of(job, usage=None):
    read = graph.consumed(job)
    nodes = [
        graph.node(
            job,
            vertex,
            lambda _vertex, subtask: None if usage is None else usage + subtask,
            is_sink=vertex.facts.vertex_id not in read,
        )
        for vertex in job.vertices
    ]
    told = graph.graph(job, nodes)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    return told


def running():
    told = ToldJob().status("RUNNING", after_ms=5).runs()
    told.has(attempt(), busy_ms_per_s=200.0, backpressured_ms_per_s=700.0, idle_ms_per_s=100.0)
    told.has(
        attempt(SINK, 0),
        busy_ms_per_s=10.0,
        idle_ms_per_s=990.0,
        records_in_per_s=3.0,
        watermark_ms=BEGAN - 40,
    )
    return told.has(
        attempt(SINK, 1),
        busy_ms_per_s=990.0,
        idle_ms_per_s=10.0,
        watermark_ms=BEGAN,
        buffers_in=3,
        buffers_out=2,
        late_records_dropped=4,
        records_in=70,
        bytes_in=700,
        **RATES | {"records_in_per_s": 2.0},
    )


def test_a_vertex_that_has_reported():
    (_, sink) = told_of(running().now_it_is(100), 0.25)["nodes"]
    assert sink == {
        "id": SINK,
        "name": "Reduce -> Sink: <out>",
        "parallelism": 2,
        "max-parallelism": 128,
        "slot-sharing-group": "default",
        "source": False,
        "sink": True,
        "state": "RUNNING",
        "states": {"RUNNING": 2},
        "late-records-dropped": 4,
        "total": {"records-in": 70, "records-out": 0, "bytes-in": 700, "bytes-out": 0},
        "busy": {"min": 0.01, "median": 0.5, "max": 0.99},
        "back-pressured": {"min": 0.0, "median": 0.0, "max": 0.0},
        "idle": {"min": 0.01, "median": 0.5, "max": 0.99},
        "busiest-subtask": 1,
        "queued-in": {"total": 3, "max": 3, "subtask": 1, "pool-usage": 1.25},
        "queued-out": 2,
        "records-in": 5.0,
        "records-out": 7.25,
        "bytes-in": 50.0,
        "bytes-out": 0.123,
        "watermark": BEGAN - 40,
        "watermark-lag": 145,
        "state-bytes": None,
        "why": {"state-bytes": "no checkpoint is complete yet"},
    }


def test_the_head_of_a_job():
    told = running()
    assert told_of(told.now_it_is(100))["job"] == {
        "id": "a" * 32,
        "name": "job",
        "state": "RUNNING",
        "job-type": "STREAMING",
        "start-time": BEGAN,
        "end-time": None,
        "running-since": BEGAN + 5,
        "uptime": 100,
        "restarts": 0,
        "checkpoint-interval": 1000,
    }
    told.status("FAILING").status("RESTARTING")
    head = told_of(told.now_it_is(10))["job"]
    assert (head["running-since"], head["uptime"], head["restarts"]) == (None, None, 1)
    head = told_of(told.status("RUNNING").now_it_is(7))["job"]
    assert (head["running-since"], head["uptime"]) == (BEGAN + 115, 7)
    head = told_of(told.status("FINISHED", after_ms=3).now_it_is(9))["job"]
    assert (head["end-time"], head["uptime"]) == (BEGAN + 125, None)


def test_nothing_is_known_before_the_first_report():
    (source, sink) = told_of(ToldJob().now_it_is())["nodes"]
    figures = {
        "busy", "back-pressured", "idle", "busiest-subtask", "queued-in",
        "queued-out", "records-in", "records-out", "bytes-in", "bytes-out", "watermark",
        "watermark-lag",
    }  # fmt: skip
    for node in (source, sink):
        assert {node[name] for name in figures} == {None}
        reasons = {node["why"][name] for name in figures if name != "queued-in"}
        assert reasons == {"no subtask has reported yet"}
        assert node["states"] == {"CREATED": 2}
    assert (source["source"], source["sink"]) == (True, False)
    assert source["why"]["queued-in"] == "a source has no input from other vertices"
    assert sink["why"]["queued-in"] == "no subtask has reported yet"


def test_a_vertex_that_has_ended_says_so():
    told = running()
    for subtask in range(2):
        told.moves(attempt(SINK, subtask), "FINISHED")
    (_, sink) = told_of(told.now_it_is())["nodes"]
    assert (sink["busy"], sink["records-in"], sink["states"]) == (None, None, {"FINISHED": 2})
    assert sink["why"]["records-in"] == sink["why"]["busy"] == "all its subtasks have ended"


def test_a_source_without_a_watermark():
    (source, _) = told_of(running().now_it_is())["nodes"]
    assert source["watermark"] is source["watermark-lag"] is None
    assert source["why"]["watermark-lag"] == "it has no watermark yet"


def test_the_state_of_the_last_complete_checkpoint():
    job = running().triggers(1).acknowledges(1, attempt(SINK)).ends(1).now_it_is()
    (acked,) = job.checkpoints.latest_completed.acks[SINK]
    last = replace(job.checkpoints.latest_completed, acks={SINK: (replace(acked, state_bytes=77),)})
    job = replace(job, checkpoints=replace(job.checkpoints, latest_completed=last))
    sizes = [node["state-bytes"] for node in told_of(job)["nodes"]]
    assert sizes == [0, 77]


def test_what_comes_by_the_only_input_is_what_flows():
    (edge,) = told_of(running().now_it_is(), 0.25)["edges"]
    assert edge == {
        "source": SOURCE,
        "target": SINK,
        "input": 0,
        "partitioner": "HASH",
        "exchange": "pipelined_bounded",
        "records": 5.0,
        "bytes": 50.0,
        "queued": 3,
        "pool-usage": 1.25,
        "measured-at": "target",
        "why": {},
    }


def with_inputs(*vertices):
    """A job of these vertices: name and the names of those that it reads."""
    ids = {name: VertexId(name * 32) for name, _ in vertices}
    pattern = facts().vertices[0]
    of = tuple(
        replace(
            pattern,
            vertex_id=ids[name],
            name=name,
            inputs=tuple(
                InputFacts(ids[one], "REBALANCE", "pipelined", "data set") for one in reads
            ),
        )
        for name, reads in vertices
    )
    told = ToldJob()
    told.record = JobRecord(replace(facts(), vertices=of))
    return told.runs(vertices=ids.values()), ids


def edges_of(*vertices):
    told, ids = with_inputs(*vertices)
    for vertex_id in ids.values():
        told.has(attempt(vertex_id), buffers_in=1, **RATES)
    return {
        (edge["source"][0], edge["target"][0]): edge for edge in told_of(told.now_it_is())["edges"]
    }


def test_one_of_several_inputs_flows_as_its_source_says():
    """Its source sends nowhere else. How much of the queue is of this input nobody knows."""
    edges = edges_of(("a", ""), ("b", ""), ("c", "ab"))
    for edge in edges.values():
        assert (edge["records"], edge["bytes"]) == (7.25, 0.123)
        assert (edge["measured-at"], edge["queued"]) == ("source", None)
        assert edge["why"]["queued"].startswith("only the sums ")


def test_between_several_outputs_and_several_inputs_nothing_is_known():
    edges = edges_of(("a", ""), ("b", ""), ("c", "ab"), ("d", "a"))
    assert edges["a", "d"]["records"] == 5.0
    assert edges["b", "c"]["records"] == 7.25
    unknown = edges["a", "c"]
    assert (unknown["records"], unknown["bytes"], unknown["measured-at"]) == (None, None, None)
    assert set(unknown["why"]) == {"records", "bytes", "queued", "pool-usage"}


def test_an_answer_about_many_vertices_stays_small():
    """300 vertices of some subtasks: the answer has nothing of single subtasks."""
    names = [f"{number:032x}" for number in range(300)]
    pattern = facts().vertices[1]
    of = tuple(
        replace(
            pattern,
            vertex_id=VertexId(name),
            name=f"operator {name}",
            inputs=tuple(
                InputFacts(VertexId(one), "HASH", "pipelined", "data set") for one in before
            ),
        )
        for name, before in zip(names, [[], *([one] for one in names)], strict=False)
    )
    told = ToldJob()
    told.record = JobRecord(replace(facts(), vertices=of))
    assert len(json.dumps(told_of(told.now_it_is()))) < 500_000


def test_the_head_alone_is_that_of_the_graph():
    job = ToldJob().status("RUNNING").now_it_is()
    known = {"now": job.now_ms, **graph.head(job)}
    assert graph.head_alone(job, may_rescale=True) == known | {"rescalable": True}


@pytest.mark.parametrize(
    ("job", "may", "can"),
    [
        (ToldJob().status("RUNNING"), True, True),
        (ToldJob().status("RUNNING"), False, False),
        (ToldJob().status("FINISHED"), True, False),
        (ToldJob(job_type=JobType.BATCH), True, False),
        (ToldJob(elastic=ElasticFacts(AdaptiveSettings(is_reactive=True))), True, False),
    ],
)
def test_what_can_be_rescaled_from_the_dashboard(job, may, can):
    told = graph.head_alone(job.now_it_is(), may_rescale=may)
    assert told["rescalable"] is can
