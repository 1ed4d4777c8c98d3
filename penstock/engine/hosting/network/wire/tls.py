"""TLS 1.3 between the processes of one job.

Source: Flink SSLUtils, internal connections: both ends show the same certificate, and accept no
other. Differs: it is always on between hosts, and the driver makes the certificate, one for each job,
which is in no file.
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
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
_PIECE: Final = 1 << 20
"""Bytes that are encrypted at once; other threads may read or write in between."""
_READ_BYTES: Final = 1 << 20
_HANDSHAKE_BYTES: Final = 1 << 14
"""So much of a peer that has proven nothing is read at once."""
_VALID_FROM: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
"""The clocks of executors may be wrong. What ends a certificate is the end of its job."""
_END_OF_CERTIFICATE: Final = "-----END CERTIFICATE-----\n"


@dataclass(frozen=True, slots=True)
class Identity:
    """A job's certificate and its private key. `pem`: both, as PEM."""

    pem: bytes

    @property
    def certificate(self) -> str:
        """Without the key."""
        text = self.pem.decode()
        return text[: text.index(_END_OF_CERTIFICATE) + len(_END_OF_CERTIFICATE)]

    def __repr__(self) -> str:
        return "Identity()"


def new_identity() -> Identity:
    """Return a new key (P-256) and its self-signed certificate. On the driver: executors need not have `cryptography`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "penstock job")])
    certificate = (
        x509
        .CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_FROM.replace(year=_VALID_FROM.year + 200))
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


@lru_cache(maxsize=64)
def server_context(identity: Identity, *, admits_tickets: bool) -> ssl.SSLContext:
    """`admits_tickets`: clients may also show no certificate. They must prove themselves otherwise then."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL if admits_tickets else ssl.CERT_REQUIRED
    context.num_tickets = 0  # No session is resumed, and no bytes come that a selector reports.
    _show(context, identity)
    return context


@lru_cache(maxsize=64)
def client_context(identity: Identity) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, identity.certificate)
    _show(context, identity)
    return context


def registering_context(certificate: str) -> ssl.SSLContext:
    """For a client that has no certificate yet, and expects this one of the server."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, certificate)


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
        self._received = memoryview(bytearray(_HANDSHAKE_BYTES))
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

    @property
    def has_peer_certificate(self) -> bool:
        """Whether the other end has shown the certificate that is expected. After the handshake."""
        return self._tls.getpeercert(binary_form=True) is not None

    def do_handshake(self) -> None:
        self._done(self._shake_hands, select.POLLIN)
        self._received = memoryview(bytearray(_READ_BYTES))

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
                with contextlib.suppress(OSError):  # Sends the reason.
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
                    self._take_in(ends=not got)
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

    def _take_in(self, *, ends: bool = True) -> None:
        """Receive what there is. Raises BlockingIOError: nothing is there; or the end is, and it is left to the next read
        because `ends` is False: after it, TLS sends nothing any more.
        """
        count = super().recv_into(self._received)
        if count:
            self._incoming.write(self._received[:count])
        elif ends:
            self._incoming.write_eof()
        else:
            raise BlockingIOError

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


def _context(protocol: int, certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The certificate itself is known, not the machine that shows it.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate)
    return context


def _show(context: ssl.SSLContext, identity: Identity) -> None:
    with _file_of(identity.pem) as path:
        context.load_cert_chain(path)


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
    # Nobody else may read it.
    with tempfile.NamedTemporaryFile(prefix="penstock-identity-") as file:
        file.write(pem)
        file.flush()
        yield file.name
