"""Single values as text, by their declared types, as in JSON strings and CSV fields.

Numbers, dates and times have the signs that Java's parsers take, in ASCII: Python's own take `1_000`, digits of other
scripts, `inf` and `20240131` too.
Source: Flink's JsonRow and CsvRow schemas; differs: numbers that do not fit their type are refused, not truncated.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from penstock.engine.model import types as t
from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.time import Instant
from penstock.engine.model.type_information import (
    DateTypeInfo,
    LocalTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from penstock.engine.runtime.codecs.by_type import codec_of
from penstock.engine.runtime.codecs.convert import MISFIT, coded_values
from penstock.engine.runtime.records.text import format_value, java_text

T = TypeVar("T")
Parse: TypeAlias = Callable[[str], Any]
Format: TypeAlias = Callable[[Any], str]

_B: Final = t.BasicType
_BITS: Final = {_B.BYTE: 8, _B.SHORT: 16, _B.INT: 32, _B.LONG: 64}
_LOCAL: Final = LocalTimeTypeInfo.TimeType


def parser_of(type_info: t.TypeInformation) -> Parse:
    """A function that parses a value of this type. It raises ValueError, which says what was expected.

    Raises: TypeError: the type is not one of single values.
    """
    if isinstance(type_info, t.BasicTypeInfo):
        kind = type_info.basic_type
        if kind in _BITS:
            return lambda text: checked_int(_integer(text), kind)
        return _BASIC_PARSERS.get(kind, _integer)
    if isinstance(type_info, t.DecimalTypeInfo):
        return lambda text: fitted_decimal(_decimal(text), type_info)
    if is_bytes(type_info):
        return lambda text: base64.b64decode(text, validate=True)
    for kinds, parse in _TIME_PARSERS:
        if is_time(type_info, kinds):
            return parse
    raise TypeError(f"{type_info} is not a type of single values that this format has a text for")


def formatter_of(type_info: t.TypeInformation, *, zoned: bool) -> Format:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    """A function that formats a value of this type. Raises: as `parser_of`.

    `zoned`: times in JSON's form, in UTC: 10:00:00Z, 2020-01-02T10:00:00Z; else in CSV's: 10:00:00, 2020-01-02
    10:00:00.0.
    """
    if isinstance(type_info, t.BasicTypeInfo):
        if type_info.basic_type is _B.INSTANT:
            return format_instant if zoned else lambda value: format_instant(value, " ")
        if type_info.basic_type is _B.BIG_DEC:
            return _decimal_text
        is_java = type_info.basic_type in {_B.BOOLEAN, _B.FLOAT, _B.DOUBLE}
        return partial(format_value, type_info=type_info) if is_java else str
    if isinstance(type_info, t.DecimalTypeInfo):
        return lambda value: format(fitted_decimal(value, type_info), "f")
    if is_bytes(type_info):
        return lambda value: base64.b64encode(bytes(value)).decode("ascii")
    if is_time(type_info, (TimestampTypeInfo,)):
        return _zoned_stamp if zoned else lambda value: java_text(naive_utc(value))
    if isinstance(type_info, t.UtcTimestampTypeInfo):
        return _zoned_stamp if zoned else lambda value: java_text(naive_utc(value)) + "Z"
    if is_time(type_info, (TimeTypeInfo,)):
        return (lambda value: value.isoformat() + "Z") if zoned else lambda value: value.isoformat()
    if not zoned and is_time(type_info, (_LOCAL.LOCAL_DATE_TIME,)):
        return lambda value: value.isoformat(" ")
    if isinstance(type_info, DateTypeInfo | LocalTimeTypeInfo):
        return lambda value: value.isoformat()
    raise TypeError(f"{type_info} is not a type of single values that this format has a text for")


def for_fields(row_type: t.RowTypeInfo, make: Callable[[t.TypeInformation], T]) -> list[T]:
    """What `make` returns for the type of each field. Raises: TypeError: it takes one of them not; the field is named."""
    made = []
    for name, kind in zip(row_type.get_field_names(), row_type.get_field_types(), strict=True):
        try:
            made.append(make(kind))
        except TypeError as error:
            raise TypeError(f"field {name!r}: {error}") from error
    return made


def declared_columns(columns: Iterable[Sequence[Any]], row_type: t.RowTypeInfo) -> list[list[Any]]:
    """The columns of rows with the values that the coder of the type would give back. Raises: ValueError, naming the field: a value
    does not have its type.
    """
    made = []
    fields = zip(row_type.get_field_names(), row_type.get_field_types(), columns, strict=True)
    for name, kind, column in fields:
        try:
            made.append(coded_values(list(column), kind))
        except MISFIT as error:
            raise ValueError(f"field {name!r}: {error}") from error
    return made


def fields_of(value: Any, names: Sequence[str], of: str = "the schema") -> list[Any]:
    """The fields of a record: of a dict by names, where a missing one is None, of a Row, a tuple or a list by position.

    Raises: ValueError: it has other fields. TypeError: it is something else. `of`: has the fields, for the error.
    """
    if isinstance(value, Mapping):
        strange = next((name for name in value if name not in names), None)
        if strange is not None:
            raise ValueError(f"{of} has no field {strange!r}, only {names}")
        return [value.get(name) for name in names]
    if not isinstance(value, Row | tuple | list):
        raise TypeError(
            f"expected a Row, a tuple or a dict with {names}, got {bounded_repr(value)}"
        )
    values = list(value)
    if len(values) != len(names):
        raise ValueError(f"expected {len(names)} fields {names}, got {bounded_repr(value)}")
    return values


def items_of(value: Any) -> Any:
    """The value. Raises: TypeError: it is a text or a dict. They have items too, but nobody means them."""
    if isinstance(value, str | bytes | bytearray | Mapping):
        raise TypeError(f"expected a list, got {bounded_repr(value)}")
    return value


def checked_row_type(type_info: t.TypeInformation) -> t.RowTypeInfo:
    if not isinstance(type_info, t.RowTypeInfo):
        raise TypeError(
            f"expected a row type such as Types.ROW_NAMED(['a'], [Types.INT()]), got {type_info}."
        )
    return type_info


def checked_int(number: int, kind: t.BasicType) -> int:
    """The number. Raises: ValueError: it does not fit the type."""
    bits = _BITS.get(kind)
    if bits is not None and not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} does not fit into {kind.value} ({bits} bits)")
    return number


def fitted_decimal(value: Decimal | int, type_info: t.DecimalTypeInfo) -> Decimal:
    """The number with the digits of a DECIMAL.

    Raises: ValueError: it would lose digits; TypeError: it is no decimal number.
    """
    codec = codec_of(type_info)
    try:
        fitted: Decimal = codec.enforce([codec.coerce(value)])[0]
    except OverflowError as error:
        raise ValueError(str(error)) from error
    return fitted


def is_bytes(type_info: t.TypeInformation) -> bool:
    return (
        isinstance(type_info, t.PrimitiveArrayTypeInfo) and type_info.element_type == t.Types.BYTE()
    )


def is_time(type_info: t.TypeInformation, kinds: tuple[Any, ...]) -> bool:
    """Whether the type is one of these classes, or one of these kinds of local times."""
    if isinstance(type_info, LocalTimeTypeInfo):
        return type_info.parts()[0] in kinds
    return type(type_info) in kinds


def format_instant(value: Instant, between: str = "T") -> str:
    """The time as text. `between`: the text between date and time."""
    whole = dt.datetime.fromtimestamp(value.seconds, dt.UTC).isoformat(between)[:19]
    fraction = f".{value.nanos:09d}".rstrip("0") if value.nanos else ""
    return f"{whole}{fraction}Z"


def _zoned_stamp(value: dt.datetime) -> str:
    return naive_utc(value).isoformat() + "Z"


def naive_utc(value: dt.datetime) -> dt.datetime:
    """The time in UTC without its zone. A time without a zone is taken as UTC."""
    return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value


def _matched(pattern: re.Pattern[str], text: str, expected: str) -> str:
    """The text without the spaces around it that Java's trim takes away. Raises: ValueError: it is something else."""
    trimmed = text.strip(_JAVA_SPACE)
    if pattern.fullmatch(trimmed) is None:
        raise ValueError(f"expected {expected}, got {bounded_repr(text, 100)}")
    return trimmed


