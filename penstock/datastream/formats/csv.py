"""Rows as lines of comma-separated values. Knows no connector.

Source: pyflink.datastream.formats.csv, Flink's CsvRowDeserializationSchema and CsvRowSerializationSchema; the csv module
does the work. Files of CSV are Spark's: read them with spark.read.csv and take env.from_spark.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from penstock.common.absent import absent
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.datastream.formats.text_values import checked_row_type, formatter_of, parser_of
from penstock.model import types as t
from penstock.model.errors import ConfigurationError
from penstock.model.row import make_row

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

Parse: TypeAlias = Callable[[str], Any]
Format: TypeAlias = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class _Form:
    """How a line is written. `null` None: nothing stands for None, and an empty field is an empty text."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    element_delimiter: str = ";"
    null: str | None = None
    line_delimiter: str = "\n"
    allows_comments: bool = False

    def reader(self, text: str) -> Any:
        return csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )


class CsvRowDeserializationSchema(DeserializationSchema):
    """A line to a Row of the declared type. Made by `CsvRowDeserializationSchema.Builder(type_info)`."""

    def __init__(self, row_type: RowTypeInfo, form: _Form, *, ignores_errors: bool = False) -> None:
        self._row_type = row_type
        self._form = form
        self._ignores_errors = ignores_errors
        self._parsers: list[Parse] | None = None

    @property
    def produced_type(self) -> TypeInformation:
        return self._row_type

    def deserialize(self, data: bytes) -> Any:
        """None: there is no record (nothing, a comment, an error that is ignored). Raises: ValueError."""
        if self._parsers is None:
            self._parsers = [_parser(kind, self._form) for kind in self._row_type.get_field_types()]
        try:
            text = data.decode("utf-8")
            if not text.strip("\r\n") or (self._form.allows_comments and text.startswith("#")):
                return None
            return self._row(next(self._form.reader(text)))
        except (ValueError, csv.Error) as error:
            if self._ignores_errors:
                return None
            raise ValueError(
                f"a message is not CSV of {self._row_type}: {error}. Message: {data[:200]!r}"
            ) from error

    def _row(self, fields: Sequence[str]) -> Any:
        assert self._parsers is not None
        names = self._row_type.get_field_names()
        if len(fields) != len(names):
            raise ValueError(
                f"row length mismatch: {len(names)} fields expected but was {len(fields)}"
            )
        values = []
        for name, parse, field in zip(names, self._parsers, fields, strict=True):
            try:
                values.append(parse(field))
            except ValueError as error:
                raise ValueError(f"field '{name}': {error}") from error
        return make_row(tuple(names), values)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsers": None}

    class Builder:
        """Comma, double quotes and ';' between the elements of arrays unless something else is set."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type = checked_row_type(type_info)
            self._form = _Form()
            self._ignores_errors = False

        def _set(self, **changes: Any) -> CsvRowDeserializationSchema.Builder:
            self._form = replace(self._form, **changes)
            return self

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            return self._set(delimiter=_character("set_field_delimiter", delimiter))

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Lines that begin with '#' give no record."""
            return self._set(allows_comments=allow_comments)

        def set_array_element_delimiter(
            self, delimiter: str
        ) -> CsvRowDeserializationSchema.Builder:
            return self._set(element_delimiter=_text("set_array_element_delimiter", delimiter))

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            return self._set(quote=_character("set_quote_character", c))

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            return self._set(escape=_character("set_escape_character", c))

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Fields with this text are None."""
            return self._set(null=null_literal)

        def set_ignore_parse_errors(
            self, ignore_parse_errors: bool
        ) -> CsvRowDeserializationSchema.Builder:
            """Messages that cannot be read give no record."""
            self._ignores_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            return CsvRowDeserializationSchema(
                self._type, self._form, ignores_errors=self._ignores_errors
            )


class CsvRowSerializationSchema(SerializationSchema):
    """A Row to a line with its end. Made by `CsvRowSerializationSchema.Builder(type_info)`."""

    def __init__(self, row_type: RowTypeInfo, form: _Form) -> None:
        self._row_type = row_type
        self._form = form
        self._formats: list[Format] | None = None

    def serialize(self, value: Any) -> bytes:
        """Raises: ValueError: the row has another number of fields."""
        if self._formats is None:
            self._formats = [_format(kind, self._form) for kind in self._row_type.get_field_types()]
        values = list(value)
        if len(values) != len(self._formats):
            raise ValueError(
                f"row length mismatch: {len(self._formats)} fields expected but was {len(values)}: {value!r}"
            )
        fields = [make(one) for make, one in zip(self._formats, values, strict=True)]
        return (self._form.delimiter.join(fields) + self._form.line_delimiter).encode()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_formats": None}

    class Builder:
        """As for reading; lines end with a line feed."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type = checked_row_type(type_info)
            self._form = _Form()

        def _set(self, **changes: Any) -> CsvRowSerializationSchema.Builder:
            self._form = replace(self._form, **changes)
            return self

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._set(delimiter=_character("set_field_delimiter", c))

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """A line feed, a carriage return, both, or nothing."""
            if delimiter not in {"\n", "\r", "\r\n", ""}:
                raise ConfigurationError(
                    f"unsupported new line delimiter {delimiter!r}: expected '\\n', '\\r', '\\r\\n' or ''."
                )
            return self._set(line_delimiter=delimiter)

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            return self._set(element_delimiter=_text("set_array_element_delimiter", delimiter))

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            return self._set(quote=None)

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._set(quote=_character("set_quote_character", c))

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._set(escape=_character("set_escape_character", c))

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """What is written for None; an empty field by default."""
            return self._set(null=s)

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(self._type, self._form)


