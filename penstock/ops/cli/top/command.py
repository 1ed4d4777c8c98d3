"""`penstock top`: asks on a thread of its own, so that keys work while a driver is slow, and draws on the main thread.

Source: top(1), `kubectl top`; Flink shows the same figures in its dashboard.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from contextlib import ExitStack, suppress
from typing import Any, Final

from penstock.ops.cli.remote.targets import (
    ENDED,
    add_command,
    add_job,
    answers,
    overviews,
    target,
)
from penstock.ops.cli.remote.texts import seconds, shown
from penstock.ops.cli.top.facts import (
    Frame,
    JobPage,
    JobRow,
    checkpoint_row,
    job_row,
    vertex_row,
)
from penstock.ops.remote.client import RemoteError, RestClient

# ---------------------------------------------------------------------- asking
# Asks drivers for what `penstock top` shows. Knows no terminal.


class Asking:
    """One look after the other. One thread calls it."""

    def __init__(self, options: argparse.Namespace) -> None:
        """`options`: which drivers."""
        self._options = options

    def frame(self, opened: str | None) -> Frame:
        """Return everything as it is now. `opened`: the id of the job that is shown in full."""
        rows: list[JobRow] = []
        page = None
        try:
            asked, silent = answers(self._options, overviews)
        except RemoteError as error:
            return Frame(problem=str(error))
        for client, jobs in asked:
            found = [job_row(one, client.address) for one in jobs]
            rows += found
            here = next((one for one in found if one.job_id == opened), None)
            try:
                page = page if here is None else self._page(client, here)
            except RemoteError as error:  # It may have ended; the others still show.
                silent.append(str(error))
        problem = " ".join(silent)
        if opened is not None and page is None and not problem:
            problem = f"job {opened} is gone"
        return Frame(tuple(rows), page, problem)

    def _page(self, client: RestClient, row: JobRow) -> JobPage:
        path = f"/jobs/{row.job_id}"
        graph = client.get(f"{path}/graph")
        bottleneck = _if_there(client, f"{path}/bottleneck")
        checkpoints = _if_there(client, f"{path}/checkpoints")
        return JobPage(
            row,
            tuple(map(vertex_row, graph["nodes"])),
            "" if bottleneck is None else bottleneck["sentence"],
            None if checkpoints is None else checkpoint_row(checkpoints, graph["now"]),
        )


def _if_there(client: RestClient, path: str) -> Any | None:
    """Return an answer; None: this job or this server has none. Raises RemoteError."""
    try:
        return client.get(path)
    except RemoteError as error:
        if error.status == 404:
            return None
        raise


# ---------------------------------------------------------------------- command


_USUAL_INTERVAL_S: Final = 2.0
_LAST_ANSWER_S: Final = 1.0
"""How long a driver is waited for by a user who leaves."""
_TEXT_COLUMNS: Final = 120
_HELP: Final = "q leave   j/k choose   Enter open   s sort: {}"
_HELP_IN_JOB: Final = "q leave   Esc jobs   j/k choose   s sort: {}"


def top(options: argparse.Namespace) -> int:
    """`penstock top`. Ctrl-C and q end it with 0. Raises RemoteError: there is no driver, no such job, or no terminal."""
    if options.once or options.json:
        return _once(options)
    try:
        from penstock.ops.cli.top.terminal import Terminal, is_terminal
    except ImportError:
        raise RemoteError(_NO_TERMINAL) from None
    if not is_terminal():
        raise RemoteError(_NO_TERMINAL)
    view = _View(_opened(options))
    # The window is given back first, and then the thread is waited for.
    with suppress(KeyboardInterrupt, EOFError), ExitStack() as stack, Terminal() as window:
        watch = _Watch(Asking(options), view, window, options.interval)
        stack.callback(watch.leave)
        watch.run()
    return 0


_NO_TERMINAL: Final = "penstock top needs a terminal; with --once or --json it shows one frame"


def _opened(options: argparse.Namespace) -> str | None:
    """Return the job to begin with: the one that is named, or the only one that runs. Raises RemoteError."""
    if options.job is not None:
        return target(options).job_id
    frame = Asking(options).frame(None)
    if frame.problem and not frame.jobs:
        raise RemoteError(frame.problem)
    running = [job for job in frame.jobs if job.status not in ENDED]
    return running[0].job_id if len(running) == 1 else None


def _once(options: argparse.Namespace) -> int:
    opened = _opened(options)
    frame = Asking(options).frame(opened)
    if frame.problem and (not frame.jobs or (opened is not None and frame.page is None)):
        raise RemoteError(frame.problem)
    code = 1 if frame.problem else 0
    if options.json:
        shown(frame.as_json(), options, "")
        return code
    from penstock.ops.cli.top.screen import Screen

    is_shown = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if is_shown else _TEXT_COLUMNS
    encoding = sys.stdout.encoding or "ascii"
    screen = Screen(columns, sys.stdout if is_shown else None, encoding)
    text = "\n".join(line.rstrip() for line in screen.lines(frame, None, "", None))
    print(text.encode(encoding, "replace").decode(encoding))
    return code


class _View:
    """What the user looks at. `opened`: id of a job; None: the list of jobs."""

    def __init__(self, opened: str | None) -> None:
        self.opened = opened
        self.chosen = 0
        self._orders = {True: 0, False: 0}

    @property
    def order(self) -> str:
        from penstock.ops.cli.top.screen import JOB_ORDERS, VERTEX_ORDERS

        orders = JOB_ORDERS if self.opened is None else VERTEX_ORDERS
        return orders[self._orders[self.opened is None] % len(orders)]

    def press(self, key: str, frame: Frame) -> bool:
        """Take a key. Returns: whether another job, or the list, is wanted."""
        from penstock.ops.cli.top.screen import ordered

        rows = ordered(frame, self.order)
        if key == "up":
            self.chosen = max(0, self.chosen - 1)
        elif key == "down":
            self.chosen = min(max(0, len(rows) - 1), self.chosen + 1)
        elif key == "sort":
            self._orders[self.opened is None] += 1
        elif key == "enter" and self.opened is None and self.chosen < len(rows):
            self.opened, self.chosen = rows[self.chosen].job_id, 0
            return True
        elif key == "back" and self.opened is not None:
            self.opened, self.chosen = None, 0
            return True
        return False


class _Watch:
    """Asks and draws until the user leaves."""

    def __init__(self, asking: Asking, view: _View, window: Any, interval_s: float) -> None:
        self._asking = asking
        self._view = view
        self._window = window
        self._interval_s = interval_s
        self._wanted = threading.Event()
        self._frame = Frame()
        self._is_left = False
        self._asks = threading.Thread(target=self._ask, name="penstock-top", daemon=True)

    def run(self) -> None:
        """Raises KeyboardInterrupt, EOFError: the terminal is gone."""
        self._asks.start()
        while True:
            frame = self._frame
            self._draw(frame)
            for key in self._window.keys(self._interval_s):
                if key == "quit":
                    return
                if self._view.press(key, frame):
                    self._frame = frame = Frame(frame.jobs)
                    self._wanted.set()

    def leave(self) -> None:
        """End the thread: one that is in the middle of OpenSSL as the process exits ends it with a segmentation fault."""
        self._is_left = True
        self._wanted.set()
        if self._asks.is_alive():
            self._asks.join(_LAST_ANSWER_S)

    def _ask(self) -> None:
        """On a thread of its own."""
        while not self._is_left:
            opened = self._view.opened
            try:
                frame = self._asking.frame(opened)
            except (
                Exception
            ) as error:  # An answer that is none of a driver's. The next may be better.
                frame = Frame(self._frame.jobs, problem=f"{type(error).__name__}: {error}")
            if opened == self._view.opened:
                self._frame = frame
                self._window.wake()
                self._wanted.wait(self._interval_s)
            self._wanted.clear()

    def _draw(self, frame: Frame) -> None:
        from penstock.ops.cli.top.screen import Screen

        columns, rows = self._window.size
        view = self._view
        # The last column stays empty: a character there makes some terminals begin a new row.
        screen = Screen(columns - 1, sys.stdout, sys.stdout.encoding or "ascii")
        lines = screen.lines(frame, view.chosen, view.order, rows - 1)
        helps = _HELP if view.opened is None else _HELP_IN_JOB
        self._window.show([*lines, helps.format(view.order)[: columns - 1]])


def add_top(commands: Any) -> None:
    """Add the command to the command line."""
    text = "watch jobs and their vertices in the terminal, until q or Ctrl-C"
    shows = add_command(commands, "top", top, text)
    add_job(shows)
    shows.add_argument(
        "-i", "--interval", type=seconds, default=_USUAL_INTERVAL_S, metavar="SECONDS",
        help=f"how often to look ({_USUAL_INTERVAL_S:g})",
    )  # fmt: skip
    shows.add_argument("--once", action="store_true", help="print one frame; needs no terminal")
