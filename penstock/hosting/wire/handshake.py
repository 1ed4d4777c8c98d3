"""Mutual authentication before any payload, as bytes in and bytes out (no socket here).

    client                                        server
    HELLO  role, MACs, nonce, token, cluster id, name, invitation, ends  ->
           <-  CHALLENGE  MAC, nonce, proof "server"
    PROOF  MAC, proof "client"                   ->
           <-  WELCOME  proof "welcome"

A proof is HMAC-SHA256 under the application's secret over its label and the transcript: all that was
sent before, without proofs. The server names the best MAC that it takes, the client the one that is
used: `GMAC_LOCAL` only if the kernel vouches to both for the other end. The client cannot ask the
kernel sooner, because the other end has no owner until it is accepted. The client also says which two
addresses its connection has (`ends`); if the server sees others, somebody passes the bytes on, and the
kernel vouches for that process only. The labels differ, so a reflected proof is worthless. Both
nonces are fresh, so a recorded proof is worthless too. Nothing is unpickled before WELCOME; a peer
gets `LIMIT_BYTES` and `LIMIT_SECONDS` to finish.

The application's secret never crosses a network in clear. A process that does not have it yet comes
as a guest: its HELLO shows an invitation, from which both ends derive a secret for this connection
alone (`wire.invitations`).

`session` protects what follows. Its keys come from the secret and the transcript. So a relay that
passes the handshake on between two others cannot change anything that they send afterwards.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from penstock.hosting.wire.sealing import Mac, Session, chosen, offered
from penstock.hosting.wire.tls import Identity
from penstock.model.errors import AuthenticationError

LIMIT_BYTES: Final = 4096
LIMIT_SECONDS: Final = 5.0
NONCE_BYTES: Final = 32
_MAGIC: Final = b"PENSTOCK"
_VERSION: Final = 5
_HEAD: Final = struct.Struct("!8sBBB32sHHHHH")
_PROOF_BYTES: Final = 32
_CHALLENGE: Final = struct.Struct("!B32s")
_STRANGER: Final = "a peer does not use Penstock's protocol; it was dropped"

ROLE_TASKMANAGER: Final = 1
ROLE_SUPERVISOR: Final = 2
ROLE_DATA: Final = 3
ROLE_FEED: Final = 4
ROLE_PROBE: Final = 5
ROLE_GUEST: Final = 6
"""Comes with an invitation, gets the application's credentials, and nothing else."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What both ends of a connection share. `token`: the master's fencing token. `presented`: what a
    guest shows of its invitation; empty if `secret` is the application's. `identity`: None if
    connections are not encrypted.
    """

    secret: bytes
    token: str
    cluster_id: str
    presented: bytes = b""
    identity: Identity | None = None

    def __repr__(self) -> str:
        return f"Credentials(token={self.token}, cluster_id={self.cluster_id})"


class Guests(Protocol):
    """Who is admitted with an invitation."""

    def secret_for(self, presented: bytes) -> bytes:
        """Return the secret of the guest's connection. Raises AuthenticationError: it has no invitation."""

    def admit(self, presented: bytes) -> None:
        """The guest has proven its secret. Raises AuthenticationError: another one was faster."""


Vouched = Callable[[], bool]


def _nobody_vouches() -> bool:
    return False


class _Handshake:
    """What both ends keep. `leftover`: bytes that came behind the handshake."""

    def __init__(self, credentials: Credentials, vouched: Vouched) -> None:
        self._credentials = credentials
        self._vouched = vouched
        self._received = b""
        self._transcript = b""
        self._mac: Mac | None = None
        self._session: Session | None = None
        self.leftover = b""

    @property
    def is_done(self) -> bool:
        return self._session is not None

    @property
    def identity(self) -> Identity | None:
        """What the connection is encrypted with from now on; None: it is not."""
        return self._credentials.identity

    @property
    def session(self) -> Session:
        assert self._session is not None, "the handshake is not done"
        return self._session


