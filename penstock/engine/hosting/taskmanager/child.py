"""A process of TaskManagers, as the supervisor in Spark's Python worker starts and controls it.

Imports nothing of Penstock. The process takes longest to become ready, so it is started before its
supervisor is imported. It gets its orders when the supervisor has reached the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

_GRACE_S: Final = 2.0
_LAST_WORDS: Final = 2000
_DUMP_S: Final = 0.5
_DUMP_POLL_S: Final = 0.02
_DUMP_BYTES: Final = 256 * 1024

# By default glibc returns large blocks to the system at once and asks for them again for the next
# batch. The page faults cost more than the work (measured: a filter of 65,536 rows takes 45 ns a
# row, 7 ns with these settings). Arrow's own allocator takes twice as long as glibc's with them.
KEPT_BLOCKS: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Environment of a process that works on columns. Settings of the user take precedence."""

# The child waits for its configuration on stdin, so that no secret is in arguments or environment.
# First it ties its life to its parent's (Linux). Garbage is not collected while modules load: they make hardly any.
BOOT: Final = """
import gc, sys
gc.disable()
sys.path.insert(0, sys.argv[1])
from penstock.engine.hosting.taskmanager.process import main
main()
"""
_STARVED: Final = 0.5
PROCESS_NAME: Final = "penstock.engine.hosting.taskmanager.process"
"""Occurs in the command line of each TaskManager's process, and of no other."""


class TaskManagerChild:
    """The process starts with this object. `close` ends it and leaves nothing in the worker, which
    Spark reuses.

    `folder`: its own, which goes with it. `progress_pipe`: the process writes its reports to it, a line each. `reports`: how many
    of progress were read. `peak_bytes`: the most memory that the process had; 0 while it runs.
    """

    def __init__(self, archive: str, python: str | None) -> None:
        """`python`: the interpreter, if it exists here; else the worker's. Raises: OSError, ValueError."""
        self.folder = os.path.dirname(archive)
        self._errors = Path(archive).with_suffix(".stderr")
        self.reports = 0
        self._part = b""
        self.progress_pipe, self._progress_end = os.pipe()
        self._log = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)
        found = python if python and os.access(python, os.X_OK) else sys.executable
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC  # What it prints may show users' data.
        try:
            with (
                open(os.open(self._errors, flags, 0o600), "wb") as stderr,
                os.fdopen(self._progress_end, "wb"),
                os.fdopen(self._log, "wb"),
            ):
                self.process = subprocess.Popen(
                    [found, "-c", BOOT, archive],
                    stdin=subprocess.PIPE,
                    stderr=stderr,
                    pass_fds=(self._progress_end, self._log),
                    # Functions find their interpreter in `python`, as in Flink's workers.
                    env={**KEPT_BLOCKS, **os.environ, "python": found},
                )
        except BaseException:  # Also when the Spark task is interrupted.
            os.close(self.progress_pipe)
            raise
        os.set_blocking(self.progress_pipe, False)
        self.peak_bytes = 0
        self._waited = (0.0, time.monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, order: dict[str, Any]) -> None:
        """Send what is equal for all TaskManagers of the process."""
        times = {**order, "progress_fd": self._progress_end, "log_fd": self._log}
        self.send({**times, "supervisor_pid": os.getpid()})

    def send(self, order: dict[str, Any]) -> None:
        """Send an order. A process that has died is noticed when it is polled."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            # Stdin stays open; when it closes, the child knows that this process is gone.
            self.process.stdin.flush()

    def poll(self) -> int | None:
        """As `Popen.poll`, which drops what the kernel knows of a process that has ended."""
        if self.process.returncode is None:
            with contextlib.suppress(ChildProcessError):  # Somebody has waited for it.
                pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
                if pid:
                    self.process.returncode = os.waitstatus_to_exitcode(status)
                    self.peak_bytes = usage.ru_maxrss * 1024
        return self.process.poll()

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process. Then the supervisor must not send
        heartbeats for it. Linux only.
        """
        try:
            status = Path(f"/proc/{self.process.pid}/stat").read_bytes()
        except OSError:
            return False
        return status.rpartition(b")")[2].split()[0] in (b"T", b"t")

    def was_starved(self) -> bool:
        """Whether the process has waited for a processor most of the time since the last call. Linux only."""
        try:
            times = Path(f"/proc/{self.process.pid}/schedstat").read_text("ascii").split()
            waited_s, now = int(times[1]) / 1e9, time.monotonic()
        except (OSError, ValueError, IndexError):
            return False
        (waited_before, at), self._waited = self._waited, (waited_s, now)
        return waited_s - waited_before > _STARVED * (now - at)

    def read_reports(self) -> list[dict[str, Any]]:
        """Return what it has written (`engine/hosting/taskmanager/residents.py`)."""
        data = os.read(self.progress_pipe, 1 << 16)
        if not data:
            time.sleep(0.01)  # The child is closing; its exit code will follow.
            return []
        *lines, self._part = (self._part + data).split(b"\n")
        reports = [json.loads(line) for line in lines]
        self.reports += sum("progress" in report for report in reports)
        return reports

    def kill(self, dump_signal: signal.Signals | None) -> str:
        """Kill the process, after its threads have written their stacks. Returns: the stacks.

        A stuck C call may hold the GIL, so the stacks are asked for by `dump_signal`; None: no
        stacks.
        """
        if dump_signal is None:
            self.process.kill()
            return ""
        before = self._errors.stat().st_size
        self.process.send_signal(dump_signal)
        deadline = time.monotonic() + _DUMP_S
        size = before
        while time.monotonic() < deadline:
            time.sleep(_DUMP_POLL_S)  # faulthandler does not signal its end.
            known, size = size, self._errors.stat().st_size
            if size > before and size == known:
                break  # The output has stopped growing.
        self.process.kill()
        with self._errors.open("rb") as written:
            written.seek(before)
            return written.read(_DUMP_BYTES).decode("utf-8", errors="replace")

    def last_words(self) -> str:
        """Return the last output on stderr of a process that could not start; empty if there is none."""
        return self._errors.read_text("utf-8", errors="replace").strip()[-_LAST_WORDS:]

    def close(self) -> None:
        """Let the process end by itself for a while, then kill it."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.progress_pipe)
