"""TLS 1.3 between the processes of one job, by `security.ssl.internal.enabled`.

Source: Flink SSLUtils, internal connections: both ends show the same certificate, and accept no
other. Differs: the driver makes the certificate, one for each job, and it is in no file. A connection
becomes a TLS connection when both ends have proven that they know the job's secret.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar, cast

from penstock.model.errors import ConfigurationError

T = TypeVar("T")
_PIECE: Final = 1 << 20
"""So many bytes are encrypted at once; other threads may read or write in between."""
_READ_BYTES: Final = 1 << 20
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
    tls = TlsSocket(sock.detach(), context, is_server=is_server)
    tls.settimeout(limit_s)
    return tls


class TlsSocket(socket.socket):
    """A connected TLS socket that one thread may read while another one writes.

    Python's own must not be used by two threads at once, and needs a system call or two for each 16 kB.
    This one encrypts and decrypts in memory, under a lock, and waits without it. As a plain socket
    does, it raises BlockingIOError where it must not wait, and TimeoutError.
    """

    def __init__(self, descriptor: int, context: ssl.SSLContext, *, is_server: bool) -> None:
        """`descriptor`: of a connected socket; owned from now on."""
        super().__init__(fileno=descriptor)
        super().setblocking(False)
        self._limit_s: float | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._turn = threading.Lock()
        self._received = memoryview(bytearray(_READ_BYTES))
        self._unsent = memoryview(b"")
        self._accepted = 0
        self._has_unread = False

    @property
    def tls(self) -> ssl.SSLObject:
        """The state of the protocol, read only."""
        return self._tls

    @property
    def has_unread(self) -> bool:
        """Whether the last read stopped for want of room. A selector does not see the rest."""
        return self._has_unread

    def settimeout(self, value: float | None) -> None:
        self._limit_s = value

    def gettimeout(self) -> float | None:
        return self._limit_s

    def setblocking(self, flag: bool) -> None:
        self._limit_s = None if flag else 0.0

    def do_handshake(self) -> None:
        self._done(self._shake_hands, select.POLLIN)

    def recv(self, bufsize: int = 1024, flags: int = 0) -> bytes:
        buffer = bytearray(bufsize)
        return bytes(buffer[: self.recv_into(buffer)])

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Fill the buffer as far as possible without waiting for more."""
        view = memoryview(buffer).cast("B")[: nbytes or None]
        return self._done(lambda: self._fill(view), select.POLLIN)

    def send(self, data: Any, flags: int = 0) -> int:
        """Send some of it. After BlockingIOError, the next call must begin with the same bytes."""
        return self._done(lambda: self._write([data]), select.POLLOUT)

    def sendall(self, data: Any, flags: int = 0) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self.send(rest) :]

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:
        """As `send`."""
        return self._done(lambda: self._write(buffers), select.POLLOUT)

    # ------------------------------------------------------------------ steps, under the lock

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._take_in()
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # Tells the other end why.
                    self._flush()
                raise
            else:
                self._flush()
                return

    def _fill(self, view: memoryview) -> int:
        got = 0
        while got < len(view):
            try:
                count = cast("int", self._tls.read(len(view) - got, view[got:]))
            except ssl.SSLWantReadError:
                try:
                    self._take_in()
                except BlockingIOError:
                    if got:
                        break
                    raise
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                break
            else:
                got += count
                if not count:
                    break
        self._has_unread = got == len(view)
        return got

    def _take_in(self) -> None:
        """Receive what there is. Raises BlockingIOError: nothing is there."""
        count = super().recv_into(self._received)
        if count:
            self._incoming.write(self._received[:count])
        else:
            self._incoming.write_eof()

    def _write(self, buffers: Iterable[Any]) -> int:
        """What was encrypted is finished first: it was begun by a call with the same bytes."""
        if not self._accepted:
            for buffer in buffers:
                view = memoryview(buffer).cast("B")[: _PIECE - self._accepted]
                self._accepted += self._tls.write(view) if view else 0
                if self._accepted >= _PIECE:
                    break
        self._flush()
        accepted, self._accepted = self._accepted, 0
        return accepted

    def _flush(self) -> None:
        """Raises BlockingIOError: the socket is full."""
        if self._outgoing.pending:
            made = self._outgoing.read()
            self._unsent = memoryview(bytes(self._unsent) + made if self._unsent else made)
        while self._unsent:
            self._unsent = self._unsent[super().send(self._unsent) :]

    # ------------------------------------------------------------------ waiting, without it

    def _done(self, step: Callable[[], T], wanted: int) -> T:
        limit_s = self._limit_s
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while True:
            with self._turn:
                try:
                    return step()
                except BlockingIOError:
                    if limit_s == 0:
                        raise
                also = select.POLLOUT if self._unsent else 0
            self._wait(wanted | also, deadline)

    def _wait(self, wanted: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self, wanted)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not poll.poll(None if left is None else left * 1000):
            raise TimeoutError("timed out")


def _context(identity: Identity, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
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


@contextlib.contextmanager
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
