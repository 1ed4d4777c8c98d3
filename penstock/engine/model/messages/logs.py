"""What tasks log, as far as the driver's console shows it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model.ids import AttemptId, ResourceId


@dataclass(frozen=True, slots=True)
class LogEvent:
    """(wire) A line of a log, with the repeats that followed it.

    `at_ms`: since 1970. `level`: as a number, as in Python's `logging`. `attempt_id` None: on a thread of no task.
    `sameness`: equal for lines that differ only in what they are about. `repeats`: further lines of this sameness.
    """

    at_ms: int
    level: int
    level_name: str
    logger: str
    attempt_id: AttemptId | None
    operator: str
    text: str
    sameness: str
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class LogEvents:
    """(wire) Warnings and errors of a TaskManager's tasks. `left_out`: how many more there were."""

    resource_id: ResourceId
    events: tuple[LogEvent, ...]
    left_out: int = 0
