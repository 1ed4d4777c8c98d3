"""Figures of vertices once a second, of what their subtasks report."""

import math

import pytest

from penstock.engine.model.ids import ExecutionVertexId
from penstock.engine.model.messages import ResetSubtasks
from penstock.ops.jobs.vertex_history import JobHistory, JobLanes
from penstock.ops.metrics.history_rings import FIGURES, FINE, UNKNOWN
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt


def look(lanes, told, after_ms=2_000):
    """How often the caller could do something else."""
    return sum(1 for _ in lanes.look(told.now_it_is(after_ms)))


def newest(lanes, told, vertex_id=SOURCE):
    step = lanes.vertices[vertex_id].steps(told.now)[-1]
    return list(step.busy), list(step.blocked)


def everything():
    return JobLanes(lambda _subtasks: True)


def test_shares_are_of_the_time_between_two_reports():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    one = attempt()
    told.has(one, busy_ms=100, idle_ms=100, busy_ms_per_s=500.0, backpressured_ms_per_s=10.0)
    look(lanes, told)
    assert newest(lanes, told) == ([50, UNKNOWN], [1, UNKNOWN])
    told.has(one, busy_ms=100 + 600, idle_ms=100 + 100, backpressured_ms=300, busy_ms_per_s=5.0)
    look(lanes, told)
    assert newest(lanes, told) == ([60, UNKNOWN], [30, UNKNOWN])


def test_without_a_new_report_the_last_one_counts():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    told.has(attempt(), busy_ms=100, busy_ms_per_s=700.0)
    for _ in range(2):
        look(lanes, told)
        assert newest(lanes, told)[0][0] == 70


def test_another_attempt_is_not_compared_and_one_that_ended_is_not_known():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    told.has(attempt(), busy_ms=5_000)
    look(lanes, told)
    told.moves(attempt(), "FAILED")
    look(lanes, told)
    assert newest(lanes, told)[0][0] == UNKNOWN
    told.tell(ResetSubtasks((ExecutionVertexId(SOURCE, 0),), is_global=False, checkpoint_id=None))
    told.moves(attempt(number=1), "RUNNING").has(attempt(number=1), busy_ms=1, busy_ms_per_s=200.0)
    look(lanes, told)
    assert newest(lanes, told)[0][0] == 20


def test_two_looks_within_a_step_are_one():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    look(lanes, told)
    told.has(attempt(), busy_ms_per_s=700.0)
    look(lanes, told, after_ms=1)
    assert newest(lanes, told)[0][0] == UNKNOWN


def test_vertices_without_room_have_no_lanes():
    told, asked = ToldJob(parallelism=3), []
    lanes = JobLanes(lambda subtasks: asked.append(subtasks) or len(asked) == 1)
    look(lanes, told)
    assert (list(lanes.vertices), asked, lanes.subtasks) == ([SOURCE], [3, 3], 3)


def test_a_caller_can_do_something_else_between_subtasks():
    told = ToldJob(parallelism=1_250)
    assert look(everything(), told) == 4


def test_a_job_that_has_ended_is_not_looked_at():
    lanes = everything()
    look(lanes, ToldJob().status("FINISHED"))
    assert lanes.vertices == {}


def test_a_vertex_is_compared_with_what_it_was_some_seconds_ago():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    look(lanes, told)
    first = told.now_it_is().vertex(SOURCE)
    assert lanes.before(SOURCE) is first  # There is no earlier one yet.
    told.has(attempt(), records_in=1)
    look(lanes, told)
    second = told.now_it_is().vertex(SOURCE)
    assert lanes.before(SOURCE) is first
    look(lanes, told)
    assert lanes.before(SOURCE) is second


class Looked(ToldJob):
    def __init__(self, most=10, **more) -> None:
        super().__init__(**more)
        self.history = JobHistory(lambda: len(self.history.vertices) < most)

    def look(self, after_ms=0):
        self.steps = len(list(self.history.look(self.now_it_is(after_ms))))
        return self

    def newest(self, vertex_id=SINK):
        """The figures by name."""
        rows = list(self.history.vertices[vertex_id].of(FINE).rows(self.now))
        return dict(zip(FIGURES, rows[-1][1], strict=True)) if rows else {}

    def count(self, vertex_id=SINK):
        return len(list(self.history.vertices[vertex_id].of(FINE).rows(self.now)))


def test_rates_are_of_the_time_between_two_reports():
    """Reports come each 500 ms, and not when somebody looks."""
    job = Looked().runs()
    for subtask, records in ((0, 100), (1, 50)):
        job.has(attempt(SINK, subtask), records_in=records, bytes_out=records * 10)
    job.look()
    assert math.isnan(job.newest()["numRecordsInPerSecond"])
    job.now += 500
    job.has(attempt(SINK, 0), records_in=200, bytes_out=2_000)
    job.has(attempt(SINK, 1), records_in=60, bytes_out=600)
    job.look(after_ms=600)
    assert job.newest()["numRecordsInPerSecond"] == pytest.approx(200 + 20)
    assert job.newest()["numBytesOutPerSecond"] == pytest.approx(2_000 + 200)
    assert job.newest()["numRecordsOutPerSecond"] == 0


