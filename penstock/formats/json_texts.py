"""Rows as texts of JSON: field by field for one row, and column by column for many.

A column of plain values is one call of `json`, whose result is cut at its line ends: JSON has none inside of a value.
Source: Flink's RowToJsonConverters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final, TypeAlias

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model import types as t
from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.text_values import declared_columns, for_fields, formatter_of

Write: TypeAlias = Callable[[Any], str]
WriteAll: TypeAlias = Callable[[Sequence[Any]], list[str]]

_B = t.BasicType
_PLAIN: Final = {
    _B.BYTE: int,
    _B.SHORT: int,
    _B.INT: int,
    _B.LONG: int,
    _B.BIG_INT: int,
    _B.FLOAT: float,
    _B.DOUBLE: float,
    _B.BOOLEAN: bool,
    _B.STRING: str,
}
"""The classes whose values `json` writes as the type wants them."""
_in_lines = json.JSONEncoder(separators=("\n", ":"), ensure_ascii=False).encode


class RowTexts:
    """The texts of rows of one type."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._row_type = row_type
        self._names = [json_text(name) for name in row_type.get_field_names()]
        self._all_writers = for_fields(row_type, _all_writer)
        fields = ",".join(f"{name.replace('%', '%%')}:%s" for name in self._names)
        self._form = f"{{{fields}}}"

    def one(self, row: Any) -> str:
        """Raises: ValueError: it has another number of fields, or a value that is not of its type."""
        values = list(row)
        if len(values) != len(self._names):
            raise ValueError(
                f"number of elements in the row {bounded_repr(row)} is different from number of "
                f"field names: {len(self._names)}"
            )
        return self.of_columns([[value] for value in values], 1)[0]

    def all(self, rows: Sequence[Any]) -> list[str]:
        """The text of each row. Raises: if `one` raises for one of them, but it may be another error."""
        values = [_values_of(row) for row in rows]
        columns = list(zip(*values, strict=True))
        return self.of_columns(columns, len(rows)) if rows else []

    def of_columns(self, columns: Sequence[Sequence[Any]], count: int) -> list[str]:
        """As `all`, for the fields' values."""
        columns = declared_columns(columns, self._row_type)
        texts = [write(values) for write, values in zip(self._all_writers, columns, strict=True)]
        if not texts:
            return [self._form] * count
        return list(map(self._form.__mod__, zip(*texts, strict=True)))


def _values_of(row: Any) -> tuple[Any, ...]:
    if type(row) is Row:
        return row._values  # ruff: ignore[private-member-access] - hot
    return tuple(row)


def encoded(texts: Sequence[str]) -> list[bytes]:
    """Texts of JSON, each as `as_bytes` makes it."""
    made = as_bytes("\n".join(texts)).split(b"\n") if texts else []
    # A decimal number is written as its object writes itself, and that may be any text.
    return made if len(made) == len(texts) else list(map(as_bytes, texts))


def as_bytes(text: str) -> bytes:
    """A text of JSON as UTF-8. Half a surrogate pair has no UTF-8; Python's escape for it is that of JSON."""
    return text.encode("utf-8", "backslashreplace")


