from dataclasses import replace

import pytest

from penstock.engine.model.graph.job_graph import (
    FieldsRead,
    FunctionStrategy,
    OperatorInfo,
    SelectorStrategy,
)
from penstock.ops.jobs.views import vertices
from penstock.ops.jobs.views.vertices import OF_A_PAGE, pressure
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt


def told_of(job, vertex_id=SOURCE, page=0):
    snapshot = job.now_it_is()
    return pressure(snapshot, snapshot.vertex(vertex_id), page)


@pytest.mark.parametrize(
    ("blocked_ms", "level"),
    [(0, "ok"), (100, "ok"), (100.5, "low"), (500, "low"), (501, "high"), (1000, "high")],
)
def test_up_to_a_tenth_is_ok_and_above_the_half_is_high(blocked_ms, level):
    job = ToldJob().runs().has(attempt(), backpressured_ms_per_s=blocked_ms)
    told = told_of(job)
    assert (told["level"], told["subtasks"][0]["level"]) == (level, level)
    assert told["levels"][level] == sum(told["levels"].values()) == 1


def test_the_worst_come_first_and_those_that_have_not_reported_are_counted():
    job = ToldJob(parallelism=4).runs(parallelism=4)
    for subtask, blocked_ms in enumerate((50, 700, 300)):
        job.has(
            attempt(subtask=subtask),
            backpressured_ms_per_s=blocked_ms,
            busy_ms_per_s=10,
            idle_ms_per_s=20,
            buffers_out=3,
        )
    told = told_of(job)
    assert [one["subtask"] for one in told["subtasks"]] == [1, 2, 0]
    assert told["subtasks"][0] == {
        "subtask": 1, "attempt": 0, "endpoint": "host-a:5001", "level": "high",
        "back-pressured": 0.7, "busy": 0.01, "idle": 0.02, "queued-out": 3,
    }  # fmt: skip
    assert (told["level"], told["total"], told["unknown"]) == ("high", 3, 1)
    assert told["levels"] == {"ok": 1, "low": 1, "high": 1}


def test_a_vertex_of_which_nothing_runs_has_no_level():
    job = ToldJob().runs().has(attempt(SINK), backpressured_ms_per_s=900)
    assert told_of(job)["level"] is None
    job.moves(attempt(SINK), "FINISHED")
    assert (told_of(job, SINK)["level"], told_of(job, SINK)["unknown"]) == (None, 2)


def test_many_subtasks_come_page_by_page():
    count = OF_A_PAGE * 2 + 1
    job = ToldJob(parallelism=count).runs(parallelism=count)
    for subtask in range(count):
        job.has(attempt(subtask=subtask), backpressured_ms_per_s=subtask)
    first, last = told_of(job), told_of(job, page=99)
    assert [one["subtask"] for one in first["subtasks"]] == list(range(count - 1, OF_A_PAGE, -1))
    assert (last["page"], last["pages"], len(last["subtasks"])) == (2, 3, 1)


@pytest.mark.parametrize(
    ("ratio", "level"), [(0, "ok"), (0.10, "ok"), (0.11, "low"), (0.5, "low"), (0.51, "high")]
)
def test_levels_of_back_pressure(ratio, level):
    """Source: Flink JobVertexDetailsInfo, JobVertexBackPressureInfo."""
    assert vertices.level_of(ratio) == level


def test_the_worst_subtask_decides_the_level_of_its_vertex():
    told = ToldJob().runs().has(attempt(), backpressured_ms_per_s=900.0)
    job = told.has(attempt(subtask=1), backpressured_ms_per_s=20.0).now_it_is()
    answer = vertices.backpressure(job, job.vertices[0])
    assert answer["backpressure-level"] == "high"
    assert [one["backpressure-level"] for one in answer["subtasks"]] == ["high", "ok"]


def test_before_the_first_report_nothing_is_known_of_back_pressure():
    job = ToldJob().runs().now_it_is()
    assert vertices.backpressure(job, job.vertices[0]) == {"status": "deprecated", "subtasks": []}