def _integer(text: str) -> int:
    return int(_matched(_INTEGER, text, "a whole number"))


def _float(text: str) -> float:
    return float(_matched(_FLOAT, text, "a number, NaN or Infinity"))


def _decimal(text: str) -> Decimal:
    number = _matched(_NUMBER, text, "a decimal number")
    try:
        return Decimal(number)
    except InvalidOperation:
        raise ValueError(f"expected a decimal number, got {bounded_repr(text, 100)}") from None


def _decimal_text(value: Any) -> str:
    if isinstance(value, Decimal) and not value.is_finite():
        raise ValueError(f"expected a finite number, got {value!r}")
    return str(value)


def _boolean(text: str) -> bool:
    known = {"true": True, "false": False}
    found = known.get(text.strip(_JAVA_SPACE).lower())
    if found is None:
        raise ValueError(f"expected true or false, got {text!r}")
    return found


def _char(text: str) -> str:
    if len(text) != 1:
        raise ValueError(f"expected one character, got {text!r}")
    return text


def _instant(text: str) -> Instant:
    text = _matched(_STAMP, text, "a date and a time")
    stamp = dt.datetime.fromisoformat(text)
    since = (stamp if stamp.tzinfo else stamp.replace(tzinfo=dt.UTC)) - _EPOCH
    fraction = _FRACTION.search(text)  # Python's datetime has no nanoseconds
    nanos = int(fraction[1][:9].ljust(9, "0")) if fraction else 0
    return Instant(since // dt.timedelta(seconds=1), nanos)


def _stamp(text: str) -> dt.datetime:
    stamp = dt.datetime.fromisoformat(_matched(_STAMP, text, "a date and a time"))
    try:
        return naive_utc(stamp)
    except OverflowError as error:  # in UTC the year is out of Python's range
        raise ValueError(f"{text!r} is out of range: {error}") from error


def _utc_stamp(text: str) -> dt.datetime:
    return _stamp(text).replace(tzinfo=dt.UTC)


def _time(text: str) -> dt.time:
    return dt.time.fromisoformat(_matched(_TIME, text, "a time")).replace(tzinfo=None)


def _date(text: str) -> dt.date:
    return dt.date.fromisoformat(_matched(_DATE, text, "a date"))


_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))
_DIGITS: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_NUMBER: Final = re.compile(rf"[-+]?{_DIGITS}")
_FLOAT: Final = re.compile(rf"NaN|[-+]?(?:Infinity|{_DIGITS})")
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ZONE: Final = r"(?:Z|[-+][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?)"
_CLOCK: Final = rf"[0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.,][0-9]+)?)?{_ZONE}?"
_DATE: Final = re.compile(_DAY)
_TIME: Final = re.compile(_CLOCK)
_STAMP: Final = re.compile(rf"{_DAY}(?:[T ]{_CLOCK})?")
_FRACTION: Final = re.compile(r"[.,]([0-9]+)")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BASIC_PARSERS: Final[dict[t.BasicType, Parse]] = {
    _B.STRING: str,
    _B.CHAR: _char,
    _B.BOOLEAN: _boolean,
    _B.FLOAT: _float,
    _B.DOUBLE: _float,
    _B.BIG_INT: _integer,
    _B.BIG_DEC: _decimal,
    _B.INSTANT: _instant,
}
_TIME_PARSERS: Final[tuple[tuple[tuple[Any, ...], Parse], ...]] = (
    ((DateTypeInfo, _LOCAL.LOCAL_DATE), _date),
    ((TimeTypeInfo, _LOCAL.LOCAL_TIME), _time),
    ((TimestampTypeInfo, _LOCAL.LOCAL_DATE_TIME), _stamp),
    ((t.UtcTimestampTypeInfo,), _utc_stamp),
)
