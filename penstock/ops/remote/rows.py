"""Rows that a session brings to its clients: pieces that both ends sign and number, so that a client opens no others.

The key stands in the session's entry in the address book, a file of its user alone, and never travels. A client that cannot read
it takes rows by HTTPS only, where the session's certificate vouches for them. Knows no jobs. Source: none; Flink's clients get rows of
`execute_and_collect` from a socket of the sink's coordinator.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.engine.hosting.shipping.pickling import loads_records
from penstock.engine.model.errors import ConfigurationError, JobExecutionError
from penstock.engine.model.ids import JobId
from penstock.ops.remote.client import RemoteError, RestClient, pauses

_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a stream. `number`: from 1. `payload`: pickled rows; None: the stream has ended. `failure`: of the job."""

    number: int
    payload: bytes | None = None
    failure: str | None = None

    def signed(self, key: bytes, what: str) -> dict[str, Any]:
        """Return it as plain data. `what`: the stream, and what its reader has chosen by chance."""
        rows = None if self.payload is None else b64encode(self.payload).decode()
        fields = {"number": self.number, "rows": rows, "failure": self.failure}
        return {**fields, "signature": _signature(key, what, self)}


def opened(answer: dict[str, Any], key: bytes | None, what: str) -> Piece:
    """Return the piece that `Piece.signed` wrote. `key` None: the connection vouches for it. Raises RemoteError: forged."""
    rows = answer["rows"]
    piece = Piece(answer["number"], None if rows is None else b64decode(rows), answer["failure"])
    signature = str(answer["signature"])
    if key is not None and not hmac.compare_digest(signature, _signature(key, what, piece)):
        raise RemoteError(
            "rows came that the cluster has not signed, so they are not opened. Somebody else "
            "answers at its address: see `penstock list`, and submit the job again."
        )
    return piece


def _signature(key: bytes, what: str, piece: Piece) -> str:
    made = hmac.new(key, digestmod=hashlib.sha256)
    failure = b"" if piece.failure is None else piece.failure.encode()
    for part in (what.encode(), str(piece.number).encode(), piece.payload, failure):
        made.update(b"-" if part is None else b"%d:" % len(part) + part)
    return made.hexdigest()


class Keyed(Protocol):
    """A session, and the key that its user's clients know."""

    @property
    def rest(self) -> RestClient: ...
    @property
    def rows_key(self) -> bytes | None: ...


def check_rows(session: Keyed) -> None:
    """Raises ConfigurationError: nothing would vouch for rows of the cluster."""
    if session.rows_key is None and not session.rest.address.startswith("https://"):
        raise ConfigurationError(
            f"rows of execute_and_collect are pickles, and nothing vouches for those that come "
            f"from {session.rest.address}: it is no session of this user on this machine, and not "
            "HTTPS. Set security.ssl.rest.enabled for the session and its clients, or write the "
            "rows to a sink."
        )


def rows_of(session: Keyed, job_id: JobId, stream: str) -> Iterator[list[Any]]:
    """Yield lists of rows. Raises RemoteError: the session does not answer. JobExecutionError at the end of a failed job."""
    check_rows(session)
    chosen, number = secrets.token_hex(16), 0
    path = f"/session/jobs/{job_id}/rows/{stream}"
    while True:
        answer = _next(session, path, {"after": number, "chosen": chosen})
        piece = opened(answer, session.rows_key, f"{job_id}/{stream}/{chosen}")
        if piece.number != number + 1:
            raise RemoteError(f"piece {piece.number} of rows came instead of {number + 1}")
        number = piece.number
        if piece.failure is not None:
            raise JobExecutionError(piece.failure)
        if piece.payload is None:
            return
        yield loads_records(piece.payload)


def _next(session: Keyed, path: str, query: dict[str, Any]) -> dict[str, Any]:
    """Ask until there is a piece. A session that does not answer is asked again for a while."""
    answered_s = time.monotonic()
    for pause_s in pauses(0.005, 0.25):
        try:
            answer: dict[str, Any] = session.rest.get(path, **query)
        except RemoteError as error:
            if error.status or time.monotonic() - answered_s > _PATIENCE_S:
                raise
        else:
            answered_s = time.monotonic()
            if answer["number"]:
                return answer
        time.sleep(pause_s)
    raise AssertionError
