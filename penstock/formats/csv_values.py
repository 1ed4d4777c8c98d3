"""Lines of comma-separated values: their form, and single fields by their declared types.

Does not know schemas and files. Source: Flink's CsvRowDeserializationSchema and CsvRowSerializationSchema; differs:
Python's csv module parses the lines.
"""

from __future__ import annotations

import csv
import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, TypeAlias

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model import types as t
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.row import make_row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.text_values import declared_columns, formatter_of, parser_of

Parse: TypeAlias = Callable[[str], Any]
Format: TypeAlias = Callable[[Any], str]

# Flink's writer (Jackson's) checks texts up to this length, and quotes longer ones without a check.
UNQUOTED_MAX: Final = 24
_NO_BEGINNING: Final = {"", "\ufeff"}
"""Of a blank line, and of one that begins with what a reader takes for a byte order mark."""
_MOST_OF_FIELD: Final = 2**31 - 1
_B: Final = t.BasicType
_UNQUOTED: Final = {_B.BOOLEAN, _B.BYTE, _B.SHORT, _B.INT, _B.LONG, _B.FLOAT, _B.DOUBLE}


def _unlimited_csv() -> Any:
    """Python's csv in C, as a second module with a limit of its own: `csv.field_size_limit` would change the user's process.

    A module with multi-phase initialization (PEP 489) keeps its state by instance. Built in or not, tried on 3.11 to 3.14.
    """
    spec: Any = importlib.util.find_spec("_csv")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.field_size_limit(_MOST_OF_FIELD)
    return module


_CSV: Final = _unlimited_csv()
CsvError: Final[type[Exception]] = _CSV.Error


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a line. `null` None: no text stands for None, and an empty field is an empty text.

    `element_delimiter` None: an array is one element. `ignores_errors`: fields that are missing or cannot be read are
    None.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    element_delimiter: str | None = ";"
    null: str | None = None
    line_delimiter: str = "\n"
    allows_comments: bool = False
    ignores_errors: bool = False

    def reader(self, lines: Iterable[str], *, strict: bool = True) -> Any:
        """A reader that turns lines, with their ends, into lists of texts. It raises CsvError, if it is strict, for what is no CSV."""
        return _CSV.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            strict=strict,
        )


def parsed(
    fields: Sequence[str], names: Sequence[str], parsers: Sequence[Parse], form: Form
) -> Any:
    """The fields as a Row.

    Raises: ValueError: the number of fields is wrong, or a field cannot be read; the text names it.
    """
    missing = len(names) - len(fields)
    if missing < 0 or (missing and not form.ignores_errors):
        raise ValueError(f"row length mismatch: {len(names)} fields expected but was {len(fields)}")
    values = []
    for name, parse, field in zip(names, parsers, fields, strict=False):
        try:
            values.append(parse(field))
        except ValueError as error:
            raise ValueError(f"field '{name}': {error}") from error
    return make_row(tuple(names), [*values, *[None] * missing])


def joined(fields: Sequence[str], form: Form) -> str:
    """A line without its end. Its first field has quotes if the line would be read as a blank one, as a comment, or with a byte order mark.

    Raises: ValueError: it needs quotes, and they are disabled.
    """
    line = form.delimiter.join(fields)
    beginning = line[:1]
    if not fields or (
        beginning not in _NO_BEGINNING and (beginning != "#" or not form.allows_comments)
    ):
        return line
    if form.quote in {None, beginning}:
        raise ValueError(
            f"a line that is {bounded_repr(line, 100)} would not be read as a record, and no "
            "quotes can be put around its first field. Set another quote character, or a text for "
            "None (set_null_value, set_null_literal)"
        )
    return form.delimiter.join([f"{form.quote}{fields[0]}{form.quote}", *fields[1:]])


def lines_of(
    rows: Sequence[Any], row_type: RowTypeInfo, formats: Sequence[Format], form: Form
) -> bytes:
    """The rows as lines with their ends, in UTF-8.

    Raises: ValueError, for the first row that it holds for: it has another number of fields, a value is not of its type, a field has
        no UTF-8 (half a surrogate pair), or as `joined`.
    """
    try:
        return _lines_of(rows, row_type, formats, form)
    except ValueError:
        if len(rows) == 1:
            raise
    return b"".join([_lines_of([row], row_type, formats, form) for row in rows])


