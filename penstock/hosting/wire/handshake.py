"""Mutual authentication before any payload, as bytes in and bytes out (no socket here).

    client                                      server
    HELLO  role, nonce, token, cluster id  ->
           <-  CHALLENGE  nonce, proof "server"
    PROOF  proof "client"                  ->
           <-  WELCOME

A proof is HMAC-SHA256 under the application's secret over its label, the role, both nonces, the
fencing token and the cluster id. The two directions have different labels, so a reflected proof is
worthless. Both nonces are fresh, so a recorded proof is worthless too. Nothing is unpickled before
WELCOME; a peer gets `LIMIT_BYTES` and `LIMIT_SECONDS` to finish.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

from penstock.model.errors import AuthenticationError

LIMIT_BYTES: Final = 4096
LIMIT_SECONDS: Final = 5.0
NONCE_BYTES: Final = 32
_MAGIC: Final = b"PENSTOCK"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("!8sBB32sHH")
_PROOF_BYTES: Final = 32
_CHALLENGE_BYTES: Final = NONCE_BYTES + _PROOF_BYTES
_WELCOME: Final = b"WELCOME!"

ROLE_TASKMANAGER: Final = 1
ROLE_SUPERVISOR: Final = 2
ROLE_DATA: Final = 3
ROLE_FEED: Final = 4
ROLE_PROBE: Final = 5


@dataclass(frozen=True, slots=True)
class Credentials:
    """What both ends of an application share. `token`: the master's fencing token."""

    secret: bytes
    token: str
    cluster_id: str

    def __repr__(self) -> str:
        return f"Credentials(token={self.token}, cluster_id={self.cluster_id})"


class ClientHandshake:
    """The dialling side. Send `start()` first, feed what arrives until `is_done`."""

    def __init__(self, credentials: Credentials, role: int, nonce: bytes) -> None:
        self._credentials = credentials
        self._role = role
        self._nonce = nonce
        self._received = b""
        self._expects_welcome = False
        self.is_done = False
        self.leftover = b""

    def start(self) -> bytes:
        return _hello(self._credentials, self._role, self._nonce)

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send. Raises AuthenticationError: the server cannot prove itself."""
        self._received += data
        _check_limit(self._received)
        out = b""
        if not self._expects_welcome and len(self._received) >= _CHALLENGE_BYTES:
            server_nonce = self._received[:NONCE_BYTES]
            proof = self._received[NONCE_BYTES:_CHALLENGE_BYTES]
            self._received = self._received[_CHALLENGE_BYTES:]
            nonces = (self._nonce, server_nonce)
            expected = _proof(self._credentials, b"server", self._role, nonces)
            if not hmac.compare_digest(proof, expected):
                raise AuthenticationError(
                    "the server did not prove that it knows this application's secret and fencing "
                    "token; nothing it sent was read. Is another application on this port?"
                )
            out = _proof(self._credentials, b"client", self._role, nonces)
            self._expects_welcome = True
        if self._expects_welcome and len(self._received) >= len(_WELCOME):
            if self._received[: len(_WELCOME)] != _WELCOME:
                raise AuthenticationError("the server refused our proof")
            self.leftover = self._received[len(_WELCOME) :]
            self.is_done = True
        return out


class ServerHandshake:
    """The accepting side. Feed what arrives; `role` is known when `is_done`."""

    def __init__(self, credentials: Credentials, nonce: bytes) -> None:
        self._credentials = credentials
        self._nonce = nonce
        self._received = b""
        self._nonces: tuple[bytes, bytes] | None = None
        self.role = 0
        self.is_done = False
        self.leftover = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send. Raises AuthenticationError: the client cannot prove itself."""
        self._received += data
        if not self.is_done:
            _check_limit(self._received)
        out = b""
        if self._nonces is None:
            out = self._read_hello()
        if self._nonces is not None and not self.is_done and len(self._received) >= _PROOF_BYTES:
            proof = self._received[:_PROOF_BYTES]
            expected = _proof(self._credentials, b"client", self.role, self._nonces)
            if not hmac.compare_digest(proof, expected):
                raise AuthenticationError(
                    "a peer's proof is wrong; it was dropped, and nothing it sent was read"
                )
            self.leftover = self._received[_PROOF_BYTES:]
            self.is_done = True
            out += _WELCOME
        return out

    def _read_hello(self) -> bytes:
        if len(self._received) < _HEAD.size:
            if not _MAGIC.startswith(self._received[: len(_MAGIC)]):
                raise AuthenticationError("a peer does not use Penstock's protocol; it was dropped")
            return b""
        magic, version, role, nonce, token_size, cluster_size = _HEAD.unpack_from(self._received)
        if magic != _MAGIC or version != _VERSION:
            raise AuthenticationError("a peer does not use Penstock's protocol; it was dropped")
        end = _HEAD.size + token_size + cluster_size
        if end > LIMIT_BYTES:
            raise AuthenticationError(f"a peer's greeting is longer than {LIMIT_BYTES} bytes")
        if len(self._received) < end:
            return b""
        token = self._received[_HEAD.size : _HEAD.size + token_size]
        cluster = self._received[_HEAD.size + token_size : end]
        own = self._credentials
        same_token = hmac.compare_digest(token, own.token.encode())
        if not same_token or not hmac.compare_digest(cluster, own.cluster_id.encode()):
            raise AuthenticationError(
                "a peer has the fencing token or cluster id of another or a former master; it "
                "was dropped"
            )
        self._received = self._received[end:]
        self.role = role
        self._nonces = (nonce, self._nonce)
        return self._nonce + _proof(own, b"server", role, self._nonces)


def _hello(credentials: Credentials, role: int, nonce: bytes) -> bytes:
    token, cluster = credentials.token.encode(), credentials.cluster_id.encode()
    return _HEAD.pack(_MAGIC, _VERSION, role, nonce, len(token), len(cluster)) + token + cluster


def _proof(credentials: Credentials, label: bytes, role: int, nonces: tuple[bytes, bytes]) -> bytes:
    token, cluster = credentials.token.encode(), credentials.cluster_id.encode()
    mac = hmac.new(credentials.secret, digestmod=hashlib.sha256)
    for part in (label, bytes([role]), *nonces, token, cluster):
        mac.update(struct.pack("!I", len(part)) + part)
    return mac.digest()


def _check_limit(received: bytes) -> None:
    if len(received) > LIMIT_BYTES:
        raise AuthenticationError(f"a peer sent more than {LIMIT_BYTES} bytes before its proof")
