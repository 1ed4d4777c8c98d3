"""Differences that stand on the compatibility page: each rule names its row there.

A rule rewrites a program so that the row does not touch it. It explains a difference only if PyFlink gives for that what
Penstock gives for the program itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from differential.generator import Program


@dataclass(frozen=True)
class Rule:
    """`row`: a text in a row of docs/reference/compatibility.md. `rewritten`: None if the row cannot touch the program."""

    name: str
    row: str
    rewritten: Callable[[Program], Program | None]


def _without_merges(program: Program) -> Program | None:
    if program.without_merges is None:
        return None
    return replace(program, text=program.without_merges)


RULES = (
    Rule("merging sessions", "Sessions that merge lose records", _without_merges),
)  # fmt: skip
