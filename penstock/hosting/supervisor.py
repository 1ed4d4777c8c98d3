"""What runs in Spark's Python worker: a supervisor that keeps one TaskManager process.

Single-threaded and without user code: Spark reuses workers, and a thread or module left in one would show up in
the user's next job. It starts the TaskManager as a child (same process group, dies with its parent), heartbeats
for it (unless it is stopped), kills it when told to or when the JobManager is gone, and returns normally: Spark's retry is not ours.

Source: the rules of Ray on Spark and Flink's YARN containers. Imported from the shipped archive only
(`spark_executor`), and removed from the worker's modules afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.hosting.handshake import (
    NONCE_BYTES,
    ROLE_SUPERVISOR,
    ClientHandshake,
    Credentials,
)
from penstock.hosting.stacks import DUMP_SIGNAL, stacks_of_tasks
from penstock.hosting.wire import MessageBuffer, encode, notice_lost_peer, run_handshake
from penstock.model.errors import ExternalError
from penstock.model.ids import ResourceId
from penstock.model.messages import Heartbeat, KillTaskManager, ProcessEnded, Shutdown

_GRACE_S: Final = 2.0
_LAST_WORDS: Final = 2000
_DUMP_S: Final = 0.5
_DUMP_POLL_S: Final = 0.02
_DUMP_BYTES: Final = 256 * 1024
_CONNECT_TIMEOUT_S: Final = 10.0
_FOLDER: Final = re.compile(r"penstock-(\d+)-.+")  # `spark_executor` makes them

# glibc gives large blocks back to the system at once and asks for them again for the next batch; the page faults
# cost more than the work (measured: a filter of 65,536 rows 45 ns a row, 7 ns with these). The user's own
# settings count if there are any.
_ALLOCATOR: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}

# The child waits for its configuration on stdin: no secret is in arguments or environment. Its first act is to
# tie its life to its parent's (Linux), before anything can go wrong.
_BOOT: Final = """
import sys
sys.path.insert(0, sys.argv[1])
from penstock.hosting.taskmanager_process import main
main()
"""


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """Plain data from the driver. `taskmanager`: what the child gets as JSON on its stdin."""

    resource_id: str
    master_host: str
    master_port: int
    secret: bytes
    token: str
    cluster_id: str
    heartbeat_interval_s: float
    silence_timeout_s: float
    python: str | None
    taskmanager: dict[str, Any]


def supervise(config: SupervisorConfig, archive: str) -> str:
    """Run one TaskManager to its end; returns why it ended. Raises nothing that Spark would retry."""
    with _claimed(archive):
        sweep_leftovers()
        try:
            sock, buffer = _connect(config)
        except (OSError, ExternalError) as error:
            return f"supervisor could not reach the JobManager: {error}"
        with sock, contextlib.ExitStack() as stack:
            return _keep_child(config, archive, sock, buffer, stack)


def _keep_child(
    config: SupervisorConfig,
    archive: str,
    sock: socket.socket,
    buffer: MessageBuffer,
    stack: contextlib.ExitStack,
) -> str:
    errors = Path(archive).with_suffix(".stderr")
    try:
        child, progress_pipe = _start_child(config, archive, errors, stack)
    except (OSError, ValueError) as error:
        return f"the TaskManager process could not be started: {error}"
    try:
        ended = _watch(config, sock, buffer, child, progress_pipe)
        if isinstance(ended, KillTaskManager):
            ended = f"{ended.reason}{_kill(child, errors)}"
        else:
            ended += _tail(errors)
    except OSError as error:
        return f"connection to the JobManager ended: {error}"
    with contextlib.suppress(OSError):  # the JobManager may be gone
        _send(sock, encode(ProcessEnded(ResourceId(config.resource_id), ended)))
    return ended


@contextlib.contextmanager
def _claimed(archive: str) -> Generator[None, None, None]:
    """Locked while it is in use: a container that shares the folder but not our process ids sees that."""
    with Path(archive).open("rb") as claim:
        if sys.platform != "win32":
            import fcntl

            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(claim, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def sweep_leftovers() -> None:
    """Remove folders of our user's whose worker was killed before it could."""
    if sys.platform == "win32":
        return  # there is no asking for a process there without ending it
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            found = _FOLDER.fullmatch(entry.name)
            if found is not None and _is_leftover(entry, int(found[1])):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_leftover(entry: os.DirEntry[str], pid: int) -> bool:
    try:
        if not entry.is_dir(follow_symlinks=False):
            return False
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        os.kill(pid, 0)
    except ProcessLookupError:
        return not _is_claimed(entry.path)
    except (OSError, OverflowError):
        return False
    return False


def _is_claimed(folder: str) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        with (Path(folder) / "penstock.zip").open("rb") as claim:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _connect(config: SupervisorConfig) -> tuple[socket.socket, MessageBuffer]:
    address = (config.master_host, config.master_port)
    sock = socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S)
    credentials = Credentials(config.secret, config.token, config.cluster_id)
    nonce = secrets.token_bytes(NONCE_BYTES)
    handshake = ClientHandshake(credentials, ROLE_SUPERVISOR, nonce)
    try:
        run_handshake(sock, handshake)
        notice_lost_peer(sock)
        buffer = MessageBuffer()
        buffer.feed(handshake.leftover)
        sock.sendall(encode(Heartbeat(ResourceId(config.resource_id), 0)))
    except BaseException:
        sock.close()
        raise
    return sock, buffer