def test_a_subtask_that_has_not_reported_again_counts_as_the_others():
    job = Looked().runs()
    job.has(attempt(SINK, 0), records_in=0).has(attempt(SINK, 1), records_in=0).look()
    job.now += 1_000
    job.has(attempt(SINK, 0), records_in=30).look()
    assert job.newest()["numRecordsInPerSecond"] == pytest.approx(60)


def test_the_next_attempt_of_a_subtask_has_no_rate_of_its_first_report():
    job = Looked(parallelism=1).runs(parallelism=1)
    job.has(attempt(SINK), records_in=1_000_000).look()
    job.moves(attempt(SINK), "FAILED").runs(vertices=(SINK,), number=1, parallelism=1)
    job.now += 1_000
    job.has(attempt(SINK, 0, 1), records_in=10).look()
    assert math.isnan(job.newest()["numRecordsInPerSecond"])
    job.now += 1_000
    job.has(attempt(SINK, 0, 1), records_in=30).look()
    assert job.newest()["numRecordsInPerSecond"] == pytest.approx(20)


def test_shares_of_time_are_told_as_mean_and_maximum_over_those_that_run():
    job = Looked(parallelism=3).runs(parallelism=3)
    for subtask, busy in enumerate((900.0, 100.0, 500.0)):
        shares = {"busy_ms_per_s": busy, "idle_ms_per_s": 1000 - busy}
        job.has(attempt(SINK, subtask), **shares)
    job.moves(attempt(SINK, 2), "FINISHED").look()
    found = job.newest()
    assert (found["busyTimeMsPerSecond.mean"], found["busyTimeMsPerSecond.max"]) == (500, 900)
    assert (found["idleTimeMsPerSecond.mean"], found["idleTimeMsPerSecond.max"]) == (500, 900)
    assert found["backPressuredTimeMsPerSecond.max"] == 0


def test_shares_of_time_are_those_since_the_report_before():
    """What a report says of itself is a mean over a minute."""
    job = Looked(parallelism=1).runs(parallelism=1)
    minute = {"busy_ms_per_s": 900.0, "idle_ms_per_s": 100.0}
    job.has(attempt(SINK), busy_ms=54_000, idle_ms=6_000, **minute).look()
    assert job.newest()["busyTimeMsPerSecond.mean"] == 900
    job.now += 1_000
    job.has(attempt(SINK), busy_ms=54_100, idle_ms=6_700, backpressured_ms=200, **minute).look()
    found = job.newest()
    assert found["busyTimeMsPerSecond.mean"] == found["busyTimeMsPerSecond.max"] == 100
    assert found["backPressuredTimeMsPerSecond.max"] == 200
    assert found["idleTimeMsPerSecond.max"] == 700


def test_the_lag_is_that_of_the_lowest_watermark():
    job = Looked().runs()
    job.has(attempt(SINK, 0), watermark_ms=job.now - 70)
    job.has(attempt(SINK, 1), watermark_ms=job.now - 4_000).look()
    assert job.newest()["watermarkLag"] == 4_000


@pytest.mark.parametrize("watermark_ms", [-(2**63), 2**63 - 1])
def test_before_the_first_and_after_the_last_watermark_there_is_no_lag(watermark_ms):
    job = Looked().runs().has(attempt(SINK, 0), watermark_ms=watermark_ms).look()
    assert math.isnan(job.newest()["watermarkLag"])


def test_state_and_duration_are_those_of_the_last_completed_checkpoint():
    job = Looked().runs().has(attempt(SINK, 0)).has(attempt(SOURCE, 0)).look()
    assert math.isnan(job.newest()["checkpointDuration"])
    job.now += 1_000
    job.triggers(1).acknowledges(1, attempt(SOURCE, 0), 10).acknowledges(1, attempt(SINK, 0), 30)
    job.ends(1).look()
    assert job.newest(SINK)["checkpointDuration"] == 40
    assert job.newest(SOURCE)["checkpointDuration"] == 10
    assert job.newest(SINK)["stateSize"] == 0


def test_there_is_one_row_a_second_however_often_somebody_looks():
    job = Looked().runs().has(attempt(SINK, 0))
    for _ in range(7):  # From half a second to three and a half.
        job.look(after_ms=500)
    assert job.count() == 4


def test_nothing_is_kept_of_what_has_not_reported_or_has_ended():
    job = Looked().runs().look()
    assert job.newest() == {}
    job.has(attempt(SINK, 0)).status("FINISHED").look(after_ms=5_000)
    assert job.newest() == {}


def test_vertices_without_room_have_no_history():
    job = Looked(most=1).runs().has(attempt(SOURCE, 0)).has(attempt(SINK, 0)).look()
    assert set(job.history.vertices) == {SOURCE}


def test_it_stops_after_each_500_subtasks_for_others_to_run():
    assert Looked(parallelism=10).look().steps == 0
    assert Looked(parallelism=1_200).look().steps == 2 * 2