class ClientHandshake(_Handshake):
    """The dialling side. Send `start()` first, feed what arrives until `is_done`; then there is `session`."""

    def __init__(
        self,
        credentials: Credentials,
        role: int,
        nonce: bytes,
        name: str = "",
        *,
        vouched: Vouched = _nobody_vouches,
        ends: bytes = b"",
    ) -> None:
        """`name`: what the server knows this end by; a resource id, or empty. `vouched`: asks whether
        the server is a process of this machine and user. `ends`: of `wire.local_peer`.
        """
        super().__init__(credentials, vouched)
        self._hello = _hello(credentials, role, nonce, name, ends)

    def start(self) -> bytes:
        return self._hello

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send. Raises AuthenticationError: the server cannot prove itself."""
        self._received += data
        if not self.is_done:
            _check_limit(self._received)
        out = b""
        if self._mac is None and len(self._received) >= _CHALLENGE.size + _PROOF_BYTES:
            self._mac = self._read_challenge()
            out = bytes([self._mac])
            self._transcript += out
            out += _proof(self._credentials, b"client", self._transcript)
        if self._mac is not None and not self.is_done and len(self._received) >= _PROOF_BYTES:
            welcome = self._received[:_PROOF_BYTES]
            if not hmac.compare_digest(
                welcome, _proof(self._credentials, b"welcome", self._transcript)
            ):
                raise AuthenticationError("the server refused our proof")
            self.leftover = self._received[_PROOF_BYTES:]
            secret = self._credentials.secret
            self._session = Session(self._mac, secret, self._transcript, is_client=True)
        return out

    def _read_challenge(self) -> Mac:
        challenge, proof = _cut(self._received, _CHALLENGE.size)
        proof, self._received = _cut(proof, _PROOF_BYTES)
        self._transcript = self._hello + challenge
        if not hmac.compare_digest(proof, _proof(self._credentials, b"server", self._transcript)):
            raise AuthenticationError(
                "the server did not prove that it knows this application's secret and fencing "
                "token; nothing it sent was read. Is another application on this port?"
            )
        mac, _nonce = _CHALLENGE.unpack(challenge)
        if not 1 << mac & offered():
            raise AuthenticationError(f"the server chose the MAC {mac}, which was not offered")
        if mac == Mac.GMAC_LOCAL and not self._vouched():
            return Mac.GMAC
        return Mac(mac)


class ServerHandshake(_Handshake):
    """The accepting side. Feed what arrives; `role`, `name`, `is_guest` and `session` are known when
    `is_done`.
    """

    def __init__(
        self,
        credentials: Credentials,
        nonce: bytes,
        guests: Guests | None = None,
        *,
        vouched: Vouched = _nobody_vouches,
        ends: bytes = b"",
    ) -> None:
        """`guests`: None admits nobody without the application's secret. `vouched`, `ends`: as of a client."""
        super().__init__(credentials, vouched)
        self._ends = ends
        self._nonce = nonce
        self._guests = guests
        self.role = 0
        self.name = ""

    @property
    def is_guest(self) -> bool:
        """Whether the client came with an invitation, and does not have the application's secret."""
        return bool(self._credentials.presented)

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send. Raises AuthenticationError: the client cannot prove itself."""
        self._received += data
        if not self.is_done:
            _check_limit(self._received)
        out = b""
        if self._mac is None:
            out = self._take_hello()
        if self._mac is not None and not self.is_done and len(self._received) > _PROOF_BYTES:
            mac, rest = _cut(self._received, 1)
            proof, self.leftover = _cut(rest, _PROOF_BYTES)
            self._transcript += mac
            own = self._credentials
            if not hmac.compare_digest(proof, _proof(own, b"client", self._transcript)):
                raise AuthenticationError(
                    "a peer's proof is wrong; it was dropped, and nothing it sent was read"
                )
            if mac[0] != self._mac and (mac[0], self._mac) != (Mac.GMAC, Mac.GMAC_LOCAL):
                raise AuthenticationError(f"a peer uses MAC {mac[0]}, which was not chosen")
            if self._guests is not None and own.presented:
                self._guests.admit(own.presented)
            used = Mac(mac[0])
            self._session = Session(used, own.secret, self._transcript, is_client=False)
            out += _proof(own, b"welcome", self._transcript)
        return out

    def _take_hello(self) -> bytes:
        hello = _read_hello(self._received)
        if hello is None:
            return b""
        own = self._credentials
        same_token = hmac.compare_digest(hello.token, own.token.encode())
        if not same_token or not hmac.compare_digest(hello.cluster_id, own.cluster_id.encode()):
            raise AuthenticationError(
                "a peer has the fencing token or cluster id of another or a former master; it "
                "was dropped"
            )
        if hello.presented:
            own = self._credentials = self._credentials_of(hello.presented)
        is_direct = hello.ends == self._ends
        self._mac = chosen(hello.macs, is_vouched_for=is_direct and self._vouched())
        if self._mac is None:
            raise AuthenticationError("a peer offers no MAC that is known here; it was dropped")
        self._received = self._received[len(hello.raw) :]
        self.role, self.name = hello.role, hello.name.decode(errors="replace")
        challenge = _CHALLENGE.pack(self._mac, self._nonce)
        self._transcript = hello.raw + challenge
        return challenge + _proof(own, b"server", self._transcript)

    def _credentials_of(self, presented: bytes) -> Credentials:
        if self._guests is None:
            raise AuthenticationError("a peer came with an invitation, but none is given out here")
        return replace(
            self._credentials,
            secret=self._guests.secret_for(presented),
            presented=presented,
            identity=None,
        )


@dataclass(frozen=True, slots=True)
class _Hello:
    """A client's first message. `macs`: a bit for each function that it offers. `raw`: all of it."""

    role: int
    macs: int
    token: bytes
    cluster_id: bytes
    name: bytes
    presented: bytes
    ends: bytes
    raw: bytes


