"""The directory, under a FileSink's base path, that a record goes to. Does not touch the file system.

Source: Flink BucketAssigner, BasePathBucketAssigner, DateTimeBucketAssigner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.model.errors import ConfigurationError
from penstock.runtime.elements import Batch

FORMAT_LETTERS: Final = {
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S",
}  # fmt: skip


class BucketAssigner(ABC):
    """Chooses the directory, under the base path, by the time at which records are written."""

    @abstractmethod
    def bucket_at(self, epoch_s: float) -> str:
        """Return the directory for a time in epoch seconds."""

    def assigned(self, batch: Batch, epoch_s: float) -> Sequence[tuple[str, Batch]]:
        """Return the batch, or its parts, with their directories. By default all records of a batch go to one."""
        return [(self.bucket_at(epoch_s), batch)]

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Return an assigner that writes all files directly under the base path."""
        return _BasePath()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """Return an assigner with a directory per hour, or as the format says.

        Args:
            format_str: the directory's name, in the letters of Java's DateTimeFormatter.
            timezone_id: the time zone; by default that of the task's machine.
        """
        return _DateTime(_strftime_format(format_str), timezone_id)


class _BasePath(BucketAssigner):
    def bucket_at(self, epoch_s: float) -> str:
        return ""


class _DateTime(BucketAssigner):
    def __init__(self, pattern: str, timezone_id: str | None) -> None:
        self._pattern = pattern
        self._zone = timezone_id
        _zone(timezone_id)

    def bucket_at(self, epoch_s: float) -> str:
        return datetime.fromtimestamp(epoch_s, _zone(self._zone)).strftime(self._pattern)


def _zone(timezone_id: str | None) -> tzinfo | None:
    if timezone_id is None:
        return None
    try:
        return ZoneInfo(timezone_id)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigurationError(
            f"date_time_bucket_assigner: unknown time zone {timezone_id!r}. Expected a name such "
            "as 'Europe/Berlin' or 'UTC'."
        ) from error


def _quoted(pattern: str, begin: int) -> tuple[str, int]:
    """The text that a quote begins, and the place after it. Two quotes are one of the text."""
    place = begin + 1
    while (end := pattern.find("'", place)) >= 0 and pattern[end + 1 : end + 2] == "'":
        place = end + 2
    if end < 0:
        raise ConfigurationError(
            f"date format {pattern!r}: a quote is not closed. Add the closing quote."
        )
    return pattern[begin + 1 : end].replace("''", "'") or "'", end + 1


def _strftime_format(pattern: str) -> str:
    """Java's date letters (those of FORMAT_LETTERS, and text in quotes) as a format of Python's strftime."""
    result: list[str] = []
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "'":
            text, place = _quoted(pattern, place)
            result.append(text.replace("%", "%%"))
            continue
        if not letter.isalpha():
            result.append("%%" if letter == "%" else letter)
            place += 1
            continue
        run = pattern[place:]
        length = len(run) - len(run.lstrip(letter))
        directive = FORMAT_LETTERS.get(letter * length)
        if directive is None:
            raise ConfigurationError(
                f"date format {pattern!r}: {letter * length!r} is not supported. Supported are "
                f"{', '.join(FORMAT_LETTERS)} and text in single quotes."
            )
        result.append(directive)
        place += length
    return "".join(result)
