"""How answers are shown: as JSON or as text, with times and durations that people read."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from penstock.engine.model.texts.bounded_text import printable


def show(text: str, to: TextIO | None = None, end: str = "\n") -> None:
    """Print what a command says, without what steers a terminal: names and errors are of whoever sends records. `to`: not stdout."""
    print(printable(text), file=to, end=end, flush=True)


def shown(value: object, options: argparse.Namespace, text: str) -> int:
    """Print an answer as JSON if that was asked for, else as text. Returns: 0, the exit code."""
    show(json.dumps(value, indent=2, ensure_ascii=False) if options.json else text)
    return 0


def complain(text: str) -> None:
    """Say what is wrong, where it does not get into the answer."""
    show(f"penstock: {text}", sys.stderr)


def moment(at_ms: int) -> str:
    """Return a time of the clock on the wall. `at_ms`: epoch milliseconds; 0 or less: there is none."""
    return "-" if at_ms <= 0 else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def duration(ms: int) -> str:
    """Return a duration in its largest units. Below 0: there is none."""
    if ms < 0:
        return "-"
    seconds, rest = divmod(ms, 1000)
    if seconds < 60:
        return f"{seconds}.{rest // 100} s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def tasks_text(vertex: Mapping[str, Any]) -> str:
    """Return how many subtasks of a vertex are in which state, as `/jobs/:jobid` answers it."""
    return ", ".join(f"{count} {state}" for state, count in vertex["tasks"].items() if count)


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())


def seconds(text: str) -> float:
    """Return seconds of the command line. Raises ArgumentTypeError: it is no number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected seconds, above 0, got {text!r}")
    return value


def answered(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command, and return its exit code."""
    try:
        code = command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads, such as `head`, has seen enough. Python must not write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
