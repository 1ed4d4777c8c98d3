"""Invitations: what a Spark task carries in place of a secret, because Spark may send it in clear.

An invitation has the host's public value and a ticket. Whoever dials the host with it sends a public
value of its own. Both ends then derive the secret of this one connection from the key agreement
(`wire.agreement`) and the ticket. Somebody who only listens has neither private exponent, and learns
nothing that he could use on this or another connection.

A ticket admits as many connections as the host says, usually one. So somebody who listens and also
connects must be faster than the invited task. That task is then refused, and the host logs why.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from dataclasses import dataclass
from typing import Any, Final, Self

from penstock.hosting.wire.agreement import PUBLIC_BYTES, KeyPair
from penstock.hosting.wire.handshake import Credentials
from penstock.model.errors import AuthenticationError

TICKET_BYTES: Final = 32
_NAME_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Invitation:
    """Admits to one host. `public`: the host's public value. `ticket`: `TICKET_BYTES` random bytes.
    `token`, `cluster_id`: as in `Credentials`.
    """

    public: bytes
    ticket: bytes
    token: str
    cluster_id: str

    def accepted(self) -> Credentials:
        """Return credentials for one connection to the host; each call makes other ones."""
        pair = KeyPair()
        secret = _secret(self.ticket, self.public, pair.public, pair.shared_with(self.public))
        presented = _name_of(self.ticket) + pair.public
        return Credentials(secret, self.token, self.cluster_id, presented)

    def to_plain(self) -> dict[str, str]:
        """Return plain data for a Spark task, which does not have our classes."""
        return {
            "public": self.public.hex(),
            "ticket": self.ticket.hex(),
            "token": self.token,
            "cluster_id": self.cluster_id,
        }

    @classmethod
    def from_plain(cls, told: dict[str, Any]) -> Self:
        public, ticket = bytes.fromhex(told["public"]), bytes.fromhex(told["ticket"])
        return cls(public, ticket, told["token"], told["cluster_id"])

    def __repr__(self) -> str:
        return f"Invitation(token={self.token}, cluster_id={self.cluster_id})"


class Invitations:
    """The invitations of one host. Safe for any thread."""

    def __init__(self, token: str, cluster_id: str, pair: KeyPair | None = None) -> None:
        self._token = token
        self._cluster_id = cluster_id
        self._pair = pair or KeyPair()
        self._lock = threading.Lock()
        self._open: dict[bytes, tuple[bytes, int | None]] = {}
        self._used: set[bytes] = set()

    def new(self, ticket: bytes, admits: int | None = 1) -> Invitation:
        """`ticket`: fresh random bytes. `admits`: how many connections; None: all until `withdraw`."""
        if len(ticket) != TICKET_BYTES:
            raise ValueError(f"a ticket has {TICKET_BYTES} bytes, got {len(ticket)}")
        with self._lock:
            self._open[_name_of(ticket)] = (ticket, admits)
        return Invitation(self._pair.public, ticket, self._token, self._cluster_id)

    def secret_for(self, presented: bytes) -> bytes:
        """Return the secret of a guest's connection. `presented`: from the guest's greeting.

        Raises AuthenticationError: no such ticket is open. The error comes before any costly step.
        """
        name, public = presented[:_NAME_BYTES], presented[_NAME_BYTES:]
        with self._lock:
            ticket, _admits = self._open.get(name, (b"", 0))
            was_used = name in self._used
        if was_used:
            raise AuthenticationError(
                "a peer came with a ticket that was used before. If a TaskManager was refused "
                "because of this, somebody reads what Spark sends to its executors: set "
                "spark.authenticate and spark.network.crypto.enabled"
            )
        if not ticket or len(public) != PUBLIC_BYTES:
            raise AuthenticationError("a peer came with a ticket that is not known here")
        return _secret(ticket, self._pair.public, public, self._pair.shared_with(public))

    def admit(self, presented: bytes) -> None:
        """Count a guest that has proven its secret.

        Raises AuthenticationError: another guest was faster with the last use of the ticket.
        """
        name = presented[:_NAME_BYTES]
        with self._lock:
            ticket, admits = self._open.pop(name, (b"", 0))
            if admits == 0:
                raise AuthenticationError("another peer used the same ticket at the same time")
            if admits == 1:
                self._used.add(name)
            else:
                self._open[name] = (ticket, admits and admits - 1)

    def withdraw(self, invitation: Invitation) -> None:
        """Admit nobody any more with this invitation."""
        with self._lock:
            self._open.pop(_name_of(invitation.ticket), None)


def _name_of(ticket: bytes) -> bytes:
    return hashlib.sha256(b"penstock ticket " + ticket).digest()[:_NAME_BYTES]


def _secret(ticket: bytes, host: bytes, guest: bytes, shared: bytes) -> bytes:
    return hmac.digest(ticket, b"penstock invitation " + host + guest + shared, "sha256")
