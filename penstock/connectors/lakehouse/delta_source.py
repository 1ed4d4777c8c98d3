"""DeltaSource: reads a snapshot of a Delta table, and if asked the rows that later versions add.
Needs `deltalake` (`penstock[delta]`).

The driver reads the table's log, and each file is a split, which Arrow reads. Bounded, exactly
once. Source: Delta protocol; Flink's DeltaSource (bounded and continuous mode, startingVersion,
ignoreDeletes, ignoreChanges).
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Batch,
    ColumnBatch,
    EnumeratorContext,
    PolledSplitReader,
    ReaderContext,
    RefusedForGood,
)
from penstock.connectors.api.builder import SettingsBuilder, checked_ms
from penstock.connectors.lakehouse.delta_tables import (
    check_readable,
    import_deltalake,
    opened,
    schema_of_table,
)
from penstock.connectors.lakehouse.tables import (
    TableEnumerator,
    TableSource,
    at_submit,
    check_columns,
    row_type_of,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.codecs.convert import arrow_schema, cast_to
from penstock.formats.file_access import Address, arrow_input, is_remote, open_input, shown
from penstock.formats.file_format import local_path

# ---------------------------------------------------------------------- delta partitions
# Values of partition columns of Delta tables, from the texts that stand for them in the log. Does
# not know files.
#
# Source: the Delta protocol, "Partition Value Serialization".


_CODES: Final = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+")
_CODE_CHARS: Final = 6


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a column of this type. An empty text stands for null, whatever the type is."""
    if not text:
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(_moment(text, has_zone=kind.tz is not None), kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(_bytes(text), kind)
    return pa.scalar(text, pa.string()).cast(kind)


def _moment(text: str, *, has_zone: bool) -> dt.datetime:
    """Writers write instants with a zone, or in UTC without a zone."""
    found = dt.datetime.fromisoformat(text)
    utc = found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)
    return utc if has_zone else utc.replace(tzinfo=None)


def _bytes(text: str) -> bytes:
    r"""One character is one byte. Some writers give its code instead, `\u00FF`."""
    if _CODES.fullmatch(text):
        places = range(0, len(text), _CODE_CHARS)
        return bytes(int(text[place + 4 : place + _CODE_CHARS], 16) for place in places)
    return text.encode("latin-1", "replace")


# ---------------------------------------------------------------------- delta source


_LOG: Final = logging.getLogger(__name__)
_BATCH_ROWS: Final = 65_536
_EVERY: Final = Duration.of_seconds(10)


@dataclass(frozen=True, slots=True)
class _Settings:
    """`starting`: the first version whose changes are read; None: the snapshot first. `every_ms`: None: bounded."""

    path: str
    columns: tuple[str, ...] = ()
    version: int | None = None
    starting: int | None = None
    every_ms: int | None = None
    ignores_deletes: bool = False
    ignores_changes: bool = False
    storage: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeltaSplit:
    """A file of the table. `path`: below the table's folder, or absolute. `version`: of the table that has it."""

    version: int
    path: str
    partition: tuple[tuple[str, str | None], ...] = ()


class DeltaSource(TableSource):
    """Reads a Delta table as columns, a snapshot of it or also what is added later. Not in PyFlink.

    Build it: `DeltaSource.for_bounded_row_data("/data/orders").build()`. Its type is the table's.
    """

    @staticmethod
    def for_bounded_row_data(table_path: str) -> DeltaSource.Builder:
        """Return a builder of a source that reads one version of the table, the last one by default, and ends.

        `table_path`: a path that every machine of the job has, or an address: s3://bucket/table, as for FileSource.
        """
        return DeltaSource.Builder(_Settings(local_path(str(table_path))))

    @staticmethod
    def for_continuous_row_data(table_path: str) -> DeltaSource.Builder:
        """Return a builder of a source that reads the table as it is, and then the rows of each new version, without end."""
        path, every_ms = local_path(str(table_path)), _EVERY.to_millis()
        return DeltaSource.Builder(_Settings(path, every_ms=every_ms))

    class Builder(SettingsBuilder):
        """Builds a DeltaSource; the setters return the builder."""

        def with_columns(self, *columns: str) -> Self:
            """Set the columns to read, in this order; by default all."""
            return self._with(columns=tuple(columns))

        def version_as_of(self, version: int) -> Self:
            """Set the version that a bounded source reads."""
            return self._with_number("version_as_of", 0, version=version)

        def starting_version(self, version: int) -> Self:
            """Have a continuous source read the changes of this version and later ones, without a snapshot."""
            return self._with_number("starting_version", 0, starting=version)

        def update_check_interval(self, interval: Duration) -> Self:
            """Set how often a continuous source looks for new versions; 10 s by default."""
            return self._with(every_ms=checked_ms("update_check_interval", interval))

        def ignore_deletes(self, *, ignores: bool = True) -> Self:
            """Skip versions that only remove files. By default they end the job: records cannot be
            taken back.
            """
            return self._with(ignores_deletes=ignores)

        def ignore_changes(self, *, ignores: bool = True) -> Self:
            """Continue at versions that rewrite files (UPDATE, MERGE). Rows that they only copy
            come again.
            """
            return self._with(ignores_changes=ignores, ignores_deletes=ignores)

        def with_storage_options(self, options: dict[str, str]) -> Self:
            """Set options that `deltalake` takes for the store of the table's log. See DeltaSink."""
            return self._with(storage=dict(options))

        def build(self) -> DeltaSource:
            """Return the source. Raises ConfigurationError: there is no such table, or its rows do
            not follow from its files alone.
            """
            settings = self.settings
            if settings.every_ms is None and settings.starting is not None:
                raise ConfigurationError(
                    "starting_version is for continuous sources. Use version_as_of, or "
                    "for_continuous_row_data."
                )
            if settings.every_ms is not None and settings.version is not None:
                raise ConfigurationError(
                    "version_as_of is for bounded sources. Use starting_version, or "
                    "for_bounded_row_data."
                )
            return DeltaSource(settings, _type_of_rows(settings))

    def create_enumerator(self, context: EnumeratorContext) -> _Enumerator:
        return _Enumerator(context, self.settings)

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _Reader(context, self.settings.path, self._type)


