"""Programs in a real pseudo-terminal, whose screen a terminal emulator (pyte) draws, with all lines that were scrolled away."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
_KEPT_LINES = 100_000
_TAKES_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the window the controlling terminal, so that Ctrl-C pressed in it reaches the program."""


def _own_environment():
    """Without the size of the terminal of whoever runs the tests."""
    return {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}


class PseudoTerminal:
    """A program that runs in a window of its own. `columns`, `rows`: of the window.

    `flags`: of Python. `stdout`, `stderr`: files or pipes in place of the terminal. What is pressed is not shown.
    """

    def __init__(self, program, *flags, columns=100, rows=30, env=None, **streams):
        self.screen = pyte.HistoryScreen(columns, rows, history=_KEPT_LINES, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.master, window = pty.openpty()
        self._sets_size(columns, rows)
        modes = termios.tcgetattr(window)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(window, termios.TCSANOW, modes)
        self.raw = b""
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", _TAKES_TERMINAL, sys.executable, *flags, str(program)],
            stdin=window,
            stdout=streams.get("stdout", window),
            stderr=streams.get("stderr", window),
            env={**_own_environment(), "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
            | (env or {}),
            start_new_session=True,
        )
        os.close(window)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def resize(self, columns, rows):
        self._sets_size(columns, rows)
        self.screen.resize(rows, columns)

    def _sets_size(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.master, keys)

    def until(self, holds):
        """Until the screen is so; it is looked at whenever the program has written something."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(self):
            assert self._reads(deadline), f"it ended before:\n{self.everything()[-5000:]}"

    def finish(self):
        """All that it writes until it ends. Returns: its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._reads(deadline):
            pass
        return self.process.wait(PATIENCE_S)

    def _reads(self, deadline):
        left_s = deadline - time.monotonic()
        ready = left_s > 0 and select.select([self.master], [], [], left_s)[0]
        assert ready, f"it is not so after {PATIENCE_S} s:\n{self.everything()[-5000:]}"
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # Linux says so when nobody has the window open any more.
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    @property
    def shown(self):
        """The lines of the window."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def scrolled(self):
        """The lines that have left the window at its top."""
        return [_text(line) for line in self.screen.history.top]

    def everything(self):
        return "\n".join([*self.scrolled, *self.shown])

    def lines(self):
        """All lines that are not empty."""
        return [line for line in (*self.scrolled, *self.shown) if line]


def _text(line):
    last = max(line, default=-1)
    return "".join(line[column].data for column in range(last + 1)).rstrip()
