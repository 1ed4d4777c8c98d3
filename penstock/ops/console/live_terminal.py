"""A table below everything else on a terminal: what anybody prints appears above it, and nothing is lost.

The cursor always stands where the next output belongs, and the table lies below the cursor. So output of any thread or
process, Spark's JVM too, lands where it would land without a table, and drawing never moves up over lines that somebody
has written. `rich.live` is no use here: it keeps the cursor below the table, and its next drawing erases what others have
written there; it also wraps long lines of output.

What this process prints with Python's streams erases the table before it and redraws it after it. Other output leaves
the rest of a table's row behind it, at most until it is scrolled away, and loses nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, TextIO

_ERASE_BELOW: Final = "\x1b[J"
_DOWN: Final = "\x1bD"
"""Keeps the column, unlike a line feed; at the bottom of the window all lines move up."""
_UP: Final = "\x1b[{}A"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_PLAIN: Final = "\x1b[m"
_USUAL_SIZE: Final = (79, 24)
_LEAST_GAP_S: Final = 0.01
"""Between two drawings. Within a burst of output the table is away, so that it does not slow the program down."""
_PAUSE_S: Final = 0.05
"""After a burst, until the table is back."""

Lines = Callable[[int], list[str]]
"""The lines of a table for a window of so many columns. Asked again for each drawing, so they are kept."""


def is_live(stream: TextIO | None) -> bool:
    """Whether a table can be drawn below what this stream shows: it is a terminal that can move its cursor."""
    if sys.platform == "win32" or os.environ.get("TERM", "dumb") in {"", "dumb", "unknown"}:
        return False
    return _device(stream) is not None


def _device(stream: TextIO | None) -> tuple[int, int] | None:
    """Return what terminal this stream writes to; None: it is none, or not one that Python writes to itself."""
    if not isinstance(stream, io.TextIOWrapper):
        return None  # Of an IDE, a notebook or a test: only its owner knows where it goes.
    with contextlib.suppress(OSError, ValueError):
        about = os.fstat(stream.fileno())
        if stat.S_ISCHR(about.st_mode) and stream.isatty():
            return about.st_dev, about.st_rdev
    return None


def _size(fd: int) -> tuple[int, int]:
    """Return the columns that a table may fill, and the rows of the window.

    The last column stays empty: a character there makes some terminals begin a new row.
    """
    with contextlib.suppress(OSError):
        size = os.get_terminal_size(fd)
        if size.columns and size.lines:
            return size.columns - 1, size.lines
    return _USUAL_SIZE


class LiveTerminal:
    """The terminal of one stream. Thread-safe. It begins with the first table and ends with the last one.

    While there is a table, `write` and `flush` of Python's streams to this terminal are replaced on the objects
    themselves, so that log handlers, which keep a stream that they once got, go through them too.
    """

    def __init__(self, stream: TextIO) -> None:
        """`stream`: one for which `is_live` holds."""
        self._stream = stream
        self._lock = threading.RLock()  # A signal handler may print while its thread draws.
        self._tables: dict[Hashable, Lines] = {}
        self._hooks: list[_Hook] = []
        self._fd = -1
        self._drawn_lines = 0
        self._drawn_at = 0.0
        self._is_due = threading.Event()

    def show(self, key: Hashable, lines: Lines) -> None:
        """Draw a table, or new figures of it. Tables of several jobs are drawn in the order in which they came."""
        lines(
            _size(self._stream.fileno())[0]
        )  # Laying out takes longer than drawing: not under the lock.
        with self._lock:
            if _Shared.is_over:
                return
            if not self._tables:
                self._begin()
            self._tables[key] = lines
            self._draw()

    def remove(self, key: Hashable) -> None:
        """Take a table away. Does nothing if it is not there."""
        with self._lock:
            if self._tables.pop(key, None) is None:
                return
            if self._tables:
                self._draw()
            else:
                self._end()

    def close(self) -> None:
        """Take all tables away: the program ends, whatever its jobs do."""
        with self._lock:
            for key in list(self._tables):
                self.remove(key)

    # ------------------------------------------------------------------ begin and end

    def _begin(self) -> None:
        # Of its own, because Spark's start redirects stderr for a while.
        self._fd = os.dup(self._stream.fileno())
        device = _device(self._stream)
        streams = {id(one): one for one in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}
        self._hooks = [
            _Hook(one, self)
            for one in streams.values()
            if isinstance(one, io.TextIOWrapper) and _device(one) == device
        ]
        self._is_due = threading.Event()
        threading.Thread(
            target=self._draw_after_bursts, args=(self._is_due,), name="penstock-table", daemon=True
        ).start()

    def _end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._drawn_lines:
            self._send(_ERASE_BELOW)
        self._drawn_lines = 0
        os.close(self._fd)
        self._fd = -1
        self._is_due.set()  # Its thread sees that nothing is left, and ends.

    def is_of(self, stream: TextIO) -> bool:
        return self._stream is stream

    def forget(self) -> None:
        """In a forked child: the terminal is the parent's, and no thread of the parent's can give the lock back."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._tables = [], {}
        self._lock = threading.RLock()

    # ------------------------------------------------------------------ drawing

    def prefix(self) -> str:
        """Return what must come before output. Called with the lock held, as `printed` is."""
        return _ERASE_BELOW if self._drawn_lines else ""

    def printed(self) -> None:
        """Output has gone to the terminal, and the prefix before it."""
        self._drawn_lines = 0
        if time.monotonic() - self._drawn_at >= _LEAST_GAP_S:
            self._draw()
        else:
            self._is_due.set()

    @property
    def lock(self) -> threading.RLock:
        """Held while anybody prints or draws."""
        return self._lock

    def _draw_after_bursts(self, is_due: threading.Event) -> None:
        while is_due.wait():
            is_due.clear()
            time.sleep(_PAUSE_S)
            with self._lock:
                if self._is_due is not is_due or not self._tables:
                    return
                if not self._drawn_lines:
                    self._draw()

    def _draw(self) -> None:
        """Draw all tables in the rows below the cursor, with the cursor's own row between."""
        for hook in self._hooks:
            hook.let_out()
        columns, rows = _size(self._fd)
        found = [line for lines in self._tables.values() for line in lines(columns)]
        found = found[: max(0, rows - 2)]
        room = _DOWN * len(found) + _UP.format(len(found)) if found else ""
        table = "".join(f"\r\n{_PLAIN}{line}" for line in found)
        self._send(f"{_ERASE_BELOW}{room}{_SAVE}{table}{_RESTORE}")
        self._drawn_lines = len(found)
        self._drawn_at = time.monotonic()

    def _send(self, text: str) -> None:
        """Write in one call, so that no output of others comes between."""
        data = text.encode(self._stream.encoding or "ascii", "replace")
        with contextlib.suppress(OSError):  # A terminal that is gone is no error.
            while data:
                data = data[os.write(self._fd, data) :]