def json_text(value: Any) -> str:
    """What `json` knows how to write. Floats that JSON does not have are texts: "NaN", "Infinity", "-Infinity"."""
    try:
        return _dumps(value)
    except ValueError:
        return _dumps(_with_texts(value))


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _with_texts(value: Any) -> Any:
    """The value with texts in place of floats that JSON does not have. Source: Jackson's QUOTE_NON_NUMERIC_NUMBERS."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(float(value))
    if isinstance(value, list | tuple):
        return list(map(_with_texts, value))
    if isinstance(value, dict):
        return {_with_texts(key): _with_texts(one) for key, one in value.items()}
    return value


# ---------------------------------------------------------------------- one value


def _writer(type_info: TypeInformation) -> Write:
    write = _some_writer(type_info)
    return lambda value: "null" if value is None else write(value)


def _some_writer(type_info: TypeInformation) -> Write:
    """For values that are not None."""
    while isinstance(type_info, t.ExternalTypeInfo):
        type_info = type_info.element_type
    if isinstance(type_info, t.PickledBytesTypeInfo):
        return json_text
    if isinstance(type_info, RowTypeInfo):
        return RowTexts(type_info).one
    if isinstance(type_info, t.MapTypeInfo):
        return _map_writer(type_info)
    if isinstance(type_info, t.BasicTypeInfo):
        return _basic_writer(type_info)
    if isinstance(type_info, t.ElementTypeInfo) and _is_list(type_info):
        element = _writer(type_info.element_type)
        return lambda made: f"[{','.join(map(element, made))}]"
    form = formatter_of(type_info, zoned=True)
    is_number = isinstance(type_info, t.DecimalTypeInfo)
    return form if is_number else lambda made: json_text(form(made))


def _map_writer(map_type: t.MapTypeInfo) -> Write:
    key, value = _formatter(map_type.key_type), _writer(map_type.value_type)

    def write(made: Any) -> str:
        if None in made:
            raise ValueError(f"a JSON object has no key for None: {bounded_repr(made)}")
        return f"{{{','.join(f'{json_text(key(k))}:{value(v)}' for k, v in made.items())}}}"

    return write


def _basic_writer(type_info: t.BasicTypeInfo) -> Write:
    kind = type_info.basic_type
    plain = _PLAIN.get(kind)
    if plain is int:
        return lambda made: str(int(made))
    if plain is float or plain is bool:
        return lambda made: json_text(plain(made))
    form = _formatter(type_info)
    if kind is _B.BIG_DEC:
        return form  # json would turn the number into a float
    return lambda made: json_text(form(made))


def _formatter(type_info: TypeInformation) -> Write:
    form = formatter_of(type_info, zoned=True)
    # Not what a text of a class of its own says that it is: as in columns, its characters.
    return _characters if form is str else form


def _characters(value: Any) -> str:
    return "".join(value) if isinstance(value, str) else str(value)


# ---------------------------------------------------------------------- many values


def _all_writer(type_info: TypeInformation) -> WriteAll:
    write = _writer(type_info)
    if isinstance(type_info, t.ExternalTypeInfo):
        return _all_writer(type_info.element_type)
    if isinstance(type_info, t.BasicTypeInfo) and type_info.basic_type in _PLAIN:
        return _plain_writer({_PLAIN[type_info.basic_type], type(None)}, write)
    if isinstance(type_info, RowTypeInfo):
        return _rows_writer(RowTexts(type_info))
    if isinstance(type_info, t.ElementTypeInfo) and _is_list(type_info):
        return _lists_writer(_all_writer(type_info.element_type))
    return lambda values: list(map(write, values))


def _is_list(type_info: TypeInformation) -> bool:
    try:
        formatter_of(type_info, zoned=True)
    except TypeError:
        return True
    return False  # Bytes are a text.


def _plain_writer(classes: set[type], write: Write) -> WriteAll:
    def texts(values: Sequence[Any]) -> list[str]:
        if not values or not classes.issuperset(map(type, values)):
            return list(map(write, values))
        made = _in_lines(values)[1:-1]
        # Only NaN and the infinities have these letters, if all are numbers.
        if float in classes and ("N" in made or "I" in made):
            return list(map(write, values))
        return made.split("\n")

    return texts


def _lists_writer(write: WriteAll) -> WriteAll:
    def texts(lists: Sequence[Any]) -> list[str]:
        there = [one for one in lists if one is not None]
        items = write(list(chain.from_iterable(there)))
        cuts = pairwise(accumulate(map(len, there), initial=0))
        made = (f"[{','.join(items[begin:end])}]" for begin, end in cuts)
        return _with_nulls(lists, made)

    return texts


def _rows_writer(rows: RowTexts) -> WriteAll:
    return lambda values: _with_nulls(values, rows.all([one for one in values if one is not None]))


def _with_nulls(values: Sequence[Any], texts: Iterable[str]) -> list[str]:
    """The texts, which are those of the values that are there."""
    remaining = iter(texts)
    return ["null" if value is None else next(remaining) for value in values]
