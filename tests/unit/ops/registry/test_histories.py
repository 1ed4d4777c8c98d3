"""The histories of all jobs of a driver: bounded, whatever runs."""

from dataclasses import replace

import pytest

from penstock.engine.model.ids import AttemptId, ExecutionVertexId, JobId, VertexId
from penstock.engine.model.states import JobStatus
from penstock.ops.jobs.record import JobRecord
from penstock.ops.jobs.snapshots import VertexFacts
from penstock.ops.metrics.history_rings import BYTES_OF_SUBTASK, MOST_BYTES, STEP_MS, STEPS
from penstock.ops.registry.job_registry import MOST_SUBTASKS, MOST_VERTICES, Histories
from tests.tools.observation.job_records import BEGAN, ToldJob, facts

HOUR = 3_600_000


def wide_job(job_id, vertices):
    """A job of so many vertices with one subtask each. All have reported."""
    ids = [VertexId(f"{number:032x}") for number in range(vertices)]
    of = tuple(VertexFacts(one, str(one), 1, 128, "default", (), ()) for one in ids)
    told = ToldJob()
    told.record = JobRecord(replace(facts(), job_id=JobId(job_id * 32), vertices=of))
    for attempt in (AttemptId(ExecutionVertexId(one, 0), 0) for one in ids):
        told.moves(attempt, "RUNNING").has(attempt, busy_ms_per_s=500.0)
    return told


def kept(histories, job):
    found = histories.of(job.record.facts.job_id)
    return 0 if found is None else len(found.vertices)


def test_a_thousand_vertices_take_what_is_promised_and_no_more_are_kept():
    histories, job = Histories(), wide_job("a", MOST_VERTICES + 10)
    snapshot = job.now_it_is()
    for minute in (*range(0, 7 * 60, 10), *range(7 * 60, 7 * 60 + 12)):  # Every block is needed.
        histories.look(replace(snapshot, now_ms=BEGAN + minute * 60_000))
    assert kept(histories, job) == MOST_VERTICES == 1_000
    most = MOST_VERTICES * MOST_BYTES
    assert 0.95 * most < histories.bytes <= most <= 116_000_000


def test_who_has_ended_makes_room_oldest_first():
    histories = Histories(most_vertices=5)
    first, second, third = (wide_job(name, 2) for name in "abc")
    for job in (first, second):
        histories.look(job.now_it_is(1_000))
        histories.look(job.status("FINISHED").now_it_is(1_000))
    histories.look(third.now_it_is(1_000))
    assert [kept(histories, job) for job in (first, second, third)] == [0, 2, 2]


def test_jobs_that_run_keep_theirs():
    histories = Histories(most_vertices=3)
    first, second = wide_job("a", 2), wide_job("b", 2)
    for job in (first, second):
        histories.look(job.now_it_is(1_000))
    assert [kept(histories, job) for job in (first, second)] == [2, 1]


@pytest.mark.parametrize("status", [one for one in JobStatus if one.is_terminal])
def test_a_job_that_has_ended_keeps_its_history_until_it_is_forgotten(status):
    histories, job = Histories(), wide_job("a", 1)
    histories.look(job.now_it_is(1_000))
    histories.look(job.status(status).now_it_is(HOUR))
    assert kept(histories, job) == 1
    histories.forget(job.record.facts.job_id)
    assert histories.bytes == 0


def lanes_kept(histories, job):
    found = histories.lanes_of(job.record.facts.job_id)
    return 0 if found is None else found.subtasks


def test_lanes_are_kept_of_so_many_subtasks_and_take_what_is_promised():
    histories, job = Histories(most_subtasks=12), wide_job("a", 15)
    snapshot = job.now_it_is()
    for step in range(STEPS + 10):
        histories.look(replace(snapshot, now_ms=BEGAN + step * STEP_MS))
    assert lanes_kept(histories, job) == 12
    assert histories.bytes_of_lanes == 12 * BYTES_OF_SUBTASK
    assert MOST_SUBTASKS * BYTES_OF_SUBTASK == 12_000_000


def test_lanes_of_a_job_that_has_ended_make_room():
    histories = Histories(most_subtasks=5)
    first, second, third = (wide_job(name, 2) for name in "abc")
    for job in (first, second, third):
        histories.look(job.now_it_is(1_000))
        if job is not third:
            histories.look(job.status("FINISHED").now_it_is(1_000))
    assert [lanes_kept(histories, job) for job in (first, second, third)] == [0, 2, 2]
