"""Rows as lines of comma-separated values, one at a time and as files.

Source: pyflink.datastream.formats.csv, Flink's CsvRowDeserializationSchema and CsvRowSerializationSchema.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any, Self

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model.errors import ConfigurationError
from penstock.formats.csv_files import CsvBulkWriters, CsvReaderFormat, CsvSchema, CsvSchemaBuilder
from penstock.formats.csv_values import (
    CsvError,
    Form,
    Format,
    Parse,
    character,
    field_format,
    field_parser,
    lines_of,
    parsed,
    text_of,
)
from penstock.formats.text_values import checked_row_type, for_fields

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]


class _FormBuilder:
    """What the builders of both schemas share."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type = checked_row_type(type_info)
        self._form = Form()

    def _set(self, **changes: Any) -> Self:
        self._form = replace(self._form, **changes)
        return self

    def set_array_element_delimiter(self, delimiter: str) -> Self:
        return self._set(element_delimiter=text_of("set_array_element_delimiter", delimiter))

    def set_quote_character(self, c: str) -> Self:
        return self._set(quote=character("set_quote_character", c))

    def set_escape_character(self, c: str) -> Self:
        return self._set(escape=character("set_escape_character", c))


class CsvRowDeserializationSchema(DeserializationSchema):
    """Turns a line of CSV into a Row.

    Build it with `CsvRowDeserializationSchema.Builder(type_info)`.
    """

    def __init__(self, row_type: RowTypeInfo, form: Form) -> None:
        """Raises: TypeError: CSV has no form for the type of a field."""
        self._row_type = row_type
        self._form = form
        self._parsers: list[Parse] | None = self._made()

    def _made(self) -> list[Parse]:
        return for_fields(self._row_type, lambda kind: field_parser(kind, self._form))

    @property
    def produced_type(self) -> TypeInformation:
        """The declared ROW type."""
        return self._row_type

    def deserialize(self, data: bytes) -> Any:
        """Return the Row; None for an empty message, a comment, or an error that is ignored.

        Raises:
            ValueError: the line cannot be read, and errors are not ignored.
        """
        if self._parsers is None:
            self._parsers = self._made()
        try:
            text = data.decode("utf-8-sig")
            if not text.strip("\r\n") or (self._form.allows_comments and text.startswith("#")):
                return None
            fields = next(self._form.reader(io.StringIO(text, newline="")))
            return parsed(fields, self._row_type.get_field_names(), self._parsers, self._form)
        except (ValueError, CsvError) as error:
            if self._form.ignores_errors:
                return None
            raise ValueError(
                f"a message cannot be read as CSV of {self._row_type}: {error}. Message: "
                f"{data[:200]!r}"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsers": None}

    class Builder(_FormBuilder):
        """Builds the schema. Defaults: comma, double quotes, ';' between the elements of arrays."""

        def set_field_delimiter(self, delimiter: str) -> Self:
            return self._set(delimiter=character("set_field_delimiter", delimiter))

        def set_allow_comments(self, allow_comments: bool) -> Self:
            """Set whether lines that start with '#' are skipped."""
            return self._set(allows_comments=allow_comments)

        def set_null_literal(self, null_literal: str) -> Self:
            """Set the text of fields that are None."""
            return self._set(null=null_literal)

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> Self:
            """Set whether errors are ignored.

            Fields that cannot be read, or are missing, are then None. Messages that are not CSV, or
            have too many fields, give no record.
            """
            return self._set(ignores_errors=ignore_parse_errors)

        def build(self) -> CsvRowDeserializationSchema:
            """Return the schema."""
            return CsvRowDeserializationSchema(self._type, self._form)


class CsvRowSerializationSchema(SerializationSchema):
    """Turns a Row into a line of CSV with its end.

    Build it with `CsvRowSerializationSchema.Builder(type_info)`.
    """

    def __init__(self, row_type: RowTypeInfo, form: Form) -> None:
        """Raises: TypeError: CSV has no form for the type of a field."""
        self._row_type = row_type
        self._form = form
        self._formats: list[Format] | None = self._made()

    def _made(self) -> list[Format]:
        return for_fields(self._row_type, lambda kind: field_format(kind, self._form))

    def serialize(self, value: Any) -> bytes:
        """Return the line. Raises ValueError if the row has another number of fields."""
        if self._formats is None:
            self._formats = self._made()
        return lines_of([value], self._row_type, self._formats, self._form)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_formats": None}

    class Builder(_FormBuilder):
        """Builds the schema. Defaults: as for reading; lines end with a line feed."""

        def set_field_delimiter(self, c: str) -> Self:
            return self._set(delimiter=character("set_field_delimiter", c))

        def set_line_delimiter(self, delimiter: str) -> Self:
            """Set the end of a line: a line feed, a carriage return, both, or nothing."""
            if delimiter not in {"\n", "\r", "\r\n", ""}:
                raise ConfigurationError(
                    f"unsupported new line delimiter {delimiter!r}: expected '\\n', '\\r', '\\r\\n' or ''."
                )
            return self._set(line_delimiter=delimiter)

        def disable_quote_character(self) -> Self:
            """Write fields without quotes."""
            return self._set(quote=None)

        def set_null_literal(self, s: str) -> Self:
            """Set the text that is written for None; by default an empty field."""
            return self._set(null=s)

        def build(self) -> CsvRowSerializationSchema:
            """Return the schema."""
            return CsvRowSerializationSchema(self._type, self._form)
