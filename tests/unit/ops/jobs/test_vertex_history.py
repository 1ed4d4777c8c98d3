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


def test_shares_are_those_that_subtasks_report():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    told.has(attempt(), busy_ms_per_s=500.0, backpressured_ms_per_s=10.0)
    look(lanes, told)
    assert newest(lanes, told) == ([50, UNKNOWN], [1, UNKNOWN])
    told.has(attempt(), busy_ms_per_s=600.0, backpressured_ms_per_s=300.0)
    look(lanes, told)
    assert newest(lanes, told) == ([60, UNKNOWN], [30, UNKNOWN])


def test_without_a_new_report_the_last_one_counts():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    told.has(attempt(), busy_ms=100, busy_ms_per_s=700.0)
    for _ in range(2):
        look(lanes, told)
        assert newest(lanes, told)[0][0] == 70


def test_a_subtask_that_ended_is_not_known_until_its_next_attempt_reports():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    told.has(attempt(), busy_ms_per_s=900.0)
    look(lanes, told)
    told.moves(attempt(), "FAILED")
    look(lanes, told)
    assert newest(lanes, told)[0][0] == UNKNOWN
    told.tell(ResetSubtasks((ExecutionVertexId(SOURCE, 0),), is_global=False, checkpoint_id=None))
    told.moves(attempt(number=1), "RUNNING").has(attempt(number=1), busy_ms_per_s=200.0)
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


def everybody_reports(parallelism):
    told = Looked(parallelism=parallelism).status("RUNNING").runs(parallelism=parallelism)
    for vertex_id in (SOURCE, SINK):
        for subtask in range(parallelism):
            told.has(attempt(vertex_id, subtask))
    return told


def test_a_caller_can_do_something_else_between_subtasks():
    assert look(everything(), everybody_reports(1_250)) == 2 * 1_250 // 500


def test_a_job_that_has_ended_is_not_looked_at():
    lanes = everything()
    look(lanes, ToldJob().status("FINISHED"))
    assert lanes.vertices == {}


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


def test_rates_are_the_sums_of_what_running_subtasks_report():
    job = Looked().runs()
    job.has(attempt(SINK, 0), records_in_per_s=200.0, bytes_out_per_s=2_000.0)
    job.has(attempt(SINK, 1), records_in_per_s=20.0, bytes_out_per_s=200.0)
    assert job.look().newest()["numRecordsInPerSecond"] == 220
    assert job.newest()["numBytesOutPerSecond"] == 2_200
    assert job.newest()["numRecordsOutPerSecond"] == 0
    job.moves(attempt(SINK, 1), "FINISHED").look(after_ms=1_000)
    assert job.newest()["numRecordsInPerSecond"] == 200


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
    assert everybody_reports(10).look().steps == 0
    assert everybody_reports(1_200).look().steps == 2 * 2
