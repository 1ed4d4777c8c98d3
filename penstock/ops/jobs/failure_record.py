"""All failures of a job in groups: those with the same error at the same place are one group. Bounded.

A job that fails again and again would otherwise push what it failed with first out of the history. Flink has no groups.

What the text of a failure says: the error, the user's own line, operator and record, and what makes two failures the same.

Texts come from other processes and machines, so nothing here looks at files. A text without these parts has none of them.

Failures of a job as its record gets them: entries of the exception history, with wall-clock times. Plain data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from penstock.engine.model.ids import AttemptId, TaskManagerLocation
from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.own_places import is_ours
from penstock.engine.model.texts.bounded_text import shortened
from penstock.engine.model.texts.error_text import headline_of
from penstock.engine.model.texts.redaction import without_credentials

T = TypeVar("T")

_FRAME: Final = re.compile(r'\s*(?:\| )?File "(.+)", line (\d+), in (.+)')
_PART: Final = re.compile(r"  (in operator|at record|built at): +(.*)")
_ALL_FRAMES: Final = "  all frames:"
_CLASS: Final = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_VARYING: Final = re.compile(r"0x[0-9a-f]+|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+")
_MARKS: Final = frozenset("~^ ")
_NOT_THE_USERS: Final = re.compile(
    r"[/\\](site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\]|^<(frozen |string>)"
)
_MOST_OF_HEADLINE: Final = 1_000


@dataclass(frozen=True, slots=True)
class UserLine:
    """A line of the user's own source. `text`: as it stands there; empty: it is not known."""

    file: str
    line: int
    function: str
    text: str


@dataclass(frozen=True, slots=True)
class FailureText:
    """The text of an error, taken apart.

    `exception`: the class of the error. `headline`: its own line. Empty or None: the text does not say it.
    """

    exception: str
    headline: str
    operator: str = ""
    record: str | None = None
    built_at: str = ""
    user_line: UserLine | None = None

    def fingerprint(self, task: str) -> tuple[str, ...]:
        """Return what failures of one kind have in common. `task`: the vertex; empty: the job as a whole failed."""
        place = self.operator or task
        if self.user_line is not None:
            return (self.exception, place, self.user_line.file, str(self.user_line.line))
        return (self.exception, place, _VARYING.sub("#", self.headline))


def read_failure(failure: FailureInfo) -> FailureText:
    """Read the text of a failure."""
    text = failure.text.partition(f"\n{_ALL_FRAMES}\n")[0]
    lines = text.splitlines()
    begins_with_error = bool(lines) and not lines[0].startswith(("Traceback", " "))
    headline = lines[0] if begins_with_error else headline_of(text, failure.kind)
    headline = shortened(without_credentials(headline), _MOST_OF_HEADLINE)
    named = _CLASS.match(headline) if failure.is_user_code or not begins_with_error else None
    parts = {found[1]: found[2] for found in map(_PART.fullmatch, lines) if found is not None}
    return FailureText(
        exception=failure.kind if named is None else named[1],
        headline=headline,
        operator=parts.get("in operator", ""),
        record=parts.get("at record"),
        built_at=parts.get("built at", ""),
        user_line=next(_user_lines(lines), None),
    )


def _user_lines(lines: list[str]) -> Iterator[UserLine]:
    """The frames that are neither of Penstock nor of libraries, the last one first: there the error came up."""
    for place in range(len(lines) - 1, -1, -1):
        found = _FRAME.fullmatch(lines[place])
        if found is None or is_ours(found[1]) or _NOT_THE_USERS.search(found[1]):
            continue
        next_line = lines[place + 1] if place + 1 < len(lines) else ""
        is_source = next_line.startswith("    ") and not _MARKS.issuperset(next_line)
        yield UserLine(found[1], int(found[2]), found[3], next_line.strip() if is_source else "")


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """One failure. `at_ms`: epoch milliseconds. `task`, `attempt_id` None: the job as a whole failed. `location` None: no slot yet.

    `number`: counts all failures of the job from 1. `restart`: counts the restarts of the job from 1; 0: none followed. `delay_ms`: from the
    failure to that restart.
    """

    failure: FailureInfo
    at_ms: int
    task: str | None = None
    attempt_id: AttemptId | None = None
    location: TaskManagerLocation | None = None
    number: int = 0
    restart: int = 0
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class FailuresSeen:
    """All entries of the exception history: each a failure that restarted tasks or ended the job, and those that came with it."""

    entries: tuple[tuple[FailureSeen, tuple[FailureSeen, ...]], ...]


