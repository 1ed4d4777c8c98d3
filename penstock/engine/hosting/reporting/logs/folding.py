"""Folds lines of a log that repeat: the first is told at once, the others are counted and told together.

Knows no clock and no console. Used where lines leave a TaskManager, and where the console shows those of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.model.messages import LogEvent

_DIGITS: Final = re.compile(r"\d+")
_MOST_OF_SAMENESS: Final = 500


def sameness_of(template: str, *, has_arguments: bool, text: str) -> str:
    """Return what is equal for lines that differ only in what they are about: the text before its arguments are put in;
    without arguments, the text without its numbers.
    """
    found = template if has_arguments else _DIGITS.sub("#", text[: 2 * _MOST_OF_SAMENESS])
    return found[:_MOST_OF_SAMENESS]


@dataclass(slots=True)
class _Repeated:
    """`last`: the newest of those that were not told yet. `speak_at_ms`: when they are told."""

    last: LogEvent
    speak_at_ms: int
    wait_ms: int
    waiting: int = 0
    subtasks: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Repeats:
    """`times`: further lines like `event`, which is the newest of them. `subtasks`: from 0; whose lines they were."""

    event: LogEvent
    times: int
    subtasks: tuple[int, ...]


class Folding:
    """Args: window_ms: how long repeats are counted before they are told. grows: a line that goes on repeating is told less
    and less often. most: how many different lines are known at once; the others are only counted, in `left_out`.
    """

    def __init__(self, window_ms: int, *, grows: bool = False, most: int = 1000) -> None:
        self.left_out = 0
        self._window_ms = window_ms
        self._grows = grows
        self._most = most
        self._known: dict[Hashable, _Repeated] = {}

    def take(self, event: LogEvent, now_ms: int) -> bool:
        """Take a line. Returns: whether it is to be told now, as it is the first of its kind."""
        key = (event.level, event.logger, event.sameness)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._most:
                self.left_out += 1 + event.repeats
                return False
            known = _Repeated(event, now_ms + self._window_ms, self._window_ms, event.repeats)
            self._known[key] = known
            if event.repeats:
                _note_subtask(known, event)
            return True
        known.last = event
        known.waiting += 1 + event.repeats
        _note_subtask(known, event)
        return False

    def due(self, now_ms: int, *, is_all: bool = False) -> list[Repeats]:
        """Return what has repeated and is to be told now. A line without repeats for the time is a new one from then on."""
        found = []
        for key, known in list(self._known.items()):
            if now_ms < known.speak_at_ms and not is_all:
                continue
            if not known.waiting:
                del self._known[key]
                continue
            subtasks = tuple(sorted(known.subtasks))
            found.append(Repeats(replace(known.last, repeats=0), known.waiting, subtasks))
            known.waiting = 0
            known.subtasks.clear()
            known.wait_ms *= 2 if self._grows else 1
            known.speak_at_ms = now_ms + known.wait_ms
        return found


def _note_subtask(known: _Repeated, event: LogEvent) -> None:
    if event.attempt_id is not None:
        known.subtasks.add(event.attempt_id.subtask)
