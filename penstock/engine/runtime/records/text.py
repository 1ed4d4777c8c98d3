"""The text of a record, as `print()` and the simple string encoder write it. Does not know consoles.

Pickled values are Python's str(). Values of declared types look as in Java (`true`, `null`, `1.0E10`, `(a,1)`). A ROW
is `+I[a,1]` with Python's floats. Source: PyFlink's observed output; differs: dates have Java's text too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import numpy as np

from penstock.engine.model import types as t
from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.time import Instant
from penstock.engine.runtime.elements import classes_of

Format = Callable[[Any], str]


def format_value(value: Any, type_info: t.TypeInformation | None) -> str:
    """The printed text of one value. Raises: TypeError for pickled bytes."""
    return _format_of(type_info)(value)


def format_batch(values: Sequence[Any], type_info: t.TypeInformation | None) -> list[str]:
    """The printed text of each value."""
    if t.is_pickled(type_info):
        if bytes in classes_of(values):
            _refuse_bytes(next(value for value in values if type(value) is bytes))
        return list(map(str, values))
    return list(map(_format_of(type_info), values))


@lru_cache(maxsize=1024)
def _format_of(type_info: t.TypeInformation | None) -> Format:
    if t.is_pickled(type_info):
        return _pickled
    if isinstance(type_info, t.RowTypeInfo):
        return _row
    return _java_format(type_info)


def _java_format(type_info: t.TypeInformation | None) -> Format:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    """Java's toString of a value of this type."""
    if isinstance(type_info, t.BasicTypeInfo) and type_info.basic_type is t.BasicType.FLOAT:
        return _float
    if isinstance(type_info, t.TupleTypeInfo):
        return partial(_tuple, [_java_format(f) for f in type_info.get_field_types()])
    if isinstance(type_info, t.RowTypeInfo):
        return partial(_java_row, [_java_format(f) for f in type_info.get_field_types()])
    if isinstance(type_info, t.MapTypeInfo):
        return partial(_map, _java_format(type_info.key_type), _java_format(type_info.value_type))
    if isinstance(type_info, t.ExternalTypeInfo):
        return _java_format(type_info.element_type)
    if isinstance(type_info, t.ElementTypeInfo):
        return partial(_list, _java_format(type_info.element_type))
    return java_text


def java_text(value: Any) -> str:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    """Java's text of a plain value."""
    if value is None:
        return "null"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, Decimal):
        return format(value, "f") if value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, dt.datetime):
        return _timestamp(value)
    if isinstance(value, dt.time):
        return value.strftime("%H:%M:%S")
    if isinstance(value, Instant):
        return _instant(value)
    if isinstance(value, list):
        return _list(java_text, value)
    return str(value)


def java_double(value: float) -> str:
    """Double.toString: plain from 10^-3 up to 10^7, else with E."""
    return _java_digits(repr(float(value)), value)


def _float(value: Any) -> str:
    if value is None:
        return "null"
    with np.errstate(over="ignore"):  # Too large for 32 bits is infinite, as in Java.
        narrow = np.float32(value)
    return _java_digits(str(narrow), float(narrow))


def _java_digits(shortest: str, value: float) -> str:
    if value != value:  # ruff: ignore[comparison-with-itself]
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    minus = "-" if sign else ""
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return minus + "0.0"
    point = len(text) + exponent
    text = text.rstrip("0")
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _pickled(value: Any) -> str:
    if isinstance(value, bytes):
        _refuse_bytes(value)
    return str(value)


def _refuse_bytes(value: bytes) -> None:
    raise TypeError(
        f"bytes cannot be printed: {bounded_repr(value, 200)}; decode them first, for example with "
        "map(lambda b: b.decode())"
    )


def _row(value: Any) -> str:
    if not isinstance(value, Row):
        return java_text(value)
    return f"{value.get_row_kind()}[{','.join(map(str, value))}]"


def _java_row(formats: list[Format], value: Any) -> str:
    if value is None:
        return "null"
    texts = [form(item) for form, item in zip(formats, value, strict=True)]
    return f"{value.get_row_kind()}[{', '.join(texts)}]"


def _tuple(formats: list[Format], value: Any) -> str:
    if value is None:
        return "null"
    return f"({','.join([form(item) for form, item in zip(formats, value, strict=True)])})"


def _list(form: Format, value: Any) -> str:
    return "null" if value is None else f"[{', '.join(map(form, value))}]"


def _map(key: Format, item: Format, value: Any) -> str:
    if value is None:
        return "null"
    return f"{{{', '.join(f'{key(k)}={item(v)}' for k, v in value.items())}}}"


def _timestamp(value: dt.datetime) -> str:
    fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
    return f"{value.isoformat(' ', 'seconds')[:19]}.{fraction}"


def _instant(value: Instant) -> str:
    seconds = dt.datetime.fromtimestamp(value.seconds, dt.UTC)
    text = seconds.isoformat()[:19]
    if value.nanos:
        digits = f"{value.nanos:09d}"
        while digits.endswith("000"):
            digits = digits[:-3]
        text += f".{digits}"
    return text + "Z"
