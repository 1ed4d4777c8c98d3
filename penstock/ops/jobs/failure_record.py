"""All failures of a job in groups: those with the same error at the same place are one group. Bounded.

A job that fails again and again would otherwise push what it failed with first out of the history. Flink has no groups.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.ids import TaskManagerLocation
from penstock.ops.jobs.events import FailureSeen, FailuresSeen
from penstock.ops.jobs.failure_text import FailureText, read_failure

MOST_GROUPS: Final = 100
MOST_PLACES: Final = 20
"""So many subtasks and TaskManagers of a group are named; all are counted."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one kind. `text`: what the newest one says. `subtasks`, `locations`: where it happened, with how often; None: no slot.
    `more_subtasks`: failures of subtasks that are not named. `is_root`: whether the newest one was a cause of its own, and did not only come with another one.
    """

    fingerprint: tuple[str, ...]
    text: FailureText
    newest: FailureSeen
    is_root: bool
    first_ms: int
    count: int
    subtasks: tuple[tuple[int, int], ...]
    more_subtasks: int
    locations: tuple[tuple[TaskManagerLocation | None, int], ...]


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """`groups`: the one with the newest failure first. `forgotten`: how many older groups there were."""

    groups: tuple[FailureGroup, ...] = ()
    forgotten: int = 0


NO_GROUPS: Final = FailureGroups()


@dataclass(slots=True)
class _Group:
    fingerprint: tuple[str, ...]
    text: FailureText
    newest: FailureSeen
    is_root: bool
    first_ms: int
    count: int
    subtasks: Counter[int]
    more_subtasks: int
    locations: Counter[TaskManagerLocation | None]

    def add(self, seen: FailureSeen, text: FailureText, *, is_root: bool) -> None:
        self.text, self.newest, self.is_root = text, seen, is_root
        self.first_ms = min(self.first_ms, seen.at_ms)
        self.count += 1
        if seen.attempt_id is not None:
            subtask = seen.attempt_id.subtask
            has_room = subtask in self.subtasks or len(self.subtasks) < MOST_PLACES
            if has_room:
                self.subtasks[subtask] += 1
            else:
                self.more_subtasks += 1
        if seen.location in self.locations or len(self.locations) < MOST_PLACES:
            self.locations[seen.location] += 1

    def told(self) -> FailureGroup:
        return FailureGroup(
            self.fingerprint,
            self.text,
            self.newest,
            self.is_root,
            self.first_ms,
            self.count,
            tuple(self.subtasks.items()),
            self.more_subtasks,
            tuple(self.locations.items()),
        )


class FailureRecord:
    """`entries`: the newest failures, as they were told last."""

    def __init__(self) -> None:
        self.entries: tuple[tuple[FailureSeen, tuple[FailureSeen, ...]], ...] = ()
        self._groups: dict[tuple[str, ...], _Group] = {}
        self._keys: dict[int, tuple[str, ...]] = {}
        self._seen = 0
        self._forgotten = 0
        self._told: FailureGroups | None = NO_GROUPS

    def apply(self, event: FailuresSeen) -> None:
        """Take all entries of the history. Those that were told before are counted once, by their numbers."""
        self.entries = event.entries
        self._told = None
        former, self._keys = self._keys, {}
        last = self._seen
        for root, others in event.entries:
            for seen in (root, *others):
                if seen.number > last:
                    self._take(seen, is_root=seen is root)
                elif seen.number in former:
                    self._know(seen, former[seen.number], is_root=seen is root)

    def groups(self) -> FailureGroups:
        """Return all groups. The same object as before if nothing has failed."""
        if self._told is None:
            ones = reversed(self._groups.values())
            self._told = FailureGroups(tuple(one.told() for one in ones), self._forgotten)
        return self._told

    def _take(self, seen: FailureSeen, *, is_root: bool) -> None:
        self._seen = max(self._seen, seen.number)
        text = read_failure(seen.failure)
        key = text.fingerprint("" if seen.task is None else seen.task.rpartition("[")[0])
        self._keys[seen.number] = key
        group = self._groups.pop(key, None)
        if group is None:
            group = _Group(key, text, seen, is_root, seen.at_ms, 0, Counter(), 0, Counter())
        group.add(seen, text, is_root=is_root)
        self._groups[key] = group  # The newest one is the last.
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
            self._forgotten += 1

    def _know(self, seen: FailureSeen, key: tuple[str, ...], *, is_root: bool) -> None:
        """What followed a failure may be known only now, and so may its cause."""
        self._keys[seen.number] = key
        group = self._groups.get(key)
        if group is not None and group.newest.number == seen.number:
            group.newest, group.is_root = seen, is_root