def _lines_of(
    rows: Sequence[Any], row_type: RowTypeInfo, formats: Sequence[Format], form: Form
) -> bytes:
    tuples = [tuple(row) for row in rows]
    for row in tuples:
        if len(row) != len(formats):
            raise ValueError(
                f"row length mismatch: {len(formats)} fields expected but was {len(row)}: "
                f"{bounded_repr(row)}"
            )
    columns = declared_columns(zip(*tuples, strict=True), row_type) if rows else []
    texts = [list(map(make, column)) for make, column in zip(formats, columns, strict=False)]
    lines = zip(*texts, strict=True) if texts else repeat((), len(rows))
    end = form.line_delimiter
    try:
        return "".join([joined(fields, form) + end for fields in lines]).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a row cannot be written as CSV: {error}: {bounded_repr(rows[0])}"
        ) from error


def field_parser(type_info: TypeInformation, form: Form) -> Parse:
    parse = _value_parser(type_info, form)
    if form.ignores_errors:
        parse = _or_none(parse)
    null = form.null
    if null is None:
        is_text = type_info == t.Types.STRING()
        return parse if is_text else lambda text: None if not text else parse(text)
    return lambda text: None if text == null else parse(text)


def _or_none(parse: Parse) -> Parse:
    def parse_if_it_can_be(text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            return None

    return parse_if_it_can_be


def _value_parser(type_info: TypeInformation, form: Form) -> Parse:
    try:
        return parser_of(type_info)
    except TypeError:
        kinds = _element_types(type_info)
    if isinstance(type_info, t.ElementTypeInfo):
        element = field_parser(kinds[0], form)
        return lambda text: [element(one) for one in _elements(text, form)] if text else []
    assert isinstance(type_info, RowTypeInfo)
    names = tuple(type_info.get_field_names())
    parsers = [field_parser(kind, form) for kind in kinds]

    return lambda text: parsed(_elements(text, form), names, parsers, form)


def field_format(type_info: TypeInformation, form: Form) -> Format:
    plain = _value_format(type_info, form)
    null = form.null or ""
    is_text = not (isinstance(type_info, t.BasicTypeInfo) and type_info.basic_type in _UNQUOTED)
    quoted = quoting(form, is_text=is_text)
    return lambda value: null if value is None else quoted(plain(value))


def _value_format(type_info: TypeInformation, form: Form) -> Format:
    try:
        return formatter_of(type_info, zoned=False)
    except TypeError:
        kinds = _element_types(type_info)
    null, delimiter = form.null or "", form.element_delimiter or ""
    formats = [_value_format(kind, form) for kind in kinds]

    def format_all(value: Any) -> str:
        items = list(value)
        used = formats if isinstance(type_info, RowTypeInfo) else formats * len(items)
        return delimiter.join(
            null if item is None else make(item) for make, item in zip(used, items, strict=True)
        )

    return format_all


def _elements(text: str, form: Form) -> list[str]:
    return [text] if form.element_delimiter is None else text.split(form.element_delimiter)


def _element_types(type_info: TypeInformation) -> Sequence[TypeInformation]:
    if isinstance(type_info, RowTypeInfo):
        return type_info.get_field_types()
    if isinstance(type_info, t.ElementTypeInfo):
        return [type_info.element_type]
    raise TypeError(f"CSV cannot represent {type_info}")


def quoting(form: Form, *, is_text: bool = True) -> Format:
    """A function that quotes a field where Flink does.

    Numbers and booleans are quoted if the line could not be read again otherwise. Texts are quoted if they are long, or
    have a character that is not above the delimiter and the quote in Unicode order.
    """
    quote, escape = form.quote, form.escape
    escaped: Format = str if escape is None else lambda text: text.replace(escape, escape * 2)
    if quote is None:
        return escaped
    special = {form.delimiter, quote, *form.line_delimiter, "\r", "\n", escape or quote}
    found = re.compile(f"[{''.join(map(re.escape, sorted(special)))}]").search
    unquoted_max: float = float("inf")
    if is_text:
        last = max(form.delimiter, quote, *form.line_delimiter)
        found = re.compile(f"[\\x00-{re.escape(last)}{re.escape(escape or quote)}]").search
        unquoted_max = UNQUOTED_MAX

    def quoted(text: str) -> str:
        if len(text) <= unquoted_max and found(text) is None:
            return text
        return f"{quote}{escaped(text).replace(quote, quote * 2)}{quote}"

    return quoted


def character(setter: str, text: str) -> str:
    if not isinstance(text, str) or len(text) != 1:
        raise ConfigurationError(f"{setter}: expected one character, got {text!r}.")
    return text


def text_of(setter: str, text: str) -> str:
    if not isinstance(text, str) or not text:
        raise ConfigurationError(f"{setter}: expected a text that is not empty, got {text!r}.")
    return text
