"""Pieces of rows: what is signed is opened, and nothing else."""

import pickle
from types import SimpleNamespace

import pytest

from penstock.engine.model.errors import ConfigurationError, JobExecutionError
from penstock.engine.model.ids import JobId
from penstock.ops.remote.client import RemoteError
from penstock.ops.remote.rows import Piece, check_rows, opened, rows_of

KEY, WHAT = b"k" * 32, "job/stream/chance"
JOB = JobId("j")


@pytest.mark.parametrize("piece", [Piece(1, b"rows"), Piece(2), Piece(3, None, "it failed")])
def test_what_is_signed_is_opened(piece):
    assert opened(piece.signed(KEY, WHAT), KEY, WHAT) == piece


@pytest.mark.parametrize(
    "change",
    [
        {"number": 2},
        {"rows": "AAAA"},
        {"rows": None},
        {"failure": "no"},
        {"signature": ""},
    ],
)
def test_whatever_is_changed_is_not_opened(change):
    told = Piece(1, b"rows").signed(KEY, WHAT) | change
    with pytest.raises(RemoteError, match="not signed"):
        opened(told, KEY, WHAT)


def test_what_was_signed_for_another_reader_is_not_opened():
    told = Piece(1, b"rows").signed(KEY, "job/stream/another")
    with pytest.raises(RemoteError, match="not signed"):
        opened(told, KEY, WHAT)


def session(*answers, key=KEY, address="http://localhost:1"):
    """It gives these answers one after the other: pieces, or errors."""
    rest_of_them = iter(answers)

    def get(path, after, chosen):
        found = next(rest_of_them)
        if isinstance(found, Exception):
            raise found
        return found.signed(KEY, f"{JOB}/stream/{chosen}")

    return SimpleNamespace(rest=SimpleNamespace(get=get, address=address), rows_key=key)


def rows(*values):
    return pickle.dumps(list(values))


def test_pieces_are_read_to_the_end_and_nothing_yet_is_waited_for():
    told = session(Piece(1, rows(1, 2)), Piece(0), Piece(2, rows(3)), Piece(3))
    assert list(rows_of(told, JOB, "stream")) == [[1, 2], [3]]


def test_a_session_that_does_not_answer_for_a_moment_is_asked_again():
    told = session(RemoteError("nobody"), Piece(1, rows(1)), RemoteError("nobody"), Piece(2))
    assert list(rows_of(told, JOB, "stream")) == [[1]]


def test_a_refusal_is_told_at_once():
    told = session(RemoteError("it was started again", 410))
    with pytest.raises(RemoteError, match="started again"):
        next(rows_of(told, JOB, "stream"))


def test_the_failure_of_the_job_comes_behind_its_rows():
    told = rows_of(session(Piece(1, rows(1)), Piece(2, None, "boom")), JOB, "stream")
    assert next(told) == [1]
    with pytest.raises(JobExecutionError, match="boom"):
        next(told)


def test_a_piece_that_is_left_out_is_noticed():
    with pytest.raises(RemoteError, match="piece 2 of rows came instead of 1"):
        next(rows_of(session(Piece(2, rows(1))), JOB, "stream"))


def test_without_a_key_only_https_vouches_for_rows():
    check_rows(session(key=None, address="https://there:1"))
    with pytest.raises(ConfigurationError, match="nothing vouches"):
        check_rows(session(key=None))
