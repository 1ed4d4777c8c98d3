"""What sources and sinks of tables share, whatever their format is."""

from __future__ import annotations

import contextlib
import logging
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.api.base import (
    Accepts,
    Batch,
    Boundedness,
    EnumeratorContext,
    QueueEnumerator,
    RefusedForGood,
    Sink,
    Source,
    WriterContext,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.codecs.convert import ROW_KIND_COLUMN, to_columns
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.interruption import uninterruptible
from penstock.engine.runtime.sink import SendFigures
from penstock.formats.column_files import schema_of

# ---------------------------------------------------------------------- data files
# Parquet files of a table, which nobody sees before a commit names them. Does not know any table format.
#
# A file has its final name as soon as it is whole. Files that no commit names stay after failures:
# tables have a command that removes them (Delta's VACUUM, Iceberg's remove_orphan_files).


ROW_GROUP_ROWS: Final = 131_072
FILE_BYTES: Final = 128 * 1024 * 1024
"""A file that is larger is closed, and another one is begun. A table may say otherwise."""
MOST_OPEN: Final = 100
"""Files at once: each of them has buffers. One more, and the largest is closed."""

PartitionValues: TypeAlias = "tuple[Any, ...]"


class TableFiles(Protocol):
    """What a table format says about its files.

    `table`: its name in errors. `schema`: of records, with all columns of the table. `columns`: names of those that are in files, in the
    order of `in_files`, whose names may differ. `most_bytes`: None: `FILE_BYTES`. `options`: of pyarrow's ParquetWriter.
    """

    table: str
    schema: pa.Schema
    columns: Sequence[str]
    in_files: pa.Schema
    most_bytes: int | None
    options: Mapping[str, Any]

    def keys(self, data: pa.RecordBatch) -> Sequence[pa.Array]:
        """One array for each partition field, whose values choose the file of a row. Empty: the table has no partitions."""

    def create(self, name: str, values: PartitionValues) -> tuple[str, Any]:
        """Open a new file for rows with these partition values; returns its path too."""

    def finish(self, path: str, file: Any) -> None:
        """Make the file durable under its name."""

    def discard(self, path: str, file: Any) -> None:
        """Remove a file that is not finished."""

    def remove(self, path: str) -> None:
        """Remove a finished file, if it is there."""

    def described(self, path: str, size: int, values: PartitionValues, footer: Any) -> object:
        """What a commit needs to know of a finished file, as plain data. `footer`: pyarrow's FileMetaData."""


@dataclass(slots=True)
class _OpenFile:
    path: str
    file: Any
    writer: pq.ParquetWriter
    footer: list[Any]


class TableWriter:
    """Writes the records of one subtask into files, one open for each partition."""

    def __init__(self, files: TableFiles, context: WriterContext, row_type: Any) -> None:
        """`row_type`: of records that come as rows, where the stream declares none."""
        self.sent = SendFigures()
        self._files = files
        self._type = context.input_type if context.input_type is not None else row_type
        self._name = f"part-{context.attempt_prefix}-{context.subtask}-{uuid.uuid4().hex[:8]}"
        self._begun = 0
        self._open: dict[PartitionValues, _OpenFile] = {}
        self._whole: list[tuple[str, object]] = []

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.convert(batch), watermark_ms)

    @uninterruptible()
    def write_converted(self, converted: pa.RecordBatch, watermark_ms: int) -> None:
        """Write what `convert` returned."""
        most_bytes = self._files.most_bytes or FILE_BYTES
        for values, part in self._partitions(converted):
            file = self._open.get(values)
            if file is None:
                file = self._begin(values)
            file.writer.write_batch(part, ROW_GROUP_ROWS)
            if file.file.tell() >= most_bytes:
                self._finish(values)

    @uninterruptible()
    def prepare_commit(self) -> Sequence[object]:
        """Finish the files. Returns what is to be committed, as one; nothing, if there are none."""
        for values in list(self._open):
            self._finish(values)
        whole, self._whole = self._whole, []
        return [[described for _, described in whole]] if whole else []

    @uninterruptible()
    def close(self) -> None:
        """Remove what was not taken: a new attempt writes it again."""
        for file in self._open.values():
            with contextlib.suppress(OSError, pa.ArrowException):
                file.writer.close()
            self._files.discard(file.path, file.file)
        for path, _ in self._whole:
            self._files.remove(path)
        self._open.clear()
        self._whole.clear()

    def convert(self, batch: Batch) -> pa.RecordBatch:
        """The records with the table's columns. Raises: ValueError: one is no insert, or does not fit a column."""
        columns = to_columns(batch, self._type) if isinstance(batch, RowBatch) else batch
        data, table = columns.data, self._files.table
        if ROW_KIND_COLUMN in data.schema.names:
            kinds = data.column(ROW_KIND_COLUMN)
            if pc.any(pc.not_equal(kinds, 0)).as_py():
                raise ValueError(
                    f"the table {table!r} only takes new rows, but the stream has "
                    "updates or deletes (Row kinds -U, +U, -D). Filter them, or write a table with "
                    "keys through SqlSink."
                )
        schema = self._files.schema
        arrays = []
        for one in schema:
            try:
                arrays.append(
                    data.column(one.name).cast(one.type)
                    if one.name in data.schema.names
                    else pa.nulls(data.num_rows, one.type)
                )
            except pa.ArrowException as error:
                raise ValueError(
                    f"a record does not fit the column {one.name!r} of the table {table!r}: "
                    f"{error}. Its columns are {_shown(schema)}."
                ) from error
        for one, array in zip(schema, arrays, strict=True):
            if not one.nullable and array.null_count:
                raise ValueError(
                    f"the column {one.name!r} of the table {table!r} takes no nulls, but a record "
                    "has none of it or None in it. Filter such records, or change the table."
                )
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _partitions(self, data: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
        """The rows of each partition, in their order, with the columns of the files."""
        if not data.num_rows:
            return
        rest = pa.RecordBatch.from_arrays(
            [data.column(name) for name in self._files.columns], schema=self._files.in_files
        )
        keys = self._files.keys(data)
        if not keys:
            yield (), rest
            return
        combined = np.zeros(data.num_rows, np.int64)
        for key in keys:
            encoded = key.dictionary_encode("encode")
            numbers = encoded.indices.to_numpy(zero_copy_only=False)
            _, combined = np.unique(
                combined * max(1, len(encoded.dictionary)) + numbers, return_inverse=True
            )
        found, first = np.unique(combined, return_index=True)
        order = np.argsort(combined, kind="stable")
        ends = np.searchsorted(combined[order], found, side="right")
        for row, rows in zip(first, np.split(order, ends[:-1]), strict=True):
            values = tuple(key[int(row)].as_py() for key in keys)
            yield values, rest if len(first) == 1 else rest.take(pa.array(rows))

    def _begin(self, values: PartitionValues) -> _OpenFile:
        if len(self._open) >= MOST_OPEN:
            self._finish(max(self._open, key=lambda one: self._open[one].file.tell()))
        path, file = self._files.create(f"{self._name}-{self._begun}.parquet", values)
        self._begun += 1
        footer = list[Any]()
        writer = pq.ParquetWriter(
            file, self._files.in_files, metadata_collector=footer, **self._files.options
        )
        made = self._open[values] = _OpenFile(path, file, writer, footer)
        return made

    def _finish(self, values: PartitionValues) -> None:
        file = self._open[values]
        file.writer.close()
        size = file.file.tell()
        self._files.finish(file.path, file.file)
        self.sent.bytes += size
        (footer,) = file.footer
        self._whole.append((file.path, self._files.described(file.path, size, values, footer)))
        del self._open[values]


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name}: {one.type}" for one in schema)


