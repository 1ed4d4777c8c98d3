"""JSON lines over an authenticated socket, between probes and the driver. Nothing is unpickled.

A line is JSON, a space, and the tag of the JSON in hexadecimal digits.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.hosting.wire import dialling
from penstock.hosting.wire.handshake import ROLE_PROBE, Credentials
from penstock.model.errors import AuthenticationError

_MOST: Final = 1 << 20


class Lines:
    """One connection. `receive` waits as long as the socket's time-out allows."""

    def __init__(self, proven: dialling.Proven) -> None:
        self.sock = proven.sock
        self._session = proven.session
        self._received = proven.early

    def send(self, told: Any) -> None:
        text = json.dumps(told).encode()
        self.sock.sendall(text + b" " + self._session.sending.tag(text).hex().encode() + b"\n")

    def receive(self) -> Any:
        """Return the next line; None: the other side has closed.

        Raises: OSError; AuthenticationError, DamagedFrame: not a line that the other side has sent.
        """
        while b"\n" not in self._received:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._received += data
            if len(self._received) > _MOST:
                raise AuthenticationError("a line is longer than a line of a probe can be")
        line, _, self._received = self._received.partition(b"\n")
        text, _, tag = line.rpartition(b" ")
        self._session.receiving.check(_bytes_of(tag), text)
        return json.loads(text)


def dial(address: tuple[str, int], credentials: Credentials, timeout_s: float) -> Lines:
    """Connect. Raises: OSError; AuthenticationError: another program listens there."""
    return Lines(dialling.dial(address, credentials, ROLE_PROBE, timeout_s))


def _bytes_of(digits: bytes) -> bytes:
    """Bytes from hexadecimal digits; empty if they are none, which no tag is."""
    try:
        return bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        return b""
