"""Draws the state machines from their tables: `python -m scripts.state_diagrams` writes docs/internals/state-machines.md
and its pictures.

The positions of the states are chosen here by hand; the tables say which arrows there are. The picture leaves out arrows to
SUSPENDED, because every state that is not terminal has one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.engine.machines.execution import execution
from penstock.engine.machines.execution.execution import Consequence
from penstock.engine.machines.job_state import job_status
from penstock.engine.machines.taskmanager import task_executor
from penstock.engine.machines.taskmanager.task_executor import SlotConsequence
from penstock.engine.model.states import ExecutionState as E
from penstock.engine.model.states import JobStatus as J
from penstock.engine.model.states import SlotState as S

DOCS: Final = Path(__file__).parents[1] / "docs"
TARGET: Final = DOCS / "internals" / "state-machines.md"
HEAD: Final = (
    "# State machines\n\nDrawn by `python -m scripts.state_diagrams` from the tables in the code. A test checks that this page and its "
    "pictures are up to date. Green states are terminal."
)
TERMINAL: Final = (
    "FINISHED, CANCELED and FAILED are globally terminal: everything is cleaned up. SUSPENDED is locally terminal: another driver "
    "may take the job over. Every state that is not terminal can become SUSPENDED; the picture leaves these arrows out. RECONCILING "
    "is Flink's; nothing leads to it."
)
SLOT: Final = (
    "The life of one allocation. An allocation that is FREE again is not used again: the slot gets "
    "a new one. After a slash stands what the TaskManager does."
)
State = J | E | S
Arrows = dict[tuple[State, State], list[str]]
Place = tuple[float, float]

JOB_PLACES: Final[Mapping[State, Place]] = {
    J.INITIALIZING: (80, 70), J.CREATED: (250, 70), J.RUNNING: (450, 70), J.FINISHED: (680, 70),
    J.RESTARTING: (250, 190), J.FAILING: (450, 190), J.FAILED: (680, 190),
    J.CANCELLING: (350, 310), J.CANCELED: (680, 310), J.SUSPENDED: (80, 310),
}  # fmt: skip
ATTEMPT_PLACES: Final[Mapping[State, Place]] = {
    E.CREATED: (70, 70), E.SCHEDULED: (210, 70), E.DEPLOYING: (350, 70), E.INITIALIZING: (500, 70), E.RUNNING: (650, 70),
    E.CANCELING: (350, 310), E.CANCELED: (130, 310), E.FAILED: (500, 190), E.FINISHED: (650, 310),
}  # fmt: skip
SLOT_PLACES: Final[Mapping[State, Place]] = {
    S.FREE: (100, 70), S.ALLOCATED: (380, 70), S.ACTIVE: (660, 70), S.RELEASING: (380, 230),
}  # fmt: skip
SIZE: Final = (760, 370)
BOX: Final = (112, 34)
_BEND: Final = 12.0
STYLE: Final = """  <style>
    text { font: 12px system-ui, sans-serif; fill: #1d2b3a; text-anchor: middle; dominant-baseline: central }
    rect { fill: #dbe8f6; stroke: #5b7fa6 }
    rect.end { fill: #d9f0e3; stroke: #4d9a74 }
    path { stroke: #7589a0; stroke-width: 1.5; fill: none }
    marker path { fill: #7589a0; stroke: none }
  </style>
  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>"""


def job_arrows() -> Arrows:
    arrows: Arrows = {}
    for (state, event), following in job_status.TABLE.items():
        arrows.setdefault((state, following), []).append(event.lower())
    return arrows


def execution_arrows() -> Arrows:
    """The arrows, with the consequence after each event. Events that keep the state are left out: they are
    unexpected reports.
    """
    arrows: Arrows = {}
    for (state, event), (following, consequence) in execution.TABLE.items():
        if following is state:
            continue
        said = "" if consequence is Consequence.NONE else f" / {consequence.lower()}"
        arrows.setdefault((state, following), []).append(event.lower() + said)
    return arrows


def slot_arrows() -> Arrows:
    """As `execution_arrows`, but an event that keeps the state has an arrow too, if it has a consequence."""
    arrows: Arrows = {}
    for (state, event), (following, consequence) in task_executor.TABLE.items():
        said = "" if consequence is SlotConsequence.NONE else f" / {consequence.lower()}"
        arrows.setdefault((state, following), []).append(event.lower() + said)
    return arrows


def picture(
    title: str, places: Mapping[State, Place], arrows: Iterable[tuple[State, State]]
) -> str:
    width, height = SIZE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"  <title>{title}</title>",
        STYLE,
    ]
    for start, end in arrows:
        if end is not J.SUSPENDED:
            parts.append(
                f'  <path d="{_curve(places[start], places[end])}" marker-end="url(#tip)"/>'
            )
    for state, (x, y) in places.items():
        is_end = not isinstance(state, S) and state.is_terminal
        end_class = ' class="end"' if is_end else ""
        corner = f'x="{x - BOX[0] / 2:g}" y="{y - BOX[1] / 2:g}"'
        parts.append(f'  <rect{end_class} {corner} width="{BOX[0]}" height="{BOX[1]}" rx="6"/>')
        parts.append(f'  <text x="{x:g}" y="{y:g}">{state}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _curve(start: Place, end: Place) -> str:
    """A curve from border to border, bent to the right of its direction, so that the two directions between two
    states lie side by side.
    """
    if start == end:
        x, y = start[0] - BOX[0] / 2, start[1]
        return f"M{x:g} {y - 8:g} C{x - 40:g} {y - 24:g} {x - 40:g} {y + 24:g} {x:g} {y + 8:g}"
    across, down = end[0] - start[0], end[1] - start[1]
    length = math.hypot(across, down)
    aside = (-down / length * _BEND, across / length * _BEND)
    middle = ((start[0] + end[0]) / 2 + aside[0], (start[1] + end[1]) / 2 + aside[1])
    begin, stop = _border(start, middle), _border(end, middle)
    return f"M{begin[0]:.0f} {begin[1]:.0f} Q{middle[0]:.0f} {middle[1]:.0f} {stop[0]:.0f} {stop[1]:.0f}"


def _border(box: Place, towards: Place) -> Place:
    """The point where the line from the middle of a box leaves the box."""
    across, down = towards[0] - box[0], towards[1] - box[1]
    ratios = [
        half / abs(way)
        for half, way in zip((BOX[0] / 2, BOX[1] / 2), (across, down), strict=True)
        if way
    ]
    share = min([1.0, *ratios])
    return box[0] + across * share, box[1] + down * share


def moves(arrows: Arrows) -> str:
    lines = ["| From | To | On |", "|---|---|---|"]
    lines += [
        f"| {state} | {following} | {', '.join(events)} |"
        for (state, following), events in arrows.items()
    ]
    return "\n".join(lines)


def table(rows: Iterable[tuple[State, str]]) -> str:
    """The events that change nothing, by state."""
    by_state: dict[State, list[str]] = {}
    for state, event in rows:
        by_state.setdefault(state, []).append(event.lower())
    lines = ["| State | Events |", "|---|---|"]
    lines += [f"| {state} | {', '.join(sorted(by_state[state]))} |" for state in sorted(by_state)]
    return "\n".join(lines)


def surprises() -> Iterable[tuple[State, str]]:
    for (state, event), (following, consequence) in execution.TABLE.items():
        if following is state:
            yield state, f"{event} / {consequence}"


def document() -> str:
    parts = [
        HEAD,
        "## Job",
        "![States of a job](../images/job-states.svg)",
        TERMINAL,
        moves(job_arrows()),
        "These events come too late or a second time. They change nothing:",
        table(job_status.IGNORED),
        "## Attempt of a task",
        "![States of an attempt](../images/attempt-states.svg)",
        "After a slash stands what the JobMaster does, apart from the change of state.",
        moves(execution_arrows()),
        "These reports are unexpected. The state does not change until the consequence is carried out:",
        table(surprises()),
        "These events were valid when they were sent, but come too late. They change nothing:",
        table(execution.STALE),
        "## Slot of a TaskManager",
        "![States of a slot](../images/slot-states.svg)",
        SLOT,
        moves(slot_arrows()),
        "These events were valid when they were sent, but come too late. They change nothing:",
        table(task_executor.STALE),
    ]
    return "\n\n".join(parts) + "\n"


def documents() -> dict[Path, str]:
    """Text of the page and of its pictures, by path."""
    return {
        TARGET: document(),
        DOCS / "images" / "job-states.svg": picture("States of a job", JOB_PLACES, job_arrows()),
        DOCS / "images" / "attempt-states.svg": picture(
            "States of an attempt", ATTEMPT_PLACES, execution_arrows()
        ),
        DOCS / "images" / "slot-states.svg": picture(
            "States of a slot", SLOT_PLACES, slot_arrows()
        ),
    }


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