def _start_child(
    config: SupervisorConfig, archive: str, errors: Path, stack: contextlib.ExitStack
) -> tuple[subprocess.Popen[bytes], int]:
    """`stack` ends the child and closes what Spark's reused worker must not keep."""
    read_end, write_end = os.pipe()
    stack.callback(os.close, read_end)
    python = (
        config.python if config.python and os.access(config.python, os.X_OK) else sys.executable
    )
    with errors.open("wb") as stderr, os.fdopen(write_end, "wb"):
        child = subprocess.Popen(
            [python, "-c", _BOOT, archive],
            stdin=subprocess.PIPE,
            stderr=stderr,
            pass_fds=(write_end,),
            env={**_ALLOCATOR, **os.environ},
        )
    stack.callback(_end, child)
    os.set_blocking(read_end, False)
    told = {**config.taskmanager, "progress_fd": write_end, "supervisor_pid": os.getpid()}
    told |= {
        "resource_id": config.resource_id,
        "master_host": config.master_host,
        "master_port": config.master_port,
        "secret": config.secret.hex(),
        "token": config.token,
        "cluster_id": config.cluster_id,
        "heartbeat_interval_s": config.heartbeat_interval_s,
        "silence_timeout_s": config.silence_timeout_s,
    }
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died already: _watch tells
        child.stdin.write(json.dumps(told).encode() + b"\n")
        child.stdin.flush()  # and stays open: its end tells the child that we are gone
    return child, read_end


def _watch(
    config: SupervisorConfig,
    sock: socket.socket,
    buffer: MessageBuffer,
    child: subprocess.Popen[bytes],
    progress_pipe: int,
) -> str | KillTaskManager:
    """Until one of the three ends: why."""
    progress = 0
    next_beat = 0.0
    heard_at = time.monotonic()
    sock.setblocking(False)
    while True:
        code = child.poll()
        if code is not None:
            return f"TaskManager process ended with {_ending(code)}"
        now = time.monotonic()
        if now - heard_at >= config.silence_timeout_s:
            child.kill()  # no time to leave: another driver may have its work done already
            return f"nothing was heard of the JobManager for {config.silence_timeout_s:g} s"
        if now >= next_beat:
            next_beat = now + config.heartbeat_interval_s
            if not is_stopped(child.pid):
                _send(sock, encode(Heartbeat(ResourceId(config.resource_id), progress)))
        wait_s = min(0.1, max(0.0, next_beat - now))  # a child's end is noticed within 0.1 s
        watched: list[Any] = [sock, progress_pipe]
        readable, _, _ = select.select(watched, [], [], wait_s)
        if progress_pipe in readable:
            progress = _read_progress(progress_pipe, progress)
        if sock in readable:
            data = sock.recv(1 << 16)
            if not data:
                return "the JobManager closed the connection"
            heard_at = now
            for message in buffer.feed(data):
                if isinstance(message, Shutdown):
                    return f"told to end: {message.reason}"
                if isinstance(message, KillTaskManager):
                    return message


def is_stopped(pid: int) -> bool:
    """By a signal or a debugger: no call that may come back holds it, so nobody vouches for it. Linux; elsewhere never."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return status.rpartition(b")")[2].split()[0] in (b"T", b"t")


def _read_progress(pipe: int, before: int) -> int:
    data = os.read(pipe, 1 << 16)
    if not data:
        time.sleep(0.01)  # the child is closing: its exit code is due
        return before
    lines = data.split(b"\n")
    numbers = [line for line in lines if line.isdigit()]
    return int(numbers[-1]) if numbers else before


def _send(sock: socket.socket, data: bytes) -> None:
    """Small and rare: a socket that is full for so long belongs to a lost JobManager."""
    sock.settimeout(_CONNECT_TIMEOUT_S)
    sock.sendall(data)
    sock.setblocking(False)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Time to leave by itself, then the end."""
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _kill(child: subprocess.Popen[bytes], errors: Path) -> str:
    """At once, but not before its threads have said where they are: a C call may hold the GIL for ever."""
    if DUMP_SIGNAL is None:
        child.kill()
        return ""
    before = errors.stat().st_size
    child.send_signal(DUMP_SIGNAL)
    deadline = time.monotonic() + _DUMP_S
    size = before
    while time.monotonic() < deadline:
        time.sleep(_DUMP_POLL_S)
        known, size = size, errors.stat().st_size
        if size > before and size == known:
            break  # it has stopped growing
    child.kill()
    with errors.open("rb") as written:
        written.seek(before)
        dump = written.read(_DUMP_BYTES).decode("utf-8", errors="replace")
    stacks = stacks_of_tasks(dump)
    return f"; {stacks}" if stacks else ""


def _tail(errors: Path) -> str:
    """What a process that could not start said last."""
    text = errors.read_text("utf-8", errors="replace").strip()
    return f"; its last words:\n{text[-_LAST_WORDS:]}" if text else ""


def _ending(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