# ---------------------------------------------------------------------- tables


# ---------------------------------------------------------------------- schemas
# From the Arrow schema of a table to the type of a stream, and what of a stream does not fit a
# table.


_SIMPLE: Final = (
    (kinds.is_boolean, Types.BOOLEAN()),
    (kinds.is_int8, Types.BYTE()),
    (kinds.is_int16, Types.SHORT()),
    (kinds.is_int32, Types.INT()),
    (kinds.is_int64, Types.LONG()),
    (kinds.is_float32, Types.FLOAT()),
    (kinds.is_float64, Types.DOUBLE()),
    (kinds.is_string, Types.STRING()),
    (kinds.is_large_string, Types.STRING()),
    (kinds.is_string_view, Types.STRING()),
    (kinds.is_binary, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (kinds.is_large_binary, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (kinds.is_binary_view, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (kinds.is_fixed_size_binary, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (kinds.is_time, Types.SQL_TIME()),
    (kinds.is_date, Types.SQL_DATE()),
)


def row_type_of(schema: pa.Schema, where: str) -> RowTypeInfo:
    """The ROW type of a table's rows. `where`: names the source in errors. Raises: ConfigurationError: a column has no counterpart."""
    names = [one.name for one in schema]
    return RowTypeInfo([_type_of(one.type, one.name, where) for one in schema], names)


def _type_of(kind: pa.DataType, path: str, where: str) -> TypeInformation:
    if kinds.is_decimal(kind):
        return Types.DECIMAL(kind.precision, kind.scale)
    if kinds.is_timestamp(kind):
        return Types.SQL_TIMESTAMP() if kind.tz is None else Types.TIMESTAMP_LTZ()
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return Types.LIST(_type_of(kind.value_type, f"{path}.element", where))
    if kinds.is_map(kind):
        key = _type_of(kind.key_type, f"{path}.key", where)
        return Types.MAP(key, _type_of(kind.item_type, f"{path}.value", where))
    if kinds.is_struct(kind):
        inside = [_type_of(one.type, f"{path}.{one.name}", where) for one in kind]
        return RowTypeInfo(inside, [one.name for one in kind])
    for fits, type_info in _SIMPLE:
        if fits(kind):
            return type_info
    raise ConfigurationError(
        f"{where}: the column {path} is {kind}, which has no counterpart in Penstock. Leave it out "
        "with with_columns(...)."
    )


def misfit(stream: pa.Schema, table: pa.Schema) -> str | None:
    """Why records of this schema do not fit the table; None: they do."""
    for one in stream:
        if one.name not in table.names:
            near = [name for name in table.names if name.lower() == one.name.lower()]
            hint = f" (it has {near[0]!r}: capital letters count)" if near else ""
            return f"the table has no column for the field {one.name!r}{hint}"
        column = table.field(one.name)
        if not _fits(one.type, column.type):
            return f"the column {one.name!r} is {column.type}, and the field is {one.type}"
    for column in table:
        if column.name not in stream.names and not column.nullable:
            return f"the column {column.name!r} takes no nulls, and records have no such field"
    return None


_PAIRS: Final[tuple[tuple[Any, Any], ...]] = (
    (kinds.is_integer, lambda one: kinds.is_integer(one) or kinds.is_decimal(one)),
    (kinds.is_decimal, kinds.is_decimal),
    (kinds.is_timestamp, kinds.is_timestamp),
    (kinds.is_time, kinds.is_time),
    *((kind, kind) for kind in (
        lambda one: kinds.is_string(one) or kinds.is_large_string(one) or kinds.is_string_view(one),
        lambda one: kinds.is_binary(one) or kinds.is_large_binary(one) or kinds.is_binary_view(one),
    )),
)  # fmt: skip
"""Kinds of fields, and the columns that take them: a value that does not fit is refused when it comes."""


def _fits(field: Any, column: Any) -> bool:
    """Whether a value either fits the column or is refused when it comes, but never changes."""
    if kinds.is_floating(field):
        return bool(kinds.is_floating(column) and column.bit_width >= field.bit_width)
    if _is_list(field) and _is_list(column):
        return _fits(field.value_type, column.value_type)
    if kinds.is_map(field) and kinds.is_map(column):
        keys = _fits(field.key_type, column.key_type)
        return keys and _fits(field.item_type, column.item_type)
    if kinds.is_struct(field) and kinds.is_struct(column):
        return misfit(pa.schema(list(field)), pa.schema(list(column))) is None
    fits = any(of(field) and takes(column) for of, takes in _PAIRS)
    return bool(fits or field.equals(column))


def _is_list(kind: Any) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind))


# ---------------------------------------------------------------------- tables


_LOG: Final = logging.getLogger(__name__)
Found = TypeVar("Found")


def at_submit(look: Callable[[], Found]) -> Found:
    """What `look` returns. Raises ConfigurationError where it raises ExternalError."""
    try:
        return look()
    except ExternalError as error:
        raise ConfigurationError(str(error)) from error


def check_columns(wanted: Sequence[str], there: Sequence[str], table: object) -> None:
    """Raises ConfigurationError: the table has no such column."""
    if unknown := [one for one in wanted if one not in there]:
        raise ConfigurationError(
            f"with_columns: the table {table} has no column {unknown[0]!r}. It has {list(there)}."
        )


class TableEnumerator(QueueEnumerator):
    """Hands out the files of a table, and those that come later if the source follows it.

    `format_name`: for logs. `_place`: the version or snapshot up to which files were handed out.
    """

    format_name: ClassVar[str]

    def __init__(self, context: EnumeratorContext, settings: Any) -> None:
        super().__init__(context, (), is_final=settings.every_ms is None)
        self.settings = settings
        self._place: Any = None
        self._is_restored = False

    def restore(self, state: Any) -> None:
        """Go on with the splits that were not handed out, and with what follows the checkpoint's version or snapshot."""
        self._place = state["place"]
        self._is_restored = True
        self.add(state["splits"])

    def snapshot_state(self) -> Any:
        return {"splits": super().snapshot_state(), "place": self._place}

    def start(self) -> None:
        if not self._is_restored:
            self._place, splits = self.begin()
            self.add(splits)
        if self.settings.every_ms is not None:
            self._context.call_periodically(self.settings.every_ms, self._follow)

    def _follow(self) -> None:
        try:
            table = self.opened()
            if table is None:
                _LOG.warning(
                    "enumerator=%s discovery=FAILED cause=the table is gone", self.format_name
                )
                return
            for place, splits in self.later(table):
                self.add(splits)
                self._place = place
        except RefusedForGood:
            raise
        except ExternalError as error:
            _LOG.warning("enumerator=%s discovery=FAILED cause=%s", self.format_name, error)

    @abstractmethod
    def begin(self) -> tuple[Any, Sequence[Any]]:
        """Return the place where a new job begins, and the files up to there."""

    @abstractmethod
    def opened(self) -> Any:
        """Return the table as it is now; None: there is none. Raises ExternalError."""

    @abstractmethod
    def later(self, table: Any) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Yield each place after `_place`, with its files. Raises RefusedForGood."""


class TableSource(Source):
    """A source of the rows of one table."""

    def __init__(self, settings: Any, row_type: TypeInformation) -> None:
        self.settings = settings
        self._type = row_type

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.of(is_bounded=self.settings.every_ms is None)

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    @abstractmethod
    def create_enumerator(self, context: EnumeratorContext) -> TableEnumerator: ...

    def restore_enumerator(self, context: EnumeratorContext, state: Any) -> TableEnumerator:
        enumerator = self.create_enumerator(context)
        enumerator.restore(state)
        return enumerator


class TableSink(Sink):
    """A sink that appends rows to one table; one subtask commits. `name`: begins errors."""

    accepts = Accepts.ANY
    is_converting = True
    has_global_committer = True
    name: ClassVar[str]

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def validate_input(self, input_type: Any) -> None:
        """Raises ConfigurationError: the stream's type is no row, or does not fit the table."""
        if input_type is None:
            return
        if not isinstance(input_type, RowTypeInfo):
            raise ConfigurationError(
                f"{self.name}: expected rows with names, got records of the type {input_type}. Map "
                "them to Row(...) with output_type=Types.ROW_NAMED([...], [...])."
            )
        self._check_input(schema_of(input_type, self.name))

    @abstractmethod
    def _check_input(self, stream: pa.Schema) -> None:
        """Hold the stream's fields against the table, if it is there. Raises ConfigurationError."""

    def _check_fits(self, stream: pa.Schema, columns: pa.Schema, table: object) -> None:
        """Raises ConfigurationError: records of the stream do not fit the table's columns."""
        if (reason := misfit(stream, columns)) is not None:
            raise ConfigurationError(
                f"{self.name}: rows do not fit the table {table}: {reason}. Change the field, or "
                "the table (ALTER TABLE)."
            )
