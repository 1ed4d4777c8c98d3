"""Lays a frame of `penstock top` out as lines of text, with `rich`. Knows no terminal but its width, height and colours.

A narrow window gets fewer columns, and a low one the rows around the chosen one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.engine.model.texts.bounded_text import printable
from penstock.ops.cli.remote.targets import ENDED
from penstock.ops.cli.remote.texts import duration
from penstock.ops.cli.top.facts import Frame, JobPage, JobRow, VertexRow

_BAR: Final = 10
_LEAST: Final = 20
_MOST_OF_SENTENCE: Final = 3
_STATUS: Final = {
    "RUNNING": "green",
    "FINISHED": "cyan",
    "FAILED": "red",
    "FAILING": "red",
    "RESTARTING": "yellow",
}
_BUSY, _BLOCKED = 0.9, 0.1

JOB_ORDERS: Final = ("newest", "name", "longest")
VERTEX_ORDERS: Final = ("plan", "busy", "back-pressured", "in/s", "out/s")
_JOB_KEYS: Final[dict[str, Callable[[JobRow], Any]]] = {
    "newest": lambda row: row.duration_ms,
    "name": lambda row: row.name,
    "longest": lambda row: -row.duration_ms,
}
_VERTEX_KEYS: Final = {
    "busy": attrgetter("busy"),
    "back-pressured": attrgetter("blocked"),
    "in/s": attrgetter("in_per_s"),
    "out/s": attrgetter("out_per_s"),
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table. `least`: the width of the window at which it is shown."""

    title: str
    cell: Callable[[VertexRow, Screen], Text]
    least: int = 0