class _Hook:
    """Replaces `write` and `flush` of one stream on the object itself."""

    def __init__(self, stream: io.TextIOWrapper, terminal: LiveTerminal) -> None:
        self._stream = stream
        self._terminal = terminal
        self._write, self._flush = stream.write, stream.flush
        self._own: dict[str, Any] = {"write": self.write, "flush": self.flush}
        self._is_removed = self._holds_text = False
        vars(stream).update(self._own)

    def write(self, text: str) -> int:
        """As the stream's. Python sends text to a terminal when a line ends."""
        if (
            self._is_removed or sys.is_finalizing()
        ):  # Somebody has kept this method, or holds the lock for ever.
            return self._write(text)
        with self._terminal.lock:
            self._write(self._terminal.prefix() + text if isinstance(text, str) else text)
            self._holds_text = "\n" not in text and "\r" not in text
            if not self._holds_text:
                self._terminal.printed()
        return len(text)

    def flush(self) -> None:
        if self._is_removed or sys.is_finalizing():
            self._flush()
            return
        with self._terminal.lock:
            self._flush()
            if self._holds_text:
                self._holds_text = False
                self._terminal.printed()

    def let_out(self) -> None:
        """Write the line that was begun, before a table is drawn: what was written without a table cannot erase one."""
        if self._holds_text:
            self._holds_text = False
            with contextlib.suppress(OSError, ValueError):  # A closed stream is no error.
                self._flush()

    def remove(self) -> None:
        """Give the stream its own methods back, unless somebody has replaced them since."""
        self._is_removed = True
        for name, own in self._own.items():
            if vars(self._stream).get(name) == own:
                del vars(self._stream)[name]


class _Shared:
    """The one of this process."""

    terminal: LiveTerminal | None = None
    lock = threading.Lock()
    is_watched = False
    is_over = False
    """The program ends: jobs that still run draw no more."""


def live_terminal(stream: TextIO) -> LiveTerminal:
    """Return the terminal of this stream, for which `is_live` holds. Jobs of one process share it."""
    with _Shared.lock:
        if not _Shared.is_watched:
            _Shared.is_watched = True
            atexit.register(_end)
            os.register_at_fork(after_in_child=_forget)
        if _Shared.terminal is None or not _Shared.terminal.is_of(stream):
            _close()
            _Shared.terminal = LiveTerminal(stream)
        return _Shared.terminal


def _end() -> None:
    _Shared.is_over = True
    _close()


def _close() -> None:
    if _Shared.terminal is not None:
        _Shared.terminal.close()


def _forget() -> None:
    _Shared.lock = threading.Lock()
    if _Shared.terminal is not None:
        _Shared.terminal.forget()
        _Shared.terminal = None
