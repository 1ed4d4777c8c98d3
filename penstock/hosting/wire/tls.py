"""TLS 1.3 between the processes of one job, by `security.ssl.internal.enabled`.

Source: Flink SSLUtils, internal connections: both ends show the same certificate, and accept no
other. Differs: the driver makes the certificate, one for each job, and it is in no file. A connection
becomes a TLS connection when both ends have proven that they know the job's secret.
"""

from __future__ import annotations

import datetime as dt
import os
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from penstock.model.errors import ConfigurationError

T = TypeVar("T")
_PIECE: Final = 1 << 16
"""So many bytes are encrypted at once; other threads may read or write in between."""
_VALID: Final = dt.timedelta(days=365 * 100)
_CLOCKS_DIFFER: Final = dt.timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Identity:
    """A job's certificate and its private key. `pem`: both, as PEM."""

    pem: bytes

    def __repr__(self) -> str:
        return "Identity()"


def new_identity() -> Identity:
    """Return a new key (P-256) and its self-signed certificate.

    Raises ConfigurationError: the package `cryptography` is missing.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ConfigurationError(
            "the connections of this job are to be encrypted (security.ssl.internal.enabled, or "
            "Spark's own encryption is on), and the driver makes the certificate with the package "
            "`cryptography`, which is not installed. Run `pip install penstock[tls]` where the "
            "driver runs, or set security.ssl.internal.enabled to false."
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "penstock job")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509
        .CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Identity(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


@cache
def server_context(identity: Identity) -> ssl.SSLContext:
    return _context(identity, ssl.PROTOCOL_TLS_SERVER)


@cache
def client_context(identity: Identity) -> ssl.SSLContext:
    return _context(identity, ssl.PROTOCOL_TLS_CLIENT)


def wrapped(sock: socket.socket, identity: Identity, *, is_server: bool) -> TlsSocket:
    """Return the socket's successor; `sock` is detached. It has the time-out of `sock`, and has not
    shaken hands yet.
    """
    context = server_context(identity) if is_server else client_context(identity)
    limit_s = sock.gettimeout()
    tls = context.wrap_socket(sock, server_side=is_server, do_handshake_on_connect=False)
    assert isinstance(tls, TlsSocket)
    tls.begin(limit_s)
    return tls


class TlsSocket(ssl.SSLSocket):
    """A connected TLS socket that one thread may read while another one writes.

    Python's own must not be used by two threads at once. This one is non-blocking underneath, takes a
    lock for each step, and waits without it. As a plain socket does, it raises BlockingIOError where
    it must not wait, and TimeoutError.
    """

    _limit_s: float | None = None
    _turn: threading.Lock

    def begin(self, limit_s: float | None) -> None:
        """Called once, by `wrapped`: ssl.SSLSocket cannot be constructed with more."""
        socket.socket.setblocking(self, False)
        self._turn = threading.Lock()
        self._limit_s = limit_s

    def settimeout(self, value: float | None) -> None:
        self._limit_s = value

    def gettimeout(self) -> float | None:
        return self._limit_s

    def setblocking(self, flag: bool) -> None:
        self._limit_s = None if flag else 0.0

    def do_handshake(self, block: bool = False) -> None:
        self._done(super().do_handshake)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        receive = super().recv
        return self._done(lambda: receive(buflen, flags))

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Fill the buffer as far as possible: TLS hands out at most 16 kB at once."""
        receive = super().recv_into
        view = memoryview(buffer)[: nbytes or None]
        got = self._done(lambda: receive(view))
        while 0 < got < len(view):
            with self._turn:
                try:
                    more = receive(view[got:])
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    break
            if not more:
                break
            got += more
        return got

    def send(self, data: Any, flags: int = 0) -> int:
        """Send some of it. After BlockingIOError, the next call must begin with the same bytes."""
        send = super().send
        piece = memoryview(data).cast("B")[:_PIECE]
        return self._done(lambda: send(piece)) if piece else 0

    def sendall(self, data: Any, flags: int = 0) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self.send(rest) :]

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]
        """As `send`. Small buffers are joined, because each `send` makes at least one TLS record."""
        joined = b""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if not joined and len(view) >= _PIECE:
                return self.send(view)
            joined += view[: _PIECE - len(joined)]
            if len(joined) >= _PIECE:
                break
        return self.send(joined)

    def unread(self) -> int:
        """Return how many bytes are decrypted already, which a selector does not see."""
        with self._turn:
            return super().pending()

    def shutdown(self, how: int) -> None:
        """Wake whoever waits, as with a plain socket. There is no farewell of TLS."""
        socket.socket.shutdown(self, how)

    def _done(self, step: Callable[[], T]) -> T:
        limit_s = self._limit_s
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while True:
            with self._turn:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
            if limit_s == 0:
                raise BlockingIOError("TLS has to wait for the other end")
            self._wait(wanted, deadline)

    def _wait(self, wanted: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self, wanted)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not poll.poll(None if left is None else left * 1000):
            raise TimeoutError("timed out")


def _context(identity: Identity, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.sslsocket_class = TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = (
        False  # The certificate itself is known, not the machine that shows it.
    )
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # No session is resumed, and no bytes come that a selector reports.
    context.load_verify_locations(cadata=identity.pem.decode())
    with _file_of(identity.pem) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _file_of(pem: bytes) -> Generator[str, None, None]:
    """Python loads a private key from a file only; on Linux from one that has no name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("penstock-identity", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile(
        prefix="penstock-identity-"
    ) as file:  # Nobody else may read it.
        file.write(pem)
        file.flush()
        yield file.name
