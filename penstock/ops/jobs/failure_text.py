"""What the text of a failure says: the error, the user's own line, operator and record, and what makes two failures the same.

Texts come from other processes and machines, so nothing here looks at files. A text without these parts has none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.own_places import is_ours
from penstock.engine.model.texts.error_text import headline_of

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
    """`exception`: the class of the error. `headline`: its own line. Empty or None: the text does not say it."""

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
    headline = headline[:_MOST_OF_HEADLINE]
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
        behind = lines[place + 1] if place + 1 < len(lines) else ""
        is_source = behind.startswith("    ") and not _MARKS.issuperset(behind)
        yield UserLine(found[1], int(found[2]), found[3], behind.strip() if is_source else "")
