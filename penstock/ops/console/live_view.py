"""The progress of jobs as tables at the bottom of a terminal, drawn by `rich`, for who sets `penstock.console.live`.

While there is a table, `rich` takes over Python's stdout and stderr, and shows what they print above it. It may draw over what others write to the
terminal: Spark's JVM, or a log handler that has kept a stream. So lines are what everybody else gets.
"""

from __future__ import annotations

import atexit
import io
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from penstock.engine.model.texts.amounts import duration_text
from penstock.ops.console.progress import Snapshot, VertexRow

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.table import Table

_WIDE: Final = 100
_USUAL: Final = 76
_HALF: Final = 44
_BUSY: Final = 0.9
_BLOCKED: Final = 0.1


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `least`, `most`: the widths of the window, in characters, at which it is shown."""

    title: str
    text: Callable[[VertexRow], str]
    style: Callable[[VertexRow], str] = lambda _row: ""
    least: int = 0
    most: int = 1 << 30

    @property
    def is_in_wide_windows(self) -> bool:
        return self.least <= _WIDE <= self.most


COLUMNS: Final = (
    Column("subtasks", lambda row: row.states, least=_WIDE),
    Column("records/s", lambda row: f"{max(row.in_per_s, row.out_per_s):,.0f}", most=_USUAL - 1),
    Column("in/s", lambda row: f"{row.in_per_s:,.0f}", least=_USUAL),
    Column("out/s", lambda row: f"{row.out_per_s:,.0f}", least=_USUAL),
    Column(
        "busy", lambda row: f"{row.busy:.0%}", lambda row: "yellow" if row.busy >= _BUSY else ""
    ),
    Column(
        "back-pressured",
        lambda row: f"{row.backpressured:.0%}",
        lambda row: "red" if row.backpressured >= _BLOCKED else "",
        least=_USUAL,
    ),
    Column(
        "watermark lag",
        lambda row: "-" if row.lag_ms is None else duration_text(row.lag_ms),
        least=_HALF,
    ),
)


@dataclass(frozen=True, slots=True)
class JobTable:
    """What is known of one job, as `rich` renders it: a headline, and a row for each vertex. A narrow window gets fewer columns."""

    snapshot: Snapshot

    def __rich_console__(  # noqa: PLW3201 - rich calls it
        self, _console: Console, options: ConsoleOptions
    ) -> RenderResult:
        from rich.text import Text

        columns = options.max_width
        head = Text(f"{self.snapshot.job_name}: {self.snapshot.headline}", style="bold")
        head.truncate(columns, overflow="ellipsis")
        yield head
        yield _table_of(self.snapshot.rows, columns)


def _table_of(rows: Sequence[VertexRow], columns: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = [one for one in COLUMNS if one.least <= columns <= one.most]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), width=columns)
    table.add_column("vertex", no_wrap=True, overflow="ellipsis", ratio=1)
    for column in shown:
        table.add_column(
            column.title, no_wrap=True, justify="left" if column.least == _WIDE else "right"
        )
    for row in rows:
        cells = [Text(column.text(row), style=column.style(row)) for column in shown]
        table.add_row(Text(row.name), *cells)
    return table


class LiveView:
    """The tables of all jobs of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[Hashable, JobTable] = {}
        self._live: Live | None = None
        self._is_over = False
        # `print` borrows the stream while it writes (CPython 3.11): what `rich` takes away again must not be freed under it.
        self._proxies: list[TextIO] = []

    def show(self, key: Hashable, snapshot: Snapshot) -> None:
        """Draw the table of a job, or new figures of it."""
        with self._lock:
            if not self._is_over:
                self._tables[key] = JobTable(snapshot)
                self._draw()

    def remove(self, key: Hashable) -> None:
        """The table of a job goes away. The last one stays on the screen as it is, above what comes then."""
        with self._lock:
            if self._tables.pop(key, None) is not None:
                self._draw()

    def close(self) -> None:
        """The program ends: what is on the screen stays, and jobs that still run draw no more."""
        with self._lock:
            self._is_over = True
            self._tables = {}
            self._draw()

    def _draw(self) -> None:
        if not self._tables:
            if self._live is not None:
                self._live.stop()
                self._live = None
            return
        from rich.console import Group

        if self._live is None:
            if not self._proxies:
                atexit.register(self.close)
            self._live = _begun()
            self._proxies += [sys.stdout, sys.stderr]
        self._live.update(Group(*self._tables.values()), refresh=True)


LIVE_VIEW: Final = LiveView()


def is_live(stream: TextIO) -> bool:
    """Whether tables can be drawn where this stream goes: it is a terminal that can move its cursor."""
    from rich.console import Console

    # A notebook has streams of its own, which only it knows how to show.
    is_terminal = isinstance(stream, io.TextIOWrapper) and stream.isatty()
    return is_terminal and not Console(file=stream).is_dumb_terminal


def _begun() -> Live:
    from rich.console import Console
    from rich.live import Live

    live = Live(
        console=Console(stderr=True, highlight=False, markup=False, emoji=False),
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),  # What goes to a file goes there still.
    )
    live.start()
    return live