# ---------------------------------------------------------------------- single fields


def _parser(type_info: TypeInformation, form: _Form) -> Parse:
    parse = _value_parser(type_info, form)
    null = form.null
    if null is None:
        is_text = type_info == t.Types.STRING()
        return parse if is_text else lambda text: None if not text else parse(text)
    return lambda text: None if text == null else parse(text)


def _value_parser(type_info: TypeInformation, form: _Form) -> Parse:
    try:
        return parser_of(type_info)
    except TypeError:
        kinds = _element_types(type_info)
    if isinstance(type_info, t.ElementTypeInfo):
        element = _parser(kinds[0], form)
        return lambda text: (
            [element(one) for one in text.split(form.element_delimiter)] if text else []
        )
    assert isinstance(type_info, RowTypeInfo)
    names = tuple(type_info.get_field_names())
    parsers = [_parser(kind, form) for kind in kinds]

    def parse_row(text: str) -> Any:
        pieces = text.split(form.element_delimiter)
        if len(pieces) != len(names):
            raise ValueError(f"expected {len(names)} values in {text!r}, got {len(pieces)}")
        return make_row(names, [parse(one) for parse, one in zip(parsers, pieces, strict=True)])

    return parse_row


def _format(type_info: TypeInformation, form: _Form) -> Format:
    plain = _value_format(type_info, form)
    null = form.null or ""
    return lambda value: null if value is None else _quoted(plain(value), form)


def _value_format(type_info: TypeInformation, form: _Form) -> Format:
    try:
        return formatter_of(type_info, zoned=False)
    except TypeError:
        kinds = _element_types(type_info)
    null = form.null or ""
    formats = [_value_format(kind, form) for kind in kinds]

    def format_all(value: Any) -> str:
        items = list(value)
        used = formats if isinstance(type_info, RowTypeInfo) else formats * len(items)
        return form.element_delimiter.join(
            null if item is None else make(item) for make, item in zip(used, items, strict=True)
        )

    return format_all


def _element_types(type_info: TypeInformation) -> Sequence[TypeInformation]:
    if isinstance(type_info, RowTypeInfo):
        return type_info.get_field_types()
    if isinstance(type_info, t.ElementTypeInfo):
        return [type_info.element_type]
    raise TypeError(f"CSV has no form for {type_info}")


def _quoted(text: str, form: _Form) -> str:
    """With quotes where the line could not be read again without them."""
    quote, escape = form.quote, form.escape
    if escape is not None:
        text = text.replace(escape, escape * 2)
    if quote is None:
        return text
    special = (form.delimiter, quote, "\r", "\n")
    if not any(one in text for one in special):
        return text
    inner = text.replace(quote, (escape or quote) + quote)
    return f"{quote}{inner}{quote}"


def _character(setter: str, text: str) -> str:
    if not isinstance(text, str) or len(text) != 1:
        raise ConfigurationError(f"{setter}: expected one character, got {text!r}.")
    return text


def _text(setter: str, text: str) -> str:
    if not isinstance(text, str) or not text:
        raise ConfigurationError(f"{setter}: expected a text that is not empty, got {text!r}.")
    return text


__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            ("CsvReaderFormat", "CsvSchema", "CsvSchemaBuilder"),
            "Read the files with spark.read.csv and take env.from_spark.",
        ),
        "CsvBulkWriters": "Write lines with FileSink.for_row_format and CsvRowSerializationSchema: "
        "Encoder.of(schema.serialize).",
    },
)
