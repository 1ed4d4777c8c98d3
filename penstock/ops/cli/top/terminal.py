"""A whole window of a terminal, for a while: keys come one by one, and the window is as before in the end, however that comes.

Needs POSIX. Source: curses does the same, but wants to own every character; `rich.live` takes no keys.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Self

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""Another screen, so that the lines of the shell come back; no cursor."""
_LEAVE: Final = "\x1b[H\x1b[J\x1b[?25h\x1b[?1049l"
"""A terminal without another screen gets an empty one."""
_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K"
_REST: Final = "\x1b[J"
_KEY: Final = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[\s\S]")
_NAMES: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "enter",
    b"\x1b[D": "back",
    b"\r": "enter",
    b"\n": "enter",
    b"\x1b": "back",
    b"\x7f": "back",
    b"k": "up",
    b"j": "down",
    b"q": "quit",
    b"s": "sort",
}
_USUAL_SIZE: Final = (80, 24)
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)


def is_terminal() -> bool:
    """Whether keys come from a terminal, and frames go to one."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Terminal:
    """A window of the terminal, for keys and lines:

    `with Terminal() as window`. On the main thread, because it takes signals.
    """

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._modes: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._wakes, self._woken = os.pipe()
        os.set_blocking(self._woken, False)

    def __enter__(self) -> Self:
        self._modes = termios.tcgetattr(self._in)
        try:
            self._take(signal.SIGWINCH, lambda *_: self.wake())
            self._take(signal.SIGTSTP, self._stopped)
            for number in _ENDS:
                self._take(number, _ended)
            self._begin()
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._restore()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self._out)
            if size.columns and size.lines:
                return size.columns, size.lines
        return _USUAL_SIZE

    def wake(self) -> None:
        """End a `keys` that waits. Any thread."""
        with contextlib.suppress(
            OSError
        ):  # It is full, so somebody is woken anyway, or it is over.
            os.write(self._woken, b"w")

    def keys(self, timeout_s: float) -> list[str]:
        """Wait for keys, for `wake`, or for the time. Returns the names of the keys; others are left out.

        Raises EOFError: the terminal is gone.
        """
        ready = select.select([self._in, self._wakes], [], [], timeout_s)[0]
        if self._wakes in ready:
            os.read(self._wakes, 1 << 10)
        if self._in not in ready:
            return []
        data = os.read(self._in, 1 << 10)
        if not data:
            raise EOFError
        return [_NAMES[key] for key in _KEY.findall(data) if key in _NAMES]

    def show(self, lines: Sequence[str]) -> None:
        """Draw lines from the top. The window must have room for them."""
        text = f"{_END_OF_LINE}\r\n".join(lines)
        self._send(f"{_HOME}{text}{_END_OF_LINE}{_REST}")

    def _take(
        self, number: signal.Signals, handler: Callable[[int, FrameType | None], None]
    ) -> None:
        self._handlers[number] = signal.signal(number, handler)

    def _begin(self) -> None:
        tty.setcbreak(self._in)
        self._send(_ENTER)

    def _leave(self) -> None:
        self._send(_LEAVE)
        with contextlib.suppress(termios.error):  # The terminal is gone.
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._modes)

    def _restore(self) -> None:
        self._leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _stopped(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its window, and this one comes back with `fg`."""
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()
        self.wake()

    def _send(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "ascii", "replace")
        with contextlib.suppress(OSError):  # A terminal that is gone is no error.
            while data:
                data = data[os.write(self._out, data) :]


def _ended(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
