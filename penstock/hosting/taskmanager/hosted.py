"""Whom a supervisor is connected to: the pool of the driver, and the JobManagers of the TaskManagers in its process.

As `supervisor.py`: single-threaded, without user code, imported from the shipped archive only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from penstock.hosting.logs.folder import LogFolder
from penstock.hosting.wire.control_wire import ControlWire
from penstock.hosting.wire.dialling import closed_on_error, dial
from penstock.hosting.wire.handshake import ROLE_SUPERVISOR, Credentials
from penstock.model.ids import ResourceId
from penstock.model.messages import Heartbeat, LogEvent, LogEvents, ProcessEnded

_SEND_TIMEOUT_S: Final = 10.0


@dataclass(slots=True, eq=False)
class Peer:
    """One connection to the driver. `name`: as the other end knows this one. `sock` None: it is closed, or not open yet.

    `heard_at`: on the monotonic clock, in s. `progress`: what heartbeats tell.
    """

    name: ResourceId
    sock: socket.socket | None
    _wire: ControlWire | None
    silence_s: float
    heard_at: float
    progress: int = 0

    @property
    def wire(self) -> ControlWire:
        assert self._wire is not None
        return self._wire

    def opened(self, sock: socket.socket, wire: ControlWire) -> None:
        self.sock, self._wire = sock, wire
        self.heard_at = time.monotonic()

    def send(self, message: object) -> None:
        """Send a message. Messages are small and rare, so a socket that stays full belongs to a lost driver. Raises: OSError."""
        if self.sock is None:
            return
        self.sock.settimeout(_SEND_TIMEOUT_S)
        self.sock.sendall(self.wire.frame(message))
        self.sock.setblocking(False)

    def received(self) -> list[Any] | None:
        """Return what has come; None: the other end has closed the connection. Raises: OSError, ExternalError."""
        assert self.sock is not None
        data = self.sock.recv(1 << 16)
        return list(self.wire.feed(data)) if data else None

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


@dataclass(slots=True, eq=False)
class Hosted(Peer):
    """A TaskManager in the process, and the connection to its JobManager. `log_folder`: goes with it. `ends_at`: when it must be
    over; None: it may stay. `why`: it ends.
    """

    log_folder: str = ""
    log_path: str = ""
    ends_at: float | None = None
    why: str = ""

    def tell_end(self, cause: str) -> None:
        """Tell the JobManager that it is over, if it still listens, and remove its log."""
        with contextlib.suppress(OSError):  # The JobManager may be gone.
            lines = LogFolder(self.log_path).last_lines()
            self.send(ProcessEnded(self.name, self.why or cause, lines))
        shutil.rmtree(self.log_folder, ignore_errors=True)


def connect(
    address: tuple[str, int], credentials: Credentials, name: ResourceId, timeout_s: float
) -> tuple[socket.socket, ControlWire]:
    """Return a connection to the driver that has told a first heartbeat. Raises: OSError, ExternalError."""
    proven = dial(address, credentials, ROLE_SUPERVISOR, timeout_s)
    with closed_on_error(proven.sock):
        wire = ControlWire(proven.session)
        list(wire.feed(proven.early))  # Only heartbeats: the first order follows our message.
        proven.sock.sendall(wire.frame(Heartbeat(name, 0)))
        proven.sock.setblocking(False)
    return proven.sock, wire


def usable(log_path: str, own_folder: str) -> tuple[str, str]:
    """Return a path of a log that can be written, and why it is not the wanted one; "": it is."""
    folder = os.path.dirname(log_path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return log_path, ""
        trouble = "this user may not write to it"
    except OSError as error:
        trouble = str(error)
    instead = os.path.join(own_folder, os.path.basename(log_path))
    return instead, (
        f"the log cannot be written to {folder}: {trouble}. It goes to a temporary file, which is "
        "removed with the TaskManager. Set env.log.dir to a folder that all executors can write."
    )


def warning(resource_id: ResourceId, text: str) -> LogEvents:
    """Return a warning of a TaskManager's supervisor for the console."""
    level, now_ms = logging.WARNING, time.time_ns() // 1_000_000
    event = LogEvent(now_ms, level, "WARNING", __name__, None, "", f"{resource_id}: {text}", text)
    return LogEvents(resource_id, (event,))
