"""The directory, under a FileSink's base path, that a record goes to. Does not touch the file system.

Source: Flink BucketAssigner, BasePathBucketAssigner, DateTimeBucketAssigner; for folders `field=value` RowDataPartitionComputer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from penstock.common.typeinfo import RowTypeInfo, Types
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.formats.partition_folders import folder_of, without_fields

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

    def check_input(self, input_type: Any) -> None:
        """Check at submission whether records of this type can be assigned. Raises: ConfigurationError."""

    def written_type(self, input_type: Any) -> Any:
        """Return the type of what `assigned` returns, for records of this type."""
        return input_type

    @staticmethod
    def field_bucket_assigner(*fields: str, keeps_fields: bool = False) -> BucketAssigner:
        """Return an assigner with a folder `field=value` for each field, as Hive and Spark have them.
        Not in PyFlink.

        Args:
            fields: names of fields, in the order of the folders.
            keeps_fields: whether the files have these fields, too; by default only the folders' names have them.
        """
        return _Fields(fields, are_kept=keeps_fields)

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


class _Fields(BucketAssigner):
    """`fields`: in the order of the folders. `are_kept`: whether files have them, too."""

    def __init__(self, fields: tuple[str, ...], *, are_kept: bool) -> None:
        if not fields or len(set(fields)) != len(fields) or not all(fields):
            raise ConfigurationError(
                f"field_bucket_assigner: expected names of fields, each once, got {list(fields)}."
            )
        self._fields = fields
        self._dropped = frozenset() if are_kept else frozenset(fields)

    def bucket_at(self, epoch_s: float) -> str:
        raise NotImplementedError("the bucket depends on the records, not on the time")

    def check_input(self, input_type: Any) -> None:
        if input_type is None:
            return
        names = input_type.get_field_names() if isinstance(input_type, RowTypeInfo) else []
        if lacking := [name for name in self._fields if name not in names]:
            raise ConfigurationError(
                f"field_bucket_assigner: the stream has no field {lacking[0]!r}: its type is "
                f"{input_type}. Name fields of its ROW type."
            )
        if self._dropped.issuperset(names):
            raise ConfigurationError(
                "field_bucket_assigner: all fields of the stream are in folders' names, so that "
                "nothing is left for the files. Name fewer, or give keeps_fields=True."
            )

    def written_type(self, input_type: Any) -> Any:
        if not self._dropped or not isinstance(input_type, RowTypeInfo):
            return input_type
        kept = [
            (name, kind)
            for name, kind in zip(
                input_type.get_field_names(), input_type.get_field_types(), strict=True
            )
            if name not in self._dropped
        ]
        return Types.ROW_NAMED([name for name, _ in kept], [kind for _, kind in kept])

    def assigned(self, batch: Batch, epoch_s: float) -> Sequence[tuple[str, Batch]]:
        return self._of_columns(batch) if isinstance(batch, ColumnBatch) else self._of_rows(batch)

    def _of_columns(self, batch: ColumnBatch) -> Sequence[tuple[str, Batch]]:
        if not len(batch):
            return ()
        keys = batch.select(self._fields).data
        codes = np.zeros(len(batch), np.int64)
        for column in keys.columns:
            encoded = column.dictionary_encode(null_encoding="encode")
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            # Anew for each field, so that the codes of many fields stay small.
            _, codes = np.unique(codes, return_inverse=True)
        _, firsts = np.unique(codes, return_index=True)
        kept = [name for name in batch.data.schema.names if name not in self._dropped]
        data = batch.select(kept)
        folders = [
            folder_of(self._fields, [column[int(first)].as_py() for column in keys.columns])
            for first in firsts
        ]
        if len(folders) == 1:
            return [(folders[0], data)]
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(folders) + 1))
        ordered = data.take(order)
        return [
            (folder, ordered.slice(int(bounds[number]), int(bounds[number + 1])))
            for number, folder in enumerate(folders)
        ]

    def _of_rows(self, batch: RowBatch) -> Sequence[tuple[str, Batch]]:
        groups: dict[str, list[Any]] = {}
        for record in batch.values:
            folder = folder_of(self._fields, self._values(record))
            groups.setdefault(folder, []).append(self._written(record))
        return [(folder, RowBatch(records)) for folder, records in groups.items()]

    def _values(self, record: Any) -> list[Any]:
        try:
            return [record[name] for name in self._fields]
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise UserCodeError(
                f"field_bucket_assigner: a record has not all fields of {list(self._fields)}: "
                f"{bounded_repr(record, 200)}. Expected a Row with names, or a dict."
            ) from error

    def _written(self, record: Any) -> Any:
        if not self._dropped:
            return record
        if isinstance(record, Row):
            return without_fields(record, self._dropped)
        return {name: value for name, value in record.items() if name not in self._dropped}


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
