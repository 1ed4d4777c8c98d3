"""Partitioned folders, `year=2026/month=11`: their names, and the fields that records get from them. Does not open files.

Source: Hive's layout as Spark writes it (ExternalCatalogUtils.escapePathName); Flink PartitionPathUtils, which writes the same.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from penstock.common.typeinfo import BasicTypeInfo, RowTypeInfo, TypeInformation, Types
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.model.row import Row, RowKind, make_row, make_rows
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.engine.runtime.elements import Batch, ColumnBatch
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.file_access import Address, is_remote, shown
from penstock.formats.file_format import FileFormat, FilePiece, FoundFile
from penstock.formats.text_values import checked_row_type, parser_of

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Stands for None, and for an empty text."""
_ESCAPED: Final = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def folder_of(names: Sequence[str], values: Sequence[Any]) -> str:
    """The folder of records with these values, such as `year=2026/month=11`."""
    return "/".join(
        f"{_escaped(name)}={_text(value)}" for name, value in zip(names, values, strict=True)
    )


def _text(value: Any) -> str:
    if value is None or (isinstance(value, str) and not value):
        return NO_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return _escaped(value.isoformat(" "))
    return _escaped(value.isoformat() if isinstance(value, dt.date | dt.time) else str(value))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda sign: f"%{ord(sign[0]):02X}", text)


class PartitionedFormat(FileFormat):
    """Another format, whose records get fields from the folders that their file lies in.

    Rows and columns get them after their own fields; a field that they have already is replaced.
    What is no row becomes the field `value` of one.
    """

    def __init__(self, inner: FileFormat, fields: RowTypeInfo) -> None:
        self._inner = inner
        self.max_record_bytes = inner.max_record_bytes
        self._names = tuple(checked_row_type(fields).get_field_names())
        self._types = fields.get_field_types()
        if refused := [
            f"{name}: {kind}"
            for name, kind in zip(self._names, self._types, strict=True)
            if not _is_plain(kind)
        ]:
            raise ConfigurationError(
                "with_partition_fields: fields whose values no folder's name can hold: "
                f"{', '.join(refused)}. Expected types of single values, such as "
                "Types.INT(), Types.STRING() or Types.SQL_DATE()."
            )
        self._of_file = _joined(inner.produced_type, self._names, self._types)

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._of_file

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        self._values(path)  # raises where the driver can report it
        return self._inner.pieces(path, split_bytes)

    def pieces_of(self, file: FoundFile, split_bytes: int) -> Iterator[FilePiece]:
        self._values(file.path)
        return self._inner.pieces_of(file, split_bytes)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        values = self._values(piece.path)
        for batch in self._inner.limited_to(self.max_record_bytes).read(piece):
            if isinstance(batch, ColumnBatch):
                yield self._wider(batch, values)
            else:
                yield type(batch)(_with_fields(batch.values, self._names, values), batch.timestamps)

    def _wider(self, batch: ColumnBatch, values: Sequence[Any]) -> ColumnBatch:
        data = batch.data.select([n for n in batch.data.schema.names if n not in self._names])
        schema = arrow_schema(Types.ROW_NAMED(list(self._names), self._types))
        for field, value in zip(schema, values, strict=True):
            column = pa.repeat(pa.scalar(value, field.type), data.num_rows)
            data = data.append_column(field, column)
        return ColumnBatch(data, batch.timestamps)

    def _values(self, path: str) -> list[Any]:
        """The values of the fields in a path. Raises: UserCodeError: it has no folder of a field, or no value of its type."""
        folders = dict(
            folder.split("=", 1)
            for folder in (Address.of(path).path if is_remote(path) else path).split("/")[:-1]
            if "=" in folder
        )
        known = {unquote(name): value for name, value in folders.items()}
        if lacking := [name for name in self._names if name not in known]:
            raise UserCodeError(
                f"{shown(path)}: it lies in no folder '{lacking[0]}=...', which "
                f"with_partition_fields expects. The fields in its path are {list(known)}."
            )
        return [
            _parsed(path, name, kind, known[name])
            for name, kind in zip(self._names, self._types, strict=True)
        ]


def _is_plain(kind: TypeInformation) -> bool:
    try:
        parser_of(kind)
    except TypeError:
        return False
    return is_columnar(Types.ROW([kind]))


def _parsed(path: str, name: str, kind: TypeInformation, text: str) -> Any:
    if text == NO_VALUE:
        return None
    try:
        return parser_of(kind)(unquote(text))
    except ValueError as error:
        raise UserCodeError(
            f"{shown(path)}: the folder '{name}={text}' has no value of the type {kind}: {error}."
        ) from error


def _joined(
    inner: TypeInformation | None, names: Sequence[str], types: Sequence[TypeInformation]
) -> TypeInformation | None:
    """The type of the records. Raises: ConfigurationError: records of the inner type get no fields."""
    if inner is None:
        return None
    if isinstance(inner, RowTypeInfo):
        own = dict(zip(inner.get_field_names(), inner.get_field_types(), strict=True))
    elif isinstance(inner, BasicTypeInfo):
        own = {"value": inner}
    else:
        raise ConfigurationError(
            f"with_partition_fields: records of the type {inner} get no fields. Expected a "
            "format of rows, columns or lines."
        )
    own = {name: kind for name, kind in own.items() if name not in names}
    return Types.ROW_NAMED([*own, *names], [*own.values(), *types])


def _with_fields(
    records: Sequence[Any], names: tuple[str, ...], values: Sequence[Any]
) -> list[Any]:
    """The records with these fields. A `Malformed` stays as it is."""
    first = records[0] if records else None
    if isinstance(first, Row) and all(type(one) is Row for one in records):
        fields = first._fields
        if fields and not set(names) & set(fields):
            same = all(one._fields == fields for one in records)
            if same:
                wider = ((*one, *values) for one in records)
                kinds = (one.get_row_kind() for one in records)
                return list(make_rows((*fields, *names), wider, len(records), kinds))
    return [_one_with_fields(one, names, values) for one in records]


def _one_with_fields(record: Any, names: tuple[str, ...], values: Sequence[Any]) -> Any:
    if isinstance(record, Malformed):
        return record
    added = dict(zip(names, values, strict=True))
    if isinstance(record, dict):
        return {**record, **added}
    own = record.as_dict() if isinstance(record, Row) else {"value": record}
    own = {name: value for name, value in own.items() if name not in added} | added
    kind = record.get_row_kind() if isinstance(record, Row) else RowKind.INSERT
    return make_row(tuple(own), own.values(), kind)


def without_fields(row: Row, names: frozenset[str]) -> Row:
    """The row without these fields, of the same kind."""
    own = {name: value for name, value in row.as_dict().items() if name not in names}
    return make_row(tuple(own), own.values(), row.get_row_kind())
