"""Where the REST server finds the session of this process, if it is one. Knows no jobs.

Source: Flink DispatcherGateway.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock.engine.machines.dispatcher import Cancelled

ROWS_KEY: Final = secrets.token_bytes(32)
"""Signs rows for clients. It leaves this process in the address book only, which its user alone can read."""
MEDIA: Final = "application/x-penstock-job"
"""The media type of a submission. No page of a browser can send it to another server without being asked first."""


class SessionPort(Protocol):
    """A session as requests see it. Any thread."""

    @property
    def is_standby(self) -> bool:
        """Whether another session leads, or this one does not know all its jobs yet."""

    def about(self) -> dict[str, Any]:
        """Return what a client has to know before it submits, and the jobs that were submitted."""

    def check(self, versions: Mapping[str, str]) -> None:
        """Raises ConfigurationError: a client with other versions cannot submit here."""

    def submit(self, data: bytes) -> dict[str, Any]:
        """Open the bytes of an authenticated client and start the job. Waits until it has a JobManager. Raises what is wrong."""

    def cancel(self, job_id: str) -> Cancelled: ...
    def rows(self, job_id: str, stream: str, after: int, chosen: str) -> dict[str, Any]:
        """Return the signed piece after this one; its number is 0 if there is none yet. Raises ExternalError."""

    def client_lives(self, job_id: str, until_wall_ms: int) -> bool:
        """The client of a job may be silent until then, in epoch ms. Returns: whether the job is known, and has not ended."""

    def stop(self) -> None:
        """End the session. Returns at once."""


class _Place:
    """Where handlers find the session of this process. `session` None: this process runs a program."""

    session: SessionPort | None = None


SESSION_PLACE: Final = _Place()