def _type_of_rows(settings: _Settings) -> TypeInformation:
    table = _table(settings)
    check_readable(table, settings.path)
    schema = schema_of_table(table)
    check_columns(settings.columns, schema.names, repr(shown(settings.path)))
    names = settings.columns or schema.names
    return row_type_of(pa.schema([schema.field(name) for name in names]), "DeltaSource")


def _table(settings: _Settings) -> Any:
    """Raises ConfigurationError."""
    import_deltalake("DeltaSource")
    found = at_submit(lambda: opened(settings.path, settings.storage, version=settings.version))
    if found is None:
        raise ConfigurationError(
            f"DeltaSource: there is no Delta table at {shown(settings.path)!r}. Check the path."
        )
    return found


class _Enumerator(TableEnumerator):
    """Hands out the files of a snapshot, and of each version after it."""

    format_name = "delta"

    def begin(self) -> tuple[int, list[DeltaSplit]]:
        settings = self.settings
        if settings.starting is not None:
            return settings.starting - 1, []
        table = _table(settings)
        check_readable(table, settings.path)
        return table.version(), _snapshot(table)

    def opened(self) -> Any:
        return opened(self.settings.path, self.settings.storage)

    def later(self, table: Any) -> Iterator[tuple[int, list[DeltaSplit]]]:
        for version in range(self._place + 1, table.version() + 1):
            yield version, self._added(version)

    def _added(self, version: int) -> list[DeltaSplit]:
        """The files with new rows of a version. Raises RefusedForGood: it takes rows back, or the log has it no more."""
        settings, added, removed = self.settings, list[DeltaSplit](), 0
        for action in _actions(settings.path, version):
            if "protocol" in action:
                check_readable(_table(settings), settings.path)
            if (file := action.get("add")) is not None and file.get("dataChange", True):
                if file.get("deletionVector") is not None:
                    removed += 1
                values = tuple(sorted((file.get("partitionValues") or {}).items()))
                added.append(DeltaSplit(version, unquote(file["path"]), values))
            if (file := action.get("remove")) is not None and file.get("dataChange", True):
                removed += 1
        is_allowed = settings.ignores_changes if added else settings.ignores_deletes
        if removed and not is_allowed:
            what, call = ("changes", "ignore_changes") if added else ("deletes", "ignore_deletes")
            raise RefusedForGood(
                f"version {version} of the Delta table {shown(settings.path)!r} {what} rows that "
                f"were read, and a stream cannot take records back. To go on, set {call}() on the "
                "source; or begin anew without a savepoint."
            )
        return added


def _snapshot(table: Any) -> list[DeltaSplit]:
    version, files = table.version(), pa.table(table.get_add_actions(flatten=False))
    columns = list(table.metadata().partition_columns)
    splits = []
    for one in files.select([
        n for n in files.column_names if n in {"path", "partition"}
    ]).to_pylist():
        raw = one.get("partition") or {}
        values = tuple((name, _raw_text(raw.get(name))) for name in columns)
        splits.append(DeltaSplit(version, unquote(one["path"]), values))
    return splits


def _raw_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _actions(path: str, version: int) -> Iterable[dict[str, Any]]:
    """The lines of a version in the log. Raises RefusedForGood: it was cleaned up."""
    place = _inside(path, f"_delta_log/{version:020d}.json")
    try:
        with open_input(place) as file:
            lines = file.read().splitlines()
    except FileNotFoundError as error:
        raise RefusedForGood(
            f"version {version} of the Delta table {shown(path)!r} is no longer in its log, so "
            "what it added cannot be read. Begin anew without a savepoint, and keep the log for "
            "longer (delta.logRetentionDuration)."
        ) from error
    return [json.loads(line) for line in lines if line.strip()]


def _inside(folder: str, path: str) -> str:
    """A path below the table's folder. Absolute paths stay (shallow clones)."""
    if "://" in path or path.startswith("/"):
        return path.removeprefix("file://")
    if not is_remote(folder):
        return f"{folder.rstrip('/')}/{path}"
    address = Address.of(folder)
    return str(address.at(f"{address.path}/{path}"))


class _Reader(PolledSplitReader):
    """Reads the files with Arrow; a column that a file does not have is null, as it was added later."""

    def __init__(self, context: ReaderContext, path: str, row_type: Any) -> None:
        super().__init__(context)
        self._path = path
        self._schema = arrow_schema(row_type)

    def split_id(self, split: DeltaSplit) -> str:
        return f"{split.version}:{split.path}"

    def read(self, split: DeltaSplit) -> Iterator[Batch]:
        values = dict(split.partition)
        with (
            arrow_input(_inside(self._path, split.path)) as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
        ):
            there = set(file.schema_arrow.names)
            columns = [n for n in self._schema.names if n in there and n not in values]
            for data in file.iter_batches(_BATCH_ROWS, columns=columns):
                arrays = [self._column(data, one, values) for one in self._schema]
                yield ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=self._schema), None)

    def _column(self, data: pa.RecordBatch, one: pa.Field, values: dict[str, str | None]) -> Any:
        if one.name in values:
            return pa.repeat(partition_value(values[one.name], one.type), data.num_rows)
        if one.name in data.schema.names:
            return cast_to(data.column(one.name), one.type)
        return pa.nulls(data.num_rows, one.type)
