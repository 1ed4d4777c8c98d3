"""Lines of the driver that belong to no job's console."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from penstock.engine.model.texts.bounded_text import printable


def say(text: str) -> None:
    """Write a line to stderr, where there is no Console yet. Returns when the line is written.

    In one piece: `print` writes a line's end apart, and another thread's line may come between.
    """
    print(printable(f"penstock: {text}\n"), end="", file=sys.stderr, flush=True)


_SAID: Final[set[str]] = set()


def say_once(texts: Iterable[str]) -> None:
    """Write lines, each once in this process."""
    for text in texts:
        if text not in _SAID:
            _SAID.add(text)
            say(text)
