import json
from dataclasses import replace

from penstock.ops.jobs.diagnosis.history import Since
from penstock.ops.jobs.diagnosis.verdict import verdict_on
from penstock.ops.jobs.diagnosis.watermarks import Stand
from penstock.ops.jobs.views import bottleneck
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt


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
