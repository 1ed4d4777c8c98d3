"""Registration: how a process that Spark has started gets the certificate and key of its job.

    Spark task                                    driver
    TLS 1.3; the task expects the certificate in its ticket, and shows none
    HELLO with the one-time token       ->
                                        <-        WELCOME, the job's certificate and key; then it closes

Spark may send a task in clear, so a task carries a ticket and no secret. Whoever only reads the ticket
learns nothing from it: the certificate is public, and the token is sent inside TLS. Somebody who also
connects must be faster than the task. Then the task is refused, and the driver logs why.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import threading
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.engine.hosting.network.wire import handshake, tls
from penstock.engine.hosting.network.wire.dialling import received, welcomed
from penstock.engine.hosting.network.wire.handshake import ROLE_REGISTRATION, Credentials
from penstock.engine.model.errors import AuthenticationError

_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Ticket:
    """Lets a process register. `certificate`: the driver's, as PEM. `token`, `cluster_id`: as in `Credentials`."""

    certificate: str
    one_time_token: bytes = field(repr=False)
    token: str
    cluster_id: str

    def to_plain(self) -> dict[str, str]:
        """Return plain data for a Spark task, which does not have our classes."""
        return {
            "certificate": self.certificate,
            "one_time_token": self.one_time_token.hex(),
            "token": self.token,
            "cluster_id": self.cluster_id,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        return cls(
            plain["certificate"],
            bytes.fromhex(plain["one_time_token"]),
            plain["token"],
            plain["cluster_id"],
        )


class Tickets:
    """The tickets of one job. Safe for any thread."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._open: dict[bytes, int | None] = {}
        self._used: set[bytes] = set()

    def new(self, admits: int | None = 1) -> Ticket:
        """`admits`: how many may register with it; None: all until `withdraw`."""
        own, one_time_token = self._credentials, secrets.token_bytes(_TOKEN_BYTES)
        with self._lock:
            self._open[_digest(one_time_token)] = admits
        return Ticket(own.identity.certificate, one_time_token, own.token, own.cluster_id)

    def use(self, one_time_token: bytes) -> None:
        """As `handshake.TicketOffice`."""
        digest = _digest(one_time_token)
        with self._lock:
            if digest in self._used:
                raise AuthenticationError(
                    "a peer came with a ticket that was used before. If a TaskManager was refused "
                    "because of this, somebody reads what Spark sends to its executors: set "
                    "spark.authenticate and spark.network.crypto.enabled"
                )
            if digest not in self._open:
                raise AuthenticationError("a peer came with a ticket that is not known here")
            admits = self._open[digest]
            if admits == 1:
                del self._open[digest]
                self._used.add(digest)
            elif admits is not None:
                self._open[digest] = admits - 1

    def withdraw(self, ticket: Ticket) -> None:
        """Admit nobody any more with this ticket."""
        with self._lock:
            self._open.pop(_digest(ticket.one_time_token), None)


def register(address: tuple[str, int], ticket: Ticket, timeout_s: float) -> Credentials:
    """Return the job's credentials. Raises: OSError; AuthenticationError: another program listens there, or
    the ticket is not valid.
    """
    sock = socket.create_connection(address, timeout=timeout_s)
    first = handshake.packed(
        ROLE_REGISTRATION, ticket.token, ticket.cluster_id, "", ticket.one_time_token
    )
    with welcomed(sock, tls.registering_context(ticket.certificate), first) as answering:
        (size,) = handshake.IDENTITY_LENGTH.unpack(
            received(answering, handshake.IDENTITY_LENGTH.size)
        )
        identity = tls.Identity(received(answering, size))
    return Credentials(identity, ticket.token, ticket.cluster_id)


def _digest(one_time_token: bytes) -> bytes:
    """The key under which a token is looked up: how long that takes says nothing about other tokens."""
    return hashlib.sha256(one_time_token).digest()
