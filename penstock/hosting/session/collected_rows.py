"""Rows of jobs, piece by piece, for the clients that submitted them. A piece is kept until its reader asks for the next one.

Nothing is unpickled here. A job whose rows nobody reads waits, as one waits whose program does not take them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from penstock.hosting.remote.rows import Piece
from penstock.model.errors import ExternalError
from penstock.model.ids import JobId
from penstock.model.program import JobControl
from penstock.model.states import JobStatus

_ENDED_KEPT: Final = 8
"""Jobs that have ended, and whose rows may not all be read yet."""


class Giving(Protocol):
    """A job that gives rows without waiting: a streaming or a BATCH one."""

    def take_rows(self, stream: str) -> tuple[bytes | None, bool]:
        """Return the next pickled rows if there are any, and whether none come any more."""

    def status(self) -> JobStatus: ...
    def failure_text(self) -> str | None: ...


@dataclass(slots=True)
class _Rows:
    """`streams`: the last piece of each."""

    job: Giving
    streams: dict[str, Piece] = field(default_factory=dict)


class CollectedRows:
    """Any thread."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[JobId, _Rows] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, job_id: JobId, control: JobControl) -> None:
        """The job runs. Rows of jobs that ended long ago are forgotten."""
        with self._lock:
            # Both kinds of jobs of a session give rows.
            self._jobs[job_id] = _Rows(cast("Giving", control))
            ended = [one for one, rows in self._jobs.items() if rows.job.status().is_terminal]
            for one in ended[:-_ENDED_KEPT]:
                del self._jobs[one]

    def after(self, job_id: JobId, stream: str, number: int) -> Piece | None:
        """Return the piece after this one; None: there is none yet.

        Raises ExternalError: rows of this job are not there, or the piece before was not the last that was given.
        """
        with self._lock:
            rows = self._jobs.get(job_id)
            if rows is None:
                raise ExternalError(
                    f"the rows of job {job_id} are not here: this cluster did not start it for a "
                    "client that reads rows, or it was started again. Submit the job again."
                )
            last = rows.streams.get(stream, Piece(0))
            if number == last.number - 1:
                return last  # Its reader has not got it.
            if number != last.number:
                raise ExternalError(f"piece {number + 1} was asked for after {last.number}")
            payload, is_over = rows.job.take_rows(stream)
            if payload is None and not is_over:
                return None
            failure = rows.job.failure_text() if payload is None else None
            rows.streams[stream] = found = Piece(number + 1, payload, failure)
            return found
