"""Changes bytes on their way from one process of a run to another, in connections that are established already. Linux.

What somebody on the network can do is done at its two ends: the receiver is stopped until bytes wait for it, then the sender
is stopped too, the bytes are taken out of the receiver's queue and what becomes of them is sent on by the sender's own socket.
So the receiver sees the changed bytes in their place, and then what its peer sends next.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import random
import signal
import socket
import termios
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from audit.processes import drivers, socket_of, supervisors, taskmanagers

_SIOCOUTQ: Final = termios.TIOCOUTQ
_POLL_S: Final = 0.005
_BYTES_S: Final = 1.5
"""How long a receiver may be stopped until bytes come: those who talk send heartbeats more often."""
_LIMIT_S: Final = 5.0


class Damage(StrEnum):
    """What becomes of one of the bytes, or of all from it on."""

    FLIP = "one bit flipped"
    DROP = "dropped"
    REPEAT = "sent twice"
    TRUNCATE = "the last before the end"


@dataclass(frozen=True, slots=True)
class End:
    """One end of a connection: a process and its descriptor."""

    process: psutil.Process
    number: int


@dataclass(frozen=True, slots=True)
class Link:
    """A direction of a TCP connection between two processes of a run. `carries`: data or control messages."""

    sender: End
    receiver: End
    carries: str

    def __str__(self) -> str:
        return (
            f"{self.carries} from process {self.sender.process.pid} to {self.receiver.process.pid}"
        )


def links(mark: str) -> list[Link]:
    """Of the processes of the run that are Penstock's, in both directions."""
    managers = taskmanagers(mark)
    return _matched(managers, [*supervisors(mark), *drivers(mark)])


def _matched(managers: Sequence[psutil.Process], others: Sequence[psutil.Process]) -> list[Link]:
    ends: dict[tuple[object, object], End] = {}
    for process in [*managers, *others]:
        with contextlib.suppress(psutil.Error):
            for one in process.net_connections("tcp"):
                if one.status == psutil.CONN_ESTABLISHED and one.fd >= 0:
                    ends[tuple(one.laddr), tuple(one.raddr)] = End(process, one.fd)
    found = []
    for (here, there), receiver in ends.items():
        sender = ends.get((there, here))
        if sender is not None:
            is_data = sender.process in managers and receiver.process in managers
            found.append(Link(sender, receiver, "data" if is_data else "control"))
    return sorted(found, key=lambda link: (link.sender.process.pid, link.receiver.process.pid))


def changed(data: bytes, damage: Damage, place: int, bit: int) -> bytes:
    """What is sent on. `place`: of the byte. `bit`: which of its bits."""
    if damage is Damage.FLIP:
        return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
    if damage is Damage.DROP:
        return data[:place] + data[place + 1 :]
    return data[: place + 1] + (data[place:] if damage is Damage.REPEAT else b"")


def harm(link: Link, damage: Damage, chance: random.Random) -> str | None:
    """Returns: what was done. None: no bytes came, or the connection is no more."""
    with contextlib.suppress(OSError, psutil.Error):
        with (
            socket_of(link.receiver.process.pid, link.receiver.number) as receiver,
            socket_of(link.sender.process.pid, link.sender.number) as sender,
            stopped(link.receiver.process),
        ):
            if not _comes(receiver):
                return None
            with stopped(link.sender.process):
                data = _taken(sender, receiver)
                if not data:
                    return None
                place = chance.randrange(len(data))
                _send(sender, changed(data, damage, place, chance.randrange(8)))
                if damage is Damage.TRUNCATE:
                    sender.shutdown(socket.SHUT_RDWR)
        return f"byte {place} of {len(data):,} of {link}: {damage}"
    return None


# ------------------------------------------------------------------ both ends


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Generator[None]:
    """All of its threads stand still. Raises: psutil.NoSuchProcess, TimeoutError."""
    process.send_signal(signal.SIGSTOP)
    try:
        deadline = time.monotonic() + _LIMIT_S
        while not _stands_still(process.pid):
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {process.pid} does not stop")
            time.sleep(_POLL_S)
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # A thread has ended.
            states.add((task / "stat").read_bytes().rpartition(b")")[2].split()[0])
    return states <= {b"T", b"t"}


def _queued(sock: socket.socket, which: int) -> int:
    """Bytes that wait to be read (FIONREAD) or to be acknowledged by the other end (SIOCOUTQ)."""
    told = array.array("i", [0])
    fcntl.ioctl(sock, which, told)
    return told[0]


def _comes(receiver: socket.socket) -> bool:
    deadline = time.monotonic() + _BYTES_S
    while not _queued(receiver, termios.FIONREAD):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _taken(sender: socket.socket, receiver: socket.socket) -> bytes:
    """All that is on its way. Both ends stand still; the descriptors do not block because both have MSG_DONTWAIT."""
    parts = []
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        try:
            part = receiver.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if not _queued(sender, _SIOCOUTQ):
                break
            time.sleep(_POLL_S)
            continue
        if not part:
            break  # The other end has closed.
        parts.append(part)
    return b"".join(parts)


def _send(sender: socket.socket, data: bytes) -> None:
    """What fits is sent: the receiver, which stands still, has just made room for as much. Raises: OSError."""
    left = memoryview(data)
    deadline = time.monotonic() + _LIMIT_S
    while left:
        try:
            left = left[sender.send(left, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)
