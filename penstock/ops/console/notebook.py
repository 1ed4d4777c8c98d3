"""How a notebook shows a job: drawn when somebody looks, and again while the job runs, in the same place.

Knows IPython only where a notebook calls it, and needs nothing from IPython elsewhere. Source: IPython's rich display protocol.

A job as a notebook shows it: its state, its vertices with their rates, and the verdict, as HTML and as text. Pure.

The HTML needs no script, and is a plain table where a page drops its styles too. Colours follow the page's theme. The table is that of
the console (`live_view.py`), with the same figures in the same form.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Protocol, runtime_checkable

from penstock.engine.model.program import JobControl
from penstock.engine.model.texts.bounded_text import printable
from penstock.ops.console.live_view import COLUMNS, Column
from penstock.ops.console.progress import Snapshot, line_of, snapshot_of
from penstock.ops.jobs.snapshots import JobSnapshot
from penstock.ops.registry.job_registry import JOB_REGISTRY, Look

_SHOWN: Final = tuple(one for one in COLUMNS if one.is_in_wide_windows)
_STYLE: Final = """
.penstock-job { overflow-x: auto; line-height: 1.4; }
.penstock-job p { margin: 0.2em 0; }
.penstock-job table { border-collapse: collapse; margin: 0.4em 0; color: inherit; }
.penstock-job th, .penstock-job td {
  padding: 0.15em 0.9em 0.15em 0; text-align: right; white-space: nowrap; background: none;
}
.penstock-job th { border-bottom: 1px solid currentColor; font-weight: normal; opacity: 0.7; }
.penstock-job th:first-child, .penstock-job td:first-child {
  text-align: left; white-space: normal; min-width: 9em; overflow-wrap: anywhere;
}
.penstock-job td:nth-child(2), .penstock-job th:nth-child(2) { text-align: left; }
.penstock-job .yellow { color: var(--jp-warn-color1, #b26a00); font-weight: bold; }
.penstock-job .red { color: var(--jp-error-color1, #d32f2f); font-weight: bold; }
.penstock-job small { opacity: 0.7; }
"""


@dataclass(frozen=True, slots=True)
class JobPicture:
    """A job as a notebook shows it. `sentences`: the verdict. `id_text`: the job's id."""

    id_text: str
    snapshot: Snapshot
    sentences: tuple[str, ...]

    def html(self) -> str:
        """Return a part of a page. All names are escaped."""
        now = self.snapshot
        titles = "".join(f"<th>{escape(one.title)}</th>" for one in _SHOWN)
        rows = "".join(
            f"<tr><td>{escape(row.name)}</td>"
            + "".join(_cell(one, one.text(row), one.style(row)) for one in _SHOWN)
            + "</tr>"
            for row in now.rows
        )
        sentences = "".join(f"<p>{escape(one)}</p>" for one in self.sentences)
        return (
            f'<div class="penstock-job"><style>{_STYLE}</style>'
            f"<p><b>{escape(now.job_name)}</b>: {escape(now.headline)}</p>{sentences}"
            f"<table><thead><tr><th>vertex</th>{titles}</tr></thead><tbody>{rows}</tbody></table>"
            f"<p><small>job {escape(self.id_text)}</small></p></div>"
        )

    def text(self) -> str:
        """Return the same in lines, for where there is no HTML."""
        return "\n".join([line_of(self.snapshot), *self.sentences])


def _cell(_column: Column, text: str, style: str) -> str:
    kind = f' class="{escape(style)}"' if style else ""
    return f"<td{kind}>{escape(text)}</td>"


def picture_of(job: JobSnapshot, sentences: Iterable[str]) -> JobPicture:
    """Return the job as it is now."""
    return JobPicture(job.job_id, snapshot_of(job), tuple(map(printable, sentences)))


_PAUSE_S: Final = 1.0


@runtime_checkable
class Watched(Protocol):
    """A job that is recorded. `look`: returns its snapshot of now; None: nobody records it."""

    @property
    def look(self) -> Look | None: ...


class JobDisplay:
    """One job. Any thread."""

    def __init__(self, control: JobControl) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._place: Final = {"display_id": f"penstock-{control.job_id}"}
        self._publish: Any = None
        self._is_over = threading.Event()

    def picture(self) -> JobPicture | None:
        """Return the job as it is now; None: nobody records it."""
        look = self._control.look if isinstance(self._control, Watched) else None
        if look is None:
            return None
        job = look()
        return picture_of(job, JOB_REGISTRY.verdict(job).sentences)

    def show(self) -> None:
        """Show the job below the cell that runs. In a notebook it is drawn again every second until the job has ended."""
        from IPython import get_ipython
        from IPython.display import publish_display_data

        publish: Any = publish_display_data
        bundle = self.bundle()
        shell: Any = get_ipython()
        if getattr(shell, "kernel", None) is None:  # A terminal cannot draw in the same place.
            publish(bundle)
            return
        publish(bundle, transient=self._place)
        with self._lock:
            is_first, self._publish = self._publish is None, publish
        if is_first and not self._is_over.is_set():
            threading.Thread(target=self._go_on, name="penstock-notebook", daemon=True).start()

    def refresh(self) -> None:
        """Draw the job again, if it is shown. A fault of the notebook changes nothing for the program."""
        publish = self._publish
        if publish is not None:
            with contextlib.suppress(Exception):
                publish(self.bundle(), transient=self._place, update=True)

    def bundle(self) -> dict[str, str]:
        """Return the job by MIME type."""
        picture = self.picture()
        if picture is None or picture.snapshot.status.is_terminal:
            self._is_over.set()
        if picture is None:
            return {"text/plain": f"job {self._control.job_id}: {self._control.status()}"}
        return {"text/plain": picture.text(), "text/html": picture.html()}

    def _go_on(self) -> None:
        """Until the end of the job has been drawn, by this thread or another."""
        while not self._is_over.wait(_PAUSE_S):
            self.refresh()
