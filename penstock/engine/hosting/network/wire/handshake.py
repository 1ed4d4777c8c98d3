"""The first bytes of a connection: who dials, and what proves it. Bytes in and bytes out, no socket here.

    client                                        server
    TLS 1.3, or a Unix socket whose other end the kernel knows
    HELLO  role, fencing token, cluster id, name, proof  ->
           <-  WELCOME; to a process that registers: then the job's certificate and key

TLS has checked the certificate of both ends before (`wire.tls`); `proof` is empty then. A process that
has no certificate yet can only register: it proves itself by the one-time token of its ticket
(`wire.registration`). On a Unix socket the kernel says whose process the other end is, and `proof` shows
that it belongs to the same job. Nothing is unpickled before WELCOME; a peer gets `LIMIT_BYTES` and
`LIMIT_SECONDS` to finish.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol

from penstock.engine.hosting.network.wire.tls import Identity
from penstock.engine.model.errors import AuthenticationError

LIMIT_BYTES: Final = 4096
LIMIT_SECONDS: Final = 5.0
WELCOME: Final = b"\x01"
IDENTITY_LENGTH: Final = struct.Struct("!H")
_MAGIC: Final = b"PENSTOCK"
_VERSION: Final = 6
_HEAD: Final = struct.Struct("!8sBBHHHH")

ROLE_TASKMANAGER: Final = 1
ROLE_SUPERVISOR: Final = 2
ROLE_DATA: Final = 3
ROLE_FEED: Final = 4
ROLE_PROBE: Final = 5
ROLE_REGISTRATION: Final = 6
"""Shows a ticket, gets the job's certificate and key, and nothing else."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What all processes of a job have. `token`: the master's fencing token."""

    identity: Identity
    token: str
    cluster_id: str

    def local_secret(self, purpose: str) -> bytes:
        """Return what only processes of this job know, for what needs no TLS. It does not give the key away."""
        return hmac.digest(self.identity.pem, f"penstock {purpose}".encode(), "sha256")

    @property
    def membership(self) -> bytes:
        """What a process of this job shows on a Unix socket."""
        return self.local_secret("membership")


class TicketOffice(Protocol):
    """Knows the tickets that were given out."""

    def use(self, one_time_token: bytes) -> None:
        """Count a use. Raises AuthenticationError: there is no such ticket, or it was used."""


class Shown(Enum):
    """What a client has shown before its HELLO."""

    CERTIFICATE = auto()
    """The job's, and TLS has checked it."""
    NOTHING = auto()
    """TLS without a certificate of its own."""
    USER = auto()
    """It is a process of this user on this machine, says the kernel."""


def hello(credentials: Credentials, role: int, name: str = "", *, is_local: bool = False) -> bytes:
    """Return a client's first message. `name`: what the server knows it by; a resource id, or empty.

    `is_local`: it goes over a Unix socket.
    """
    proof = credentials.membership if is_local else b""
    return packed(role, credentials.token, credentials.cluster_id, name, proof)


def packed(role: int, token: str, cluster_id: str, name: str, proof: bytes) -> bytes:
    fields = [*(text.encode() for text in (token, cluster_id, name)), proof]
    return b"".join((_HEAD.pack(_MAGIC, _VERSION, role, *map(len, fields)), *fields))


@dataclass(slots=True)
class ServerHandshake:
    """The accepting side. `role`, `name` and `registers` are known when `is_done`.

    `roles`: of the clients that are expected. `tickets`: None: nobody registers here. `registers`: the
    client has got the job's certificate and key, and gets nothing else.
    """

    credentials: Credentials
    roles: Collection[int]
    shown: Shown
    tickets: TicketOffice | None = None
    role: int = 0
    name: str = ""
    is_done: bool = False
    _received: bytes = field(default=b"", repr=False)

    @property
    def registers(self) -> bool:
        return self.role == ROLE_REGISTRATION

    def feed(self, data: bytes) -> bytes:
        """Return the answer; empty: the client's first message is not complete.

        Raises AuthenticationError: the client cannot prove itself, or nobody in its role is expected.
        """
        self._received += data
        found = _read_hello(self._received)
        if found is None:
            return b""
        own = self.credentials
        is_ours = hmac.compare_digest(found.token, own.token.encode())
        if not is_ours or not hmac.compare_digest(found.cluster_id, own.cluster_id.encode()):
            raise AuthenticationError(
                "a peer has the fencing token or cluster id of another or a former master; it "
                "was dropped"
            )
        self._check_proof(found)
        self.role, self.name = found.role, found.name.decode(errors="replace")
        self.is_done = True
        if not self.registers:
            return WELCOME
        return WELCOME + IDENTITY_LENGTH.pack(len(own.identity.pem)) + own.identity.pem

    def _check_proof(self, found: _Hello) -> None:
        registers = self.shown is Shown.NOTHING
        roles = (ROLE_REGISTRATION,) if registers else self.roles
        if found.role not in roles:
            expected = " or ".join(map(str, roles))
            raise AuthenticationError(
                f"it connected in role {found.role}; expected role {expected}"
            )
        if registers and self.tickets is None:
            raise AuthenticationError("a peer shows no certificate, and nobody registers here")
        if registers and self.tickets is not None:
            self.tickets.use(found.proof)
        if self.shown is Shown.USER and not hmac.compare_digest(
            found.proof, self.credentials.membership
        ):
            raise AuthenticationError(
                "a process of this user, but of another job, has connected; it was dropped"
            )


@dataclass(frozen=True, slots=True)
class _Hello:
    role: int
    token: bytes
    cluster_id: bytes
    name: bytes
    proof: bytes


def _read_hello(received: bytes) -> _Hello | None:
    """None: it is not complete yet. Raises AuthenticationError: it is none of this protocol."""
    head = received[: _HEAD.size]
    if not _MAGIC.startswith(head[: len(_MAGIC)]) or head[8:9] not in (b"", bytes([_VERSION])):
        raise AuthenticationError("a peer does not use Penstock's protocol; it was dropped")
    if len(head) < _HEAD.size:
        return None
    _magic, _version, role, *sizes = _HEAD.unpack(head)
    end = _HEAD.size + sum(sizes)
    if end > LIMIT_BYTES:
        raise AuthenticationError(f"a peer's greeting is longer than {LIMIT_BYTES} bytes")
    if len(received) > end:
        raise AuthenticationError("a peer sent data before it was welcomed; it was dropped")
    if len(received) < end:
        return None
    fields = []
    at = _HEAD.size
    for size in sizes:
        fields.append(received[at : at + size])
        at += size
    return _Hello(role, *fields)