def _read_hello(received: bytes) -> _Hello | None:
    """None: it is not complete yet. Raises AuthenticationError: it is none of this protocol."""
    if len(received) < _HEAD.size:
        if not _MAGIC.startswith(received[: len(_MAGIC)]):
            raise AuthenticationError(_STRANGER)
        return None
    magic, version, role, macs, _nonce, *sizes = _HEAD.unpack_from(received)
    if magic != _MAGIC or version != _VERSION:
        raise AuthenticationError(_STRANGER)
    end = _HEAD.size + sum(sizes)
    if end > LIMIT_BYTES:
        raise AuthenticationError(f"a peer's greeting is longer than {LIMIT_BYTES} bytes")
    if len(received) < end:
        return None
    token, rest = _cut(received[_HEAD.size : end], sizes[0])
    cluster_id, rest = _cut(rest, sizes[1])
    name, rest = _cut(rest, sizes[2])
    presented, ends = _cut(rest, sizes[3])
    return _Hello(role, macs, token, cluster_id, name, presented, ends, received[:end])


def _hello(credentials: Credentials, role: int, nonce: bytes, name: str, ends: bytes) -> bytes:
    texts = [text.encode() for text in (credentials.token, credentials.cluster_id, name)]
    fields = [*texts, credentials.presented, ends]
    head = _HEAD.pack(_MAGIC, _VERSION, role, offered(), nonce, *map(len, fields))
    return b"".join((head, *fields))


def _proof(credentials: Credentials, label: bytes, transcript: bytes) -> bytes:
    return hmac.digest(credentials.secret, b"penstock " + label + b"\0" + transcript, "sha256")


def _cut(data: bytes, at: int) -> tuple[bytes, bytes]:
    return data[:at], data[at:]


def _check_limit(received: bytes) -> None:
    if len(received) > LIMIT_BYTES:
        raise AuthenticationError(f"a peer sent more than {LIMIT_BYTES} bytes before its proof")
