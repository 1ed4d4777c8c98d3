"""CSV files: a schema of their columns, a format to read them with FileSource, and writers for FileSink.

Source: pyflink.datastream.formats.csv, Jackson's CsvSchema; differs: column types are those of `Types`, where PyFlink
uses those of its Table API.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, BinaryIO, Final, cast

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TypeInformation, Types
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.types import DecimalTypeInfo
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows
from penstock.formats.csv_values import (
    CsvError,
    Form,
    Format,
    Parse,
    character,
    field_format,
    field_parser,
    joined,
    lines_of,
    parsed,
    quoting,
    text_of,
)
from penstock.formats.file_access import open_unpacked, shown, size_of
from penstock.formats.file_format import (
    FileFormat,
    FilePiece,
    FoundFile,
    RowsFileWriter,
    check_row_type,
)
from penstock.formats.text_lines import ROWS_PER_BATCH
from penstock.formats.text_values import for_fields

_B: Final = BasicType
_NUMBERS: Final = frozenset({
    _B.BYTE, _B.SHORT, _B.INT, _B.LONG, _B.FLOAT, _B.DOUBLE, _B.BIG_INT, _B.BIG_DEC,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Column:
    """A column. `separator`: between the elements of an array; "": the array is one element, None: the file's
    separator.
    """

    name: str
    type_info: TypeInformation
    separator: str | None = None


@dataclass(frozen=True, slots=True)
class CsvSchema:
    """Describes columns and form of CSV files. Build it with `CsvSchema.builder()`."""

    columns: tuple[_Column, ...] = ()
    form: Form = field(default_factory=Form)
    has_header: bool = False
    is_header_strict: bool = False
    skips_first_row: bool = False
    any_property: str | None = None

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Return a builder."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    @property
    def row_type(self) -> RowTypeInfo:
        """The ROW type of the records. Not in PyFlink."""
        names = [column.name for column in self.columns]
        return Types.ROW_NAMED(names, [column.type_info for column in self.columns])

    def form_of(self, column: _Column) -> Form:
        """Return the form with the separator of this column's elements. Not in PyFlink."""
        if column.separator is None:
            return self.form
        return replace(self.form, element_delimiter=column.separator or None)

    def __str__(self) -> str:
        return ", ".join(f"{column.name}: {column.type_info}" for column in self.columns)


