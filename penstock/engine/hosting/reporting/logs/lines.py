"""One line of a log: what it tells, and its two forms.

The text is Flink's default layout with the task before the message, and Python's names of levels. The JSON has one object a line, with the job under
Flink's key `flink-job-id`. Subtasks are counted from 1, as everywhere in texts. Everybody on the driver's machine can read logs by REST, so neither
form has credentials.

    2026-07-01 10:11:12,345 WARNING my.module [job=1c2f.. operator=Map subtask=3/4 attempt=0] - no price for 'EUR'
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.texts.redaction import without_credentials


class LogFormat(StrEnum):
    """Values of `penstock.log.format`."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Place:
    """The task whose thread logs; "" and 0: a thread of no task. `subtask`: from 1. `job_id` "": of no job."""

    job_id: str = ""
    operator: str = ""
    subtask: int = 0
    parallelism: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class LogLine:
    """`at_s`: since 1970. `error`: a traceback, "" without. `process`: the TaskManager, or the driver."""

    at_s: float
    level: str
    logger: str
    thread: str
    message: str
    place: Place
    process: str = ""
    error: str = ""


def text_of(line: LogLine) -> str:
    """Return the line as text, without a line feed. A message or error of several lines follows as it is."""
    at = _local(line.at_s).strftime("%Y-%m-%d %H:%M:%S")
    millis = int(line.at_s * 1000) % 1000
    told = without_credentials(f"{line.message}\n{line.error}" if line.error else line.message)
    return f"{at},{millis:03d} {line.level:<7} {line.logger}{_where(line)} - {told}"


def json_of(line: LogLine) -> str:
    """Return the line as one JSON object, without a line feed. Keys without a value are left out."""
    place = line.place
    found: dict[str, object] = {
        "timestamp": _local(line.at_s).isoformat(timespec="milliseconds"),
        "level": line.level,
        "logger": line.logger,
        "message": without_credentials(line.message),
        "thread": line.thread,
        "process": line.process,
        "flink-job-id": place.job_id,
        "operator": place.operator,
        "error": without_credentials(line.error),
    }
    found = {key: value for key, value in found.items() if value}
    if place.subtask:
        found |= {
            "subtask": place.subtask,
            "parallelism": place.parallelism,
            "attempt": place.attempt,
        }
    return json.dumps(found, ensure_ascii=False)


def form_of(name: str) -> Callable[[LogLine], str]:
    """Return the function for a value of `penstock.log.format`. Raises: ConfigurationError."""
    try:
        return {LogFormat.TEXT: text_of, LogFormat.JSON: json_of}[LogFormat(name.lower())]
    except ValueError:
        expected = " or ".join(LogFormat)
        raise ConfigurationError(
            f"penstock.log.format: expected {expected}, got {name!r}. Change the setting."
        ) from None


def _where(line: LogLine) -> str:
    """Return the task of a line. Penstock's own messages begin with their job, which need not be told twice."""
    place = line.place
    if not place.job_id or line.message.startswith(f"job={place.job_id}"):
        return ""
    if not place.subtask:
        return f" [job={place.job_id}]"
    return (
        f" [job={place.job_id} operator={place.operator} "
        f"subtask={place.subtask}/{place.parallelism} attempt={place.attempt}]"
    )


def _local(at_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_s).astimezone()