def test_a_subtask_that_has_ended_is_not_busy():
    told = ToldJob().runs().has(attempt(), busy_ms_per_s=1000.0).moves(attempt(), "FINISHED")
    job = told.now_it_is()
    assert vertices.backpressure(job, job.vertices[0])["subtasks"][0]["busyRatio"] == 0


def test_sources_have_no_watermark_of_an_input():
    told = ToldJob().runs().has(attempt(), watermark_ms=5)
    job = told.has(attempt(SINK, 1), watermark_ms=7).now_it_is()
    assert vertices.watermarks(job.vertices[0]) == []
    assert vertices.watermarks(job.vertices[1]) == [{"id": "1.currentInputWatermark", "value": "7"}]


def test_former_attempts_are_answered_as_long_as_they_are_remembered():
    told = ToldJob().runs().moves(attempt(), "FAILED").moves(attempt(number=1), "SCHEDULED")
    job = told.now_it_is()
    vertex = job.vertices[0]
    assert vertices.attempt(job, vertex, 0, 0)["status"] == "FAILED"
    assert vertices.attempt(job, vertex, 0, 1)["status"] == "SCHEDULED"
    assert vertices.attempt(job, vertex, 0, 2) is None
    assert vertices.attempt_accumulators(vertex, 0, 1)["user-accumulators"] == []
    assert vertices.attempt_accumulators(vertex, 0, 2) is None


def test_subtasks_are_grouped_by_their_taskmanager():
    told = ToldJob().moves(attempt(), "SCHEDULED", "DEPLOYING").deployed(attempt())
    job = told.now_it_is()
    there, nowhere = vertices.taskmanagers(job, job.vertices[0])["taskmanagers"]
    assert (there["endpoint"], there["status-counts"]["DEPLOYING"]) == ("host-a:5001", 1)
    assert (nowhere["endpoint"], nowhere["taskmanager-id"]) == ("(unassigned)", "(unassigned)")


def test_times_of_states_are_zero_where_they_were_not_reached():
    told = ToldJob().moves(attempt(SOURCE), "SCHEDULED", after_ms=4)
    (first, second) = vertices.times(told.now_it_is(6), told.now_it_is().vertices[0])["subtasks"]
    assert (first["duration"], first["timestamps"]["RUNNING"]) == (6, 0)
    assert second["duration"] == -1


def test_a_vertex_tells_how_its_row_functions_run():
    vertex = ToldJob().runs().now_it_is().vertices[0]
    assert vertices.functions(vertex) == {"functions": []}
    functions = FunctionStrategy("fields", "it has a loop"), FunctionStrategy("columns")
    operators = [
        OperatorInfo(at, f"Op{at}", f"uid{at}", "job.py:1", function=one)
        for at, one in enumerate(functions)
    ]
    selectors = (SelectorStrategy("columns", "", "job.py:9"),)
    operators[1] = replace(operators[1], reads=FieldsRead(("a", "b"), 3))
    operators.append(OperatorInfo(2, "Op2", "uid2", "job.py:2", selectors=selectors))
    facts = replace(vertex.facts, operators=tuple(operators))
    assert vertices.functions(replace(vertex, facts=facts)) == {
        "functions": [
            {
                "operator": "Op0",
                "kind": "function",
                "defined-at": "job.py:1",
                "strategy": "fields",
                "why-not-columns": "it has a loop",
            },
            {
                "operator": "Op1",
                "kind": "source",
                "defined-at": "job.py:1",
                "fields-parsed": ["a", "b"],
                "fields-declared": 3,
                "why-all-fields": "",
            },
            {
                "operator": "Op1",
                "kind": "function",
                "defined-at": "job.py:1",
                "strategy": "columns",
                "why-not-columns": "",
            },
            {
                "operator": "Op2",
                "kind": "key selector",
                "defined-at": "job.py:9",
                "strategy": "columns",
                "why-not-columns": "",
            },
        ]
    }
