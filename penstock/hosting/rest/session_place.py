"""Where the REST server finds the session of this process, if it is one. Knows no jobs.

Source: Flink DispatcherGateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock.machines.dispatcher.dispatcher import Cancelled

MEDIA: Final = "application/x-penstock-job"
"""The media type of a submission. No page of a browser can send it to another server without being asked first."""


class SessionPort(Protocol):
    """A session as requests see it. Any thread."""

    @property
    def is_standby(self) -> bool:
        """Whether another session leads, or this one does not know all its jobs yet."""

    def told(self) -> dict[str, Any]:
        """Return what a client has to know before it submits, and the jobs that were submitted."""

    def check(self, versions: Mapping[str, str]) -> None:
        """Raises ConfigurationError: a client with other versions cannot submit here."""

    def submit(self, data: bytes) -> dict[str, Any]:
        """Open the bytes of an authenticated client and start the job. Waits until it has a JobManager. Raises what is wrong."""

    def cancel(self, job_id: str) -> Cancelled: ...

    def stop(self) -> None:
        """End the session. Returns at once."""


class _Place:
    """`session` None: this process runs a program."""

    session: SessionPort | None = None


SESSION_PLACE: Final = _Place()
