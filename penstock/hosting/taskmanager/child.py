"""A TaskManager's process, as the supervisor in Spark's Python worker has it.

Imports nothing of Penstock: the process takes longest to be ready, so it is started before its supervisor is imported, and told
who it is when that has reached the JobManager.
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
from penstock.hosting.taskmanager.process import main
main()
"""


class TaskManagerChild:
    """Starts with it and ends with `close`, which leaves nothing in a worker that Spark reuses. `progress_pipe`: numbers, a line
    each.
    """

    def __init__(self, archive: str, python: str | None) -> None:
        """`python`: the interpreter, where there is such a one; else the worker's. Raises: OSError, ValueError."""
        self._errors = Path(archive).with_suffix(".stderr")
        self.progress_pipe, self._progress_end = os.pipe()
        self._log = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)
        found = python if python and os.access(python, os.X_OK) else sys.executable
        try:
            with (
                self._errors.open("wb") as stderr,
                os.fdopen(self._progress_end, "wb"),
                os.fdopen(self._log, "wb"),
            ):
                self.process = subprocess.Popen(
                    [found, "-c", _BOOT, archive],
                    stdin=subprocess.PIPE,
                    stderr=stderr,
                    pass_fds=(self._progress_end, self._log),
                    env={**_ALLOCATOR, **os.environ},
                )
        except BaseException:  # also of a task that is interrupted
            os.close(self.progress_pipe)
            raise
        os.set_blocking(self.progress_pipe, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, config: dict[str, Any]) -> None:
        """What it is to be. One that has died is noticed by whoever polls it."""
        told = {**config, "progress_fd": self._progress_end, "log_fd": self._log}
        told["supervisor_pid"] = os.getpid()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(told).encode() + b"\n")
            self.process.stdin.flush()  # and stays open: its end tells the child that we are gone

    @property
    def is_stopped(self) -> bool:
        """By a signal or a debugger: no call that may come back holds it, so nobody vouches for it. Linux; elsewhere never."""
        try:
            status = Path(f"/proc/{self.process.pid}/stat").read_bytes()
        except OSError:
            return False
        return status.rpartition(b")")[2].split()[0] in (b"T", b"t")

    def read_progress(self, before: int) -> int:
        """The newest number that it wrote; `before` if there is none."""
        data = os.read(self.progress_pipe, 1 << 16)
        if not data:
            time.sleep(0.01)  # the child is closing: its exit code is due
            return before
        numbers = [line for line in data.split(b"\n") if line.isdigit()]
        return int(numbers[-1]) if numbers else before

    def kill(self, dump_signal: signal.Signals | None) -> str:
        """At once, but not before its threads have said where they are, for a C call may hold the GIL for ever. Gives their
        stacks. `dump_signal`: makes it write them; None: nothing does.
        """
        if dump_signal is None:
            self.process.kill()
            return ""
        before = self._errors.stat().st_size
        self.process.send_signal(dump_signal)
        deadline = time.monotonic() + _DUMP_S
        size = before
        while time.monotonic() < deadline:
            time.sleep(_DUMP_POLL_S)  # faulthandler does not say when it has written all
            known, size = size, self._errors.stat().st_size
            if size > before and size == known:
                break  # it has stopped growing
        self.process.kill()
        with self._errors.open("rb") as written:
            written.seek(before)
            return written.read(_DUMP_BYTES).decode("utf-8", errors="replace")

    def last_words(self) -> str:
        """What a process that could not start said last; empty: nothing."""
        return self._errors.read_text("utf-8", errors="replace").strip()[-_LAST_WORDS:]

    def close(self) -> None:
        """Time to leave by itself, then the end."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.progress_pipe)
