"""The progress of jobs as a table for a terminal, laid out by `rich`, which only the driver needs.

Knows nothing of where on the terminal it stands: it gives lines of text with colours. A narrow window gets fewer columns.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from penstock.engine.model.texts.amounts import duration_text
from penstock.ops.console.progress import Snapshot, VertexRow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDE: Final = 100
_USUAL: Final = 76
_HALF: Final = 44
_LEAST: Final = 20
_BUSY: Final = 0.9
_BLOCKED: Final = 0.1


@dataclass(frozen=True, slots=True)
class Column:
    """`least`, `most`: the widths of the window, in characters, at which it is shown."""

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


class TableWriter:
    """Makes lines of snapshots, with the colours that this terminal and NO_COLOR allow."""

    def __init__(self, terminal: TextIO) -> None:
        from rich.console import Console

        # Rich asks the environment which colours the terminal has; what it makes stays in memory.
        asked = Console(file=terminal, force_jupyter=False, legacy_windows=False)
        self._held = io.StringIO()
        self._console: Console = Console(
            file=self._held,
            force_terminal=True,
            force_jupyter=False,
            legacy_windows=False,
            color_system=asked.color_system,  # type: ignore[arg-type]
            no_color=asked.no_color,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def lines(self, snapshot: Snapshot, columns: int) -> list[str]:
        """Return the lines of a job. None is wider than `columns`; fewer than 20 have no room for any."""
        from rich.text import Text

        if columns < _LEAST:
            return []
        self._console.width = columns
        self._held.seek(0)
        self._held.truncate()
        head = Text(f"{snapshot.job_name}: {snapshot.headline}", style="bold")
        head.truncate(columns, overflow="ellipsis")
        self._console.print(head, no_wrap=True)
        self._console.print(_table_of(snapshot.rows, columns))
        return self._held.getvalue().splitlines()


class JobTable:
    """The lines of one snapshot, laid out once for each width."""

    def __init__(self, writer: TableWriter, snapshot: Snapshot) -> None:
        self._writer = writer
        self._snapshot = snapshot
        self._known: dict[int, list[str]] = {}

    def lines(self, columns: int) -> list[str]:
        if columns not in self._known:
            self._known = {columns: self._writer.lines(self._snapshot, columns)}
        return self._known[columns]


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
