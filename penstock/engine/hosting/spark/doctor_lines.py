"""JSON lines over an authenticated socket, between probes and the driver. Nothing is unpickled."""

from __future__ import annotations

import json
import socket
from typing import Any, Final

from penstock.engine.hosting.network.wire import dialling
from penstock.engine.hosting.network.wire.handshake import ROLE_PROBE, Credentials
from penstock.engine.model.errors import AuthenticationError

_MOST: Final = 1 << 20


class Lines:
    """One connection. `receive` waits as long as the socket's time-out allows."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._received = b""

    def send(self, told: Any) -> None:
        self.sock.sendall(json.dumps(told).encode() + b"\n")

    def receive(self) -> Any:
        """Return the next line; None: the other side has closed.

        Raises: OSError; AuthenticationError: not a line that the other side has sent.
        """
        while b"\n" not in self._received:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._received += data
            if len(self._received) > _MOST:
                raise AuthenticationError("a line is longer than a line of a probe can be")
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)


def dial(address: tuple[str, int], credentials: Credentials, timeout_s: float) -> Lines:
    """Connect. Raises: OSError; AuthenticationError: another program listens there."""
    return Lines(dialling.dial(address, credentials, ROLE_PROBE, timeout_s))
