"""Lines of the driver that belong to no job's console."""

from __future__ import annotations

import sys

from penstock.engine.model.texts.bounded_text import printable


def say(text: str) -> None:
    """Write a line to stderr, where there is no Console yet. Returns when the line is written.

    In one piece: `print` writes a line's end apart, and another thread's line may come between.
    """
    print(printable(f"penstock: {text}\n"), end="", file=sys.stderr, flush=True)