MOST_GROUPS: Final = 100
MOST_PLACES: Final = 20
"""How many subtasks and TaskManagers of a group are named; all are counted."""


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
    subtasks: Mapping[int, int] = field(default_factory=dict)
    more_subtasks: int = 0
    locations: Mapping[TaskManagerLocation | None, int] = field(default_factory=dict)

    def with_one(self, seen: FailureSeen, text: FailureText, *, is_root: bool) -> FailureGroup:
        """Return the group with one more failure, the newest."""
        subtasks, more = self.subtasks, self.more_subtasks
        if seen.attempt_id is not None:
            subtasks = _counted(subtasks, seen.attempt_id.subtask)
            more += subtasks is self.subtasks
        return replace(
            self,
            text=text,
            newest=seen,
            is_root=is_root,
            first_ms=min(self.first_ms, seen.at_ms),
            count=self.count + 1,
            subtasks=subtasks,
            more_subtasks=more,
            locations=_counted(self.locations, seen.location),
        )


def _counted(counts: Mapping[T, int], one: T) -> Mapping[T, int]:
    """Return the counts with one more of this. The same object: there is no room to name it."""
    has_room = one in counts or len(counts) < MOST_PLACES
    return {**counts, one: counts.get(one, 0) + 1} if has_room else counts


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """The failures of one job by their fingerprints.

    `groups`: the one with the newest failure first. `forgotten`: how many older groups there were.
    """

    groups: tuple[FailureGroup, ...] = ()
    forgotten: int = 0


NO_GROUPS: Final = FailureGroups()


class FailureRecord:
    """The failures of one job. `entries`: the newest ones, as last reported."""

    def __init__(self) -> None:
        self.entries: tuple[tuple[FailureSeen, tuple[FailureSeen, ...]], ...] = ()
        self._groups: dict[tuple[str, ...], FailureGroup] = {}
        self._keys: dict[int, tuple[str, ...]] = {}
        self._seen = 0
        self._forgotten = 0

    def apply(self, event: FailuresSeen) -> None:
        """Take all entries of the history. Those that came before are counted once, by their numbers."""
        self.entries = event.entries
        former, self._keys = self._keys, {}
        last = self._seen
        for root, others in event.entries:
            for seen in (root, *others):
                if seen.number > last:
                    self._take(seen, is_root=seen is root)
                elif seen.number in former:
                    self._know(seen, former[seen.number], is_root=seen is root)

    def groups(self) -> FailureGroups:
        """Return all groups, the one with the newest failure first."""
        return FailureGroups(tuple(reversed(self._groups.values())), self._forgotten)

    def _take(self, seen: FailureSeen, *, is_root: bool) -> None:
        self._seen = max(self._seen, seen.number)
        text = read_failure(seen.failure)
        key = text.fingerprint("" if seen.task is None else seen.task.rpartition("[")[0])
        self._keys[seen.number] = key
        group = self._groups.pop(key, None)
        if group is None:
            group = FailureGroup(key, text, seen, is_root, seen.at_ms, 0)
        self._groups[key] = group.with_one(
            seen, text, is_root=is_root
        )  # The newest one is the last.
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
            self._forgotten += 1

    def _know(self, seen: FailureSeen, key: tuple[str, ...], *, is_root: bool) -> None:
        """What followed a failure may be known only now, and so may its cause."""
        self._keys[seen.number] = key
        group = self._groups.get(key)
        if group is not None and group.newest.number == seen.number:
            self._groups[key] = replace(group, newest=seen, is_root=is_root)
