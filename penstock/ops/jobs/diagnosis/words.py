"""How verdicts name things, and how long something lasts. All times are epoch milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.engine.model.texts.amounts import duration_text

_MINUTE_MS = 60_000
_MOST_NAMES = 4


def lasting(ms: int) -> str:
    """Return a duration: whole seconds below a minute."""
    return f"{max(0, ms) // 1000} s" if ms < _MINUTE_MS else duration_text(ms)


def since_text(now_ms: int, since_ms: int | None) -> str:
    """Return ` for 40 s`; empty: nobody knows since when."""
    return "" if since_ms is None else f" for {lasting(now_ms - since_ms)}"


def moment_text(ms: int) -> str:
    """Return an event time in UTC. Times that no calendar has stay numbers."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def at_start(text: str) -> str:
    """Return the text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def subtask_of(subtask: int, name: str) -> str:
    return f"subtask {subtask} of '{name}'"


def names_text(names: Sequence[str]) -> str:
    """Return `'a', 'b' and 'c'`; of many the first ones and how many more there are. `names`: at least one."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) > _MOST_NAMES:
        quoted[_MOST_NAMES - 1 :] = [f"{len(quoted) - _MOST_NAMES + 1} more"]
    *others, last = quoted
    return f"{', '.join(others)} and {last}" if others else last