class Screen:
    """Draws the view as lines of text.

    `columns`: of the window. `colours_of`: a terminal; None: no colours. `bars`: filled and empty.
    """

    def __init__(self, columns: int, colours_of: TextIO | None, encoding: str) -> None:
        self.columns = max(_LEAST, columns)
        asked = None if colours_of is None else Console(file=colours_of, force_jupyter=False)
        self._held = io.StringIO()
        self._console = Console(
            file=self._held,
            width=self.columns,
            force_terminal=asked is not None,
            force_jupyter=False,
            legacy_windows=False,
            color_system=None if asked is None else asked.color_system,  # type: ignore[arg-type]
            no_color=asked is None or asked.no_color,
            highlight=False,
            markup=False,
            emoji=False,
        )
        is_rich = "utf" in encoding.lower()
        self.full, self.empty = ("█", "░") if is_rich else ("#", ".")

    def lines(self, frame: Frame, chosen: int | None, order: str, rows: int | None) -> list[str]:
        """Return the lines, none wider than the window. `chosen`: the row that is marked. `rows`: of the window; None: all."""
        page = frame.page
        head = _head_of_list(frame) if page is None else self._head_of(page)
        if frame.problem:
            head += self._wrapped(frame.problem, "red", _MOST_OF_SENTENCE)
        shown = ordered(frame, order)
        first, room = 0, len(shown)
        if rows is not None:
            head = head[: max(1, rows - 3)]
            room = max(1, rows - len(head) - 2)
            first = max(0, min((chosen or 0) - room // 2, len(shown) - room))
        part = shown[first : first + room]
        marked = None if chosen is None else chosen - first
        table = self._table(page, part, marked)
        return self._printed([*head, table])[: rows if rows is None else max(1, rows)]

    def _head_of(self, page: JobPage) -> list[Text]:
        job = page.job
        lines = [
            Text.assemble(
                _text(f"{job.name} ", "bold"),
                _text(f"({job.job_id[:8]}) "),
                _text(job.status, _STATUS.get(job.status, "")),
                f" for {duration(job.duration_ms)}, {job.running}/{job.total} subtasks run",
            )
        ]
        one = page.checkpoint
        if one is not None:
            failed = f"; {one.failed} failed" if one.failed else ""
            text = (
                f"checkpoint {one.checkpoint_id} took {duration(one.took_ms)} "
                f"({one.state_bytes:,} bytes), {duration(max(0, one.age_ms))} ago{failed}"
            )
            lines.append(_text(text))
        return lines + self._wrapped(page.sentence, "", _MOST_OF_SENTENCE)

    def _wrapped(self, text: str, style: str, most: int) -> list[Text]:
        if not text:
            return []
        lines = list(_text(text, style).wrap(self._console, self.columns))
        if len(lines) > most:
            lines[most - 1].append(" …")
        return lines[:most]

    def _table(self, page: JobPage | None, rows: Sequence[Any], marked: int | None) -> Table:
        table = Table(
            box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), width=self.columns
        )
        if page is None:
            table.add_column("job", no_wrap=True, overflow="ellipsis", ratio=1)
            cells = [one for one in _JOB_COLUMNS if self.columns >= one[0]]
            for _, title, _ in cells:
                table.add_column(title, no_wrap=True)
            for place, row in enumerate(rows):
                table.add_row(
                    _text(row.name), *(cell(row) for *_, cell in cells), style=_style(place, marked)
                )
            return table
        table.add_column("vertex", no_wrap=True, overflow="ellipsis", ratio=1)
        columns = [one for one in _COLUMNS if self.columns >= one.least]
        for column in columns:
            table.add_column(column.title, no_wrap=True, justify="right")
        for place, row in enumerate(rows):
            found = [column.cell(row, self) for column in columns]
            table.add_row(_text(row.name), *found, style=_style(place, marked))
        return table

    def _printed(self, parts: Sequence[Text | Table]) -> list[str]:
        self._held.seek(0)
        self._held.truncate()
        for part in parts:
            if isinstance(part, Text):
                part.truncate(self.columns, overflow="ellipsis")
            self._console.print(part, no_wrap=True)
        return self._held.getvalue().splitlines()

    def bar(self, share: float | None, style: str) -> Text:
        """Return a bar with its number, or only the number where the window is narrow."""
        if share is None:
            return Text("-")
        number = f"{share:4.0%}"
        if self.columns < _BARS_FROM:
            return Text(number, style=style)
        filled = round(share * _BAR)
        return Text.assemble(
            (self.full * filled, style), (self.empty * (_BAR - filled), "dim"), f" {number}"
        )


def ordered(frame: Frame, order: str) -> Sequence[Any]:
    """Return the rows of a frame in an order of JOB_ORDERS or VERTEX_ORDERS. Jobs that run come first, and what is not known last."""
    if frame.page is None:
        of_job = _JOB_KEYS.get(order, _JOB_KEYS["newest"])
        return sorted(frame.jobs, key=lambda row: (row.status in ENDED, of_job(row)))
    key = _VERTEX_KEYS.get(order)
    if key is None:
        return frame.page.vertices
    return sorted(frame.page.vertices, key=lambda row: -(key(row) or 0.0))


def _head_of_list(frame: Frame) -> list[Text]:
    running = sum(job.status == "RUNNING" for job in frame.jobs)
    places = ", ".join(dict.fromkeys(job.address for job in frame.jobs))
    at = f" at {places}" if places else ""
    return [_text(f"{len(frame.jobs)} jobs, {running} running{at}", "bold")]


def _style(place: int, marked: int | None) -> str:
    return "reverse" if place == marked else ""


def _text(text: str, style: str = "") -> Text:
    """What an answer says. Rich lets escape sequences pass."""
    return Text(printable(text), style=style)


def _number(value: float | None) -> Text:
    return Text("-" if value is None else f"{value:,.0f}")


_BARS_FROM: Final = 100
_JOB_COLUMNS: Final[tuple[tuple[int, str, Callable[[JobRow], Text]], ...]] = (
    (0, "status", lambda row: _text(row.status, _STATUS.get(row.status, ""))),
    (40, "subtasks", lambda row: Text(f"{row.running}/{row.total}")),
    (60, "for", lambda row: Text(duration(row.duration_ms))),
    (76, "id", lambda row: _text(row.job_id[:8])),
)
"""Each with the width of the window at which it is shown."""
_COLUMNS: Final = (
    _Column("subtasks", lambda row, _: _text(row.states), 120),
    _Column("in/s", lambda row, _: _number(row.in_per_s), 60),
    _Column("out/s", lambda row, _: _number(row.out_per_s), 40),
    _Column(
        "busy", lambda row, own: own.bar(row.busy, "yellow" if (row.busy or 0) >= _BUSY else "")
    ),
    _Column(
        "back-pressured",
        lambda row, own: own.bar(row.blocked, "red" if (row.blocked or 0) >= _BLOCKED else ""),
        50,
    ),
    _Column(
        "watermark lag",
        lambda row, _: Text("-" if row.lag_ms is None else duration(max(0, row.lag_ms))),
        76,
    ),
)
