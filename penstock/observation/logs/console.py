"""Lines of tasks' logs as the console shows them: each once, repeats in one line.

10:11:12 WARNING my.module [Map 3]: no price for 'EUR'
10:11:22 WARNING my.module [Map 1, 2, 3]: no price for 'CHF' ... 41 more times
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

from penstock.model.messages import LogEvent
from penstock.observation.logs.folding import Repeats

_MOST_SUBTASKS: Final = 8


def first_line(event: LogEvent) -> str:
    """Return the line of an event that is told for the first time, without a line feed."""
    subtasks = () if event.attempt_id is None else (event.attempt_id.subtask,)
    return f"{_head(event, subtasks)}: {event.text}"


def repeated_line(repeats: Repeats) -> str:
    """Return the line that tells how often an event has repeated, with the newest one as example."""
    example = repeats.event.text.split("\n", 1)[0]
    times = "once more" if repeats.times == 1 else f"{repeats.times:,} more times"
    return f"{_head(repeats.event, repeats.subtasks)}: {example} ... {times}"


def _head(event: LogEvent, subtasks: Sequence[int]) -> str:
    at = dt.datetime.fromtimestamp(event.at_ms / 1000).astimezone().strftime("%H:%M:%S")
    return f"{at} {event.level_name} {event.logger}{_who(event.operator, subtasks)}"


def _who(operator: str, subtasks: Sequence[int]) -> str:
    """Return operator and subtasks, counted from 1; "": a thread of no task."""
    if not subtasks:
        return ""
    shown = ", ".join(str(one + 1) for one in subtasks[:_MOST_SUBTASKS])
    more = ", .." if len(subtasks) > _MOST_SUBTASKS else ""
    return f" [{f'{operator} ' if operator else ''}{shown}{more}]"