class CsvSchemaBuilder:
    """Builds a CsvSchema; the setters return the builder.

    Defaults: comma, double quotes, no escape character, no header, ';' between the elements of
    arrays.
    """

    def __init__(self) -> None:
        self._schema = CsvSchema()

    def build(self) -> CsvSchema:
        """Return the schema. Raises ConfigurationError if there is no column."""
        if not self._schema.columns:
            raise ConfigurationError(
                "CsvSchema has no columns: call add_string_column, add_number_column, add_boolean_column or "
                "add_array_column before build()."
            )
        return self._schema

    def size(self) -> int:
        """Return the number of columns so far."""
        return self._schema.size()

    # ---------------------------------------------------------- columns

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of lists.

        Args:
            name: the column's name.
            separator: the text between elements; "": the whole field is one element.
            element_type: the type of the elements; strings by default.
        """
        kind = Types.STRING() if element_type is None else _type("add_array_column", element_type)
        return self._add(_Column(name, Types.LIST(kind), separator))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of booleans."""
        return self._add(_Column(name, Types.BOOLEAN()))

    def add_number_column(
        self, name: str, number_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of numbers. `number_type`: one of Types, LONG by default."""
        kind = Types.LONG() if number_type is None else _type("add_number_column", number_type)
        is_plain = isinstance(kind, BasicTypeInfo) and kind.basic_type in _NUMBERS
        if not is_plain and not isinstance(kind, DecimalTypeInfo):
            raise TypeError(
                f"add_number_column({name!r}): expected a number type such as Types.INT() or "
                f"Types.DOUBLE(), got {kind}."
            )
        return self._add(_Column(name, kind))

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of strings."""
        return self._add(_Column(name, Types.STRING()))

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add the columns of another schema."""
        for column in schema.columns:
            self._add(column)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        return self._set(columns=())

    # ---------------------------------------------------------- form

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Set whether lines that start with '#' are skipped."""
        return self._set_form(allows_comments=allow)

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Allow fields after the last column, and skip them: a Row has no place for them."""
        return self._set(any_property=text_of("set_any_property_name", name))

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Read each array field as one element, unless its column has a separator."""
        return self._set_form(element_delimiter=None)

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Read the array field of the column at this position, from 0, as one element."""
        columns = list(self._schema.columns)
        if not 0 <= index < len(columns):
            raise ConfigurationError(
                f"remove_array_element_separator: there is no column {index}; the schema has "
                f"{len(columns)} columns so far."
            )
        columns[index] = replace(columns[index], separator="")
        return self._set(columns=tuple(columns))

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the separator of arrays whose column has none."""
        return self._set_form(element_delimiter=text_of("set_array_element_separator", separator))

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        return self._set_form(delimiter=character("set_column_separator", char))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        return self._set_form(escape=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        return self._set_form(escape=character("set_escape_char", char))

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the end of a line for writing.

        When reading, line feed and carriage return end lines.
        """
        return self._set_form(line_delimiter=text_of("set_line_separator", separator))

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text of fields that are None."""
        return self._set_form(null=null_value)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        return self._set_form(quote=None)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        return self._set_form(quote=character("set_quote_char", char))

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Set whether the first line with data is skipped."""
        return self._set(skips_first_row=skip)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Set whether a header must have the names of the columns, in their order."""
        return self._set(is_header_strict=strict)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Set whether the first line has the names: readers skip it, writers write it."""
        return self._set(has_header=use)

    def _add(self, column: _Column) -> CsvSchemaBuilder:
        if column.name in {one.name for one in self._schema.columns}:
            raise ConfigurationError(
                f"CsvSchema: there is a column {column.name!r} already. Give each column a name of "
                "its own."
            )
        return self._set(columns=(*self._schema.columns, column))

    def _set(self, **changes: Any) -> CsvSchemaBuilder:
        self._schema = replace(self._schema, **changes)
        return self

    def _set_form(self, **changes: Any) -> CsvSchemaBuilder:
        return self._set(form=replace(self._schema.form, **changes))


_NO_TEXT: Final = re.compile(r"[\udc80-\udcff]")
"""Stands for bytes that are not UTF-8."""
_PART_OF_LINE: Final = 1 << 16
_WIDE_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
"""The mark of UTF-32 in little-endian order begins as that of UTF-16."""


class CsvReaderFormat(FileFormat):
    """Reads CSV files as Rows, for `FileSource.for_record_stream_format`.

    A file is not split: a quoted field may have several lines.
    """

    def __init__(self, schema: CsvSchema) -> None:
        """Raises: TypeError: CSV has no form for the type of a column."""
        self.schema = schema
        for_fields(schema.row_type, lambda kind: field_parser(kind, schema.form))

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Return the format of a schema."""
        return CsvReaderFormat(_checked(schema, "CsvReaderFormat"))

    @property
    def produced_type(self) -> TypeInformation:
        return self.schema.row_type

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        return self.pieces_of(FoundFile(path, size_of(path)), split_bytes)

    def pieces_of(self, file: FoundFile, split_bytes: int) -> Iterator[FilePiece]:
        if file.size:
            yield FilePiece(file.path, 0, None, file.size)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        schema = self.schema
        names = [column.name for column in schema.columns]
        parsers = [field_parser(one.type_info, schema.form_of(one)) for one in schema.columns]
        with open_unpacked(piece.path) as raw, io.BufferedReader(cast("io.RawIOBase", raw)) as file:
            _refuse_wide(file.peek(len(codecs.BOM_UTF32_BE)), piece.path)
            text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
            records = _Records(text, self, piece.path)
            rows: list[Any] = []
            for fields in records.data(names):
                rows.append(records.row(fields, names, parsers))
                if len(rows) == ROWS_PER_BATCH:
                    yield records.batch(rows)
                    rows = []
            if rows:
                yield records.batch(rows)


def _refuse_wide(beginning: bytes, path: str) -> None:
    """Refuse a file of UTF-16 or UTF-32, which would be read as texts with zero bytes."""
    if beginning.startswith(_WIDE_MARKS):
        raise UserCodeError(
            f"{shown(path)}: a CSV file has to be in UTF-8, and its first bytes, "
            f"{beginning[:4]!r}, are the byte order mark of UTF-16 or UTF-32. Save it as UTF-8."
        )


class _Records:
    """The records of one file, as lists of texts; a `Malformed` for what is no record."""

    def __init__(self, file: io.TextIOWrapper, csv: CsvReaderFormat, path: str) -> None:
        self._file = file
        self._csv = csv
        self._schema = csv.schema
        self._path = path
        self._is_between = True
        self._has_marks = False
        self._is_no_text = False
        self._raw: list[str] = []
        self._size = 0
        self._is_too_long = False
        self._rest = ""
        self._line_number = 0
        self._source = self._lines()
        self._reader = self._schema.form.reader(self._source)

    def data(self, names: list[str]) -> Iterator[list[str] | Malformed]:
        """The records without the header and without those to skip."""
        records = self._all()
        if self._schema.has_header:
            header = next(records, None)
            if self._schema.is_header_strict and header is not None and header != names:
                raise self._error(f"the header has {header}, but the schema has {names}")
        if self._schema.skips_first_row:
            next(records, None)
        yield from records

    def batch(self, rows: list[Any]) -> RowBatch:
        """The rows since the last call as a batch."""
        has_marks, self._has_marks = self._has_marks, False
        return MarkedRows(rows) if has_marks else RowBatch(rows)

    def row(self, fields: list[str] | Malformed, names: list[str], parsers: list[Parse]) -> Any:
        if isinstance(fields, Malformed):
            return fields
        if self._schema.any_property is not None:
            fields = fields[: len(names)]
        try:
            return parsed(fields, names, parsers, self._schema.form)
        except ValueError as error:
            what = f"{error}. The record: {bounded_repr(fields, 200)}"
            return self._malformed(error, what)

    def _all(self) -> Iterator[list[str] | Malformed]:
        while True:
            if self._is_too_long:
                self._begin_anew()
            self._is_between = True
            self._raw.clear()
            self._size = 0
            fields = refused = None
            try:
                fields = next(self._reader, None)
            except CsvError as error:
                refused = error
                self._read_to_end()
            if self._is_too_long:
                self._has_marks = True
                yield self._csv.too_long(self._path, f"that ends after line {self._line_number}")
            elif refused is not None:
                self._is_no_text = False
                yield self._malformed(refused, str(refused))
            elif fields is None:
                return
            elif self._is_no_text:
                self._is_no_text = False
                yield self._no_text()
            elif fields:  # a blank line has no fields
                yield fields

    def _read_to_end(self) -> None:
        """Take the lines of the record that was found to be no CSV, also those of its later fields in quotes: they are no records."""
        lines = chain(tuple(self._raw), self._source)
        next(self._schema.form.reader(lines, strict=False), None)

    def _begin_anew(self) -> None:
        """Read on with the next line, even if quotes are open: they may stay open to the file's end."""
        while self._rest and not self._rest.endswith(("\n", "\r")):
            self._rest = self._file.readline(_PART_OF_LINE)
        self._is_too_long = self._is_no_text = False
        self._source = self._lines()
        self._reader = self._schema.form.reader(self._source)

    @property
    def _bytes(self) -> bytes:
        """The lines of the record that was read last."""
        return "".join(self._raw).rstrip("\r\n").encode("utf-8", "surrogateescape")

    def _no_text(self) -> Malformed:
        try:
            self._bytes.decode()
        except UnicodeDecodeError as error:
            return self._malformed(error, str(error))
        raise AssertionError("a surrogate stands for a byte that is no UTF-8")

    def _malformed(self, error: Exception, what: str) -> Malformed:
        """For the record that was read last. Its raw form is its text, or bytes if it is not UTF-8."""
        self._has_marks = True
        raw = self._bytes
        with contextlib.suppress(UnicodeDecodeError):
            return Malformed(raw.decode(), error, self._error(what))
        return Malformed(raw, error, self._error(what))

    def _lines(self) -> Iterator[str]:
        """All lines but comments. A comment begins where a record would: a quoted field may contain such a line."""
        allows_comments = self._schema.form.allows_comments
        most = self._csv.max_record_bytes
        while raw := self._file.readline(most + 1):
            self._line_number += 1
            self._size += len(raw)
            if self._size > most:
                self._is_too_long, self._rest = True, raw
                return
            line = raw.removeprefix("\ufeff") if self._line_number == 1 else raw
            if not (allows_comments and self._is_between and line.startswith("#")):
                self._is_between = False
                if not line.isascii() and _NO_TEXT.search(line):
                    self._is_no_text = True
                self._raw.append(line)
                yield line

    def _error(self, what: str) -> UserCodeError:
        return UserCodeError(
            f"{shown(self._path)}: the record that ends at line {self._line_number} cannot be "
            f"read as CSV of ({self._schema}): {what}"
        )


class CsvBulkWriters:
    """Creates writers of CSV files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Return a factory of files; Rows and tuples fill the schema's columns by position."""
        return _CsvWriterFactory(_checked(schema, "CsvBulkWriters"))


class _CsvWriterFactory(BulkWriterFactory):
    accepts = Accepts.ROWS
    is_converting = True

    def __init__(self, schema: CsvSchema) -> None:
        """Raises: TypeError: CSV has no form for the type of a column."""
        self._schema = schema
        for_fields(schema.row_type, lambda kind: field_format(kind, schema.form))
        self.can_be_concatenated = not schema.has_header

    @cached_property
    def _formats(self) -> list[Format]:
        schema = self._schema
        return [field_format(one.type_info, schema.form_of(one)) for one in schema.columns]

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema, "can_be_concatenated": self.can_be_concatenated}

    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter:
        form = self._schema.form
        if self._schema.has_header:
            names = map(quoting(form), [column.name for column in self._schema.columns])
            file.write((joined([*names], form) + form.line_delimiter).encode())
        return RowsFileWriter(self.converted, file.write)

    def check_input(self, value_type: Any) -> None:
        check_row_type(value_type, [one.name for one in self._schema.columns], by_place=True)

    def converted(self, batch: Batch, value_type: Any = None) -> bytes:
        assert isinstance(batch, RowBatch), "CSV files are written from rows"
        schema = self._schema
        return lines_of(batch.values, schema.row_type, self._formats, schema.form)


def _type(method: str, type_info: Any) -> TypeInformation:
    if not isinstance(type_info, TypeInformation):
        raise TypeError(
            f"{method} takes a type such as Types.INT(), got {type_info!r}. Write Types.INT() for "
            "PyFlink's DataTypes.INT()."
        )
    return type_info


def _checked(schema: Any, where: str) -> CsvSchema:
    if not isinstance(schema, CsvSchema):
        raise TypeError(
            f"{where} takes a CsvSchema from CsvSchema.builder(), got {type(schema).__name__}."
        )
    return schema
