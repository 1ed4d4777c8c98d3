import json
from dataclasses import replace

import pytest

from penstock.ops.jobs.diagnosis.history import Since
from penstock.ops.jobs.diagnosis.verdict import verdict_on
from penstock.ops.jobs.diagnosis.watermarks import Stand
from penstock.ops.jobs.views import bottleneck
from penstock.ops.jobs.views.bottleneck import MOST_ROWS, skew
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt


def told_of(counts, vertex_id=SINK, parallelism=None):
    told = ToldJob(parallelism=parallelism or len(counts))
    for subtask, count in enumerate(counts):
        told.moves(attempt(vertex_id, subtask), "RUNNING")
        told.has(attempt(vertex_id, subtask), records_in=count)
    job = told.now_it_is(5)
    answer = skew(job, job.vertex(vertex_id))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    return answer


def test_the_worst_subtask_and_its_key_groups():
    answer = told_of([100, 900, 100, 130])
    rows = answer.pop("subtasks")
    assert answer == {
        "now": BEGAN + 5,
        "id": SINK,
        "name": "Reduce -> Sink: <out>",
        "parallelism": 4,
        "max-parallelism": 128,
        "keyed": True,
        "records": 1230,
        "usual": 100,
        "factor": 9.0,
        "quantiles": answer["quantiles"],
        "total": 4,
        "reported": 4,
        "shown": 4,
        "why": {},
    }
    quantiles = answer["quantiles"]
    assert (quantiles["min"], quantiles["median"], quantiles["max"]) == (100, 115, 900)
    assert [one["subtask"] for one in rows] == [1, 3, 0, 2]
    assert rows[0] == {
        "subtask": 1,
        "attempt": 0,
        "running-since": BEGAN,
        "records": 900,
        "factor": 9.0,
        "key-groups": {"first": 32, "last": 63, "records-each": 28.125},
    }


def test_key_groups_are_as_flink_assigns_them():
    """128 groups on 3 subtasks: 0 to 42, 43 to 85, 86 to 127."""
    rows = sorted(told_of([1, 1, 1])["subtasks"], key=lambda one: one["subtask"])
    found = [(one["key-groups"]["first"], one["key-groups"]["last"]) for one in rows]
    assert found == [(0, 42), (43, 85), (86, 127)]


@pytest.mark.parametrize(
    ("counts", "parallelism", "why", "names"),
    [
        ([], 2, "no subtask has reported yet", {"records", "usual", "factor", "quantiles"}),
        ([5], 1, "it has one subtask only", {"usual", "factor"}),
        ([0, 0], 2, "no subtask has got records yet", {"factor"}),
    ],
)
def test_a_figure_that_is_not_known_has_a_reason(counts, parallelism, why, names):
    answer = told_of(counts, parallelism=parallelism)
    assert {name: answer[name] for name in names} == dict.fromkeys(names)
    assert answer["why"] == dict.fromkeys(names, why)


def test_a_vertex_without_keys_has_no_key_groups():
    answer = told_of([1, 2], SOURCE)
    assert (answer["keyed"], answer["subtasks"][0]["key-groups"]) == (False, None)
    assert answer["why"]["key-groups"].startswith("its input is not sent by key")


def test_of_many_subtasks_the_worst_are_told():
    answer = told_of(list(range(MOST_ROWS + 20)))
    assert (answer["total"], answer["shown"], answer["records"]) == (220, 200, 24_090)
    assert answer["subtasks"][-1]["records"] == 20


def sick():
    told = ToldJob().status("RUNNING").runs().triggers(1)
    told.has(attempt(), backpressured_ms_per_s=900.0, watermark_ms=5)
    return told.has(attempt(SINK, 1), busy_ms_per_s=990.0, records_in=5000).now_it_is(100)


def test_the_answer_names_vertices_and_subtasks():
    job = sick()
    told = bottleneck.bottleneck(job, verdict_on(job, Since({SINK: job.now_ms - 1})))
    assert told["limit"]["vertex-id"] == SINK
    assert told["limit"]["since"] == job.now_ms - 1
    assert [one["vertex-id"] for one in told["skewed"]] == [SINK]
    assert told["sentences"][0] == told["sentence"]
    assert not told["healthy"]
    assert (told["watermark"]["vertex-id"], told["watermark"]["lag"]) == (SOURCE, job.now_ms - 5)
    assert (told["checkpoint"]["missing"], told["checkpoint"]["after"]) == (True, 100)
    assert told["vertices"][SINK]["busiest-subtask"] == 1
    assert json.loads(json.dumps(told)) == told


def test_a_healthy_job_has_nothing_to_tell():
    job = ToldJob().now_it_is()
    told = bottleneck.bottleneck(job, verdict_on(job, Since()))
    assert (told["limit"], told["watermark"], told["checkpoint"]) == (None, None, None)
    assert told["restarts"] is None


def test_a_source_without_a_watermark_has_no_lag():
    told = ToldJob().status("RUNNING").runs().has(attempt(), watermark_ms=5)
    job = told.has(attempt(SOURCE, 1)).has(attempt(SINK)).now_it_is()
    since = Since(watermarks={SINK: Stand(-(2**63), job.now_ms - 1000)})
    holder = bottleneck.bottleneck(job, verdict_on(job, since))["watermark"]
    assert (holder["held"], holder["subtask"], holder["lag"]) == (True, 1, None)


def test_subtasks_are_ranked_and_the_rest_is_counted():
    told = bottleneck.top(sick(), "busyTimeMsPerSecond", 1)
    assert told["total"] == 2
    assert [(one["vertex-id"], one["subtask"]) for one in told["subtasks"]] == [(SINK, 1)]


def test_limits_of_other_branches_are_told_beside_the_first():
    job = sick()
    verdict = verdict_on(job, Since())
    told = bottleneck.bottleneck(job, replace(verdict, further_limits=(verdict.limit,)))
    assert told["further-limits"] == [told["limit"]]
    assert bottleneck.bottleneck(job, verdict)["further-limits"] == []
