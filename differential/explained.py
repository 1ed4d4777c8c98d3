"""Differences that stand on the compatibility page: each rule names its row there, and recognises it in a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from differential.outcomes import Difference


@dataclass(frozen=True)
class Rule:
    """`row`: a text in a row of docs/reference/compatibility.md."""

    name: str
    row: str
    applies: Callable[[Difference], bool]


def _merges_sessions(found: Difference) -> bool:
    """Only results of windows differ, and a session window aggregates."""
    return {"EventTimeSessionWindows", "AggregateFunction"} <= found.program.features


RULES = (
    Rule("merging sessions", "Sessions that merge lose records", _merges_sessions),
)  # fmt: skip


def rule_for(found: Difference) -> Rule | None:
    """The first rule that explains a difference; None: nothing explains it."""
    return next((rule for rule in RULES if rule.applies(found)), None)
