"""Rows of a session's jobs, piece by piece."""

import pytest

from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus
from penstock.ops.remote.rows import Piece
from penstock.ops.session.submissions import CollectedRows

JOB = JobId("job")


class Job:
    """Gives these payloads; then it has ended, with this failure."""

    def __init__(self, *payloads, failure=None, has_ended=False):
        self.payloads = list(payloads)
        self.failure = failure
        self.has_ended = has_ended

    def take_rows(self, stream):
        if self.payloads:
            return self.payloads.pop(0), False
        return None, self.has_ended

    def status(self):
        return JobStatus.FINISHED if self.has_ended else JobStatus.RUNNING

    def failure_text(self):
        return self.failure


def held(job):
    rows = CollectedRows()
    rows.add(JOB, job)
    return rows


def test_pieces_come_in_order_and_the_end_last():
    rows = held(Job(b"a", b"b", has_ended=True))
    assert [rows.after(JOB, "s", number) for number in range(3)] == [
        Piece(1, b"a"), Piece(2, b"b"), Piece(3),
    ]  # fmt: skip


def test_a_piece_that_got_lost_on_its_way_comes_again():
    rows = held(Job(b"a", b"b"))
    assert rows.after(JOB, "s", 0) == rows.after(JOB, "s", 0) == Piece(1, b"a")
    assert rows.after(JOB, "s", 1) == Piece(2, b"b")
    with pytest.raises(ExternalError, match="piece 1 was asked for after 2"):
        rows.after(JOB, "s", 0)


def test_while_there_is_nothing_yet_nothing_is_counted():
    job = Job()
    rows = held(job)
    assert rows.after(JOB, "s", 0) is None
    job.payloads.append(b"a")
    assert rows.after(JOB, "s", 0) == Piece(1, b"a")


def test_the_failure_comes_with_the_end():
    assert held(Job(failure="boom", has_ended=True)).after(JOB, "s", 0) == Piece(1, None, "boom")


def test_rows_of_the_newest_jobs_that_have_ended_are_kept():
    rows = CollectedRows()
    for number in range(10):
        rows.add(JobId(f"job-{number}"), Job(has_ended=True))
    assert rows.after(JobId("job-2"), "s", 0) == Piece(1)
    for lost in ("job-0", "job-1", "unknown"):
        with pytest.raises(ExternalError, match="are not here"):
            rows.after(JobId(lost), "s", 0)
