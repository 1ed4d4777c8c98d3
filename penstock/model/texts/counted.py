"""A number with the name of what it counts, for texts: `1 slot`, `2 slots`, `0.5 cores`."""

from __future__ import annotations


def counted(number: float, what: str) -> str:
    """The text. `what`: the name in the singular."""
    shown = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{shown} {what}{'s' * (number != 1)}"
