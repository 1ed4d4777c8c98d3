"""Side-effect-free functions and attributes that a row function may use: Python's own code on Python's own values.

The values of columns, constants, and the results of what is listed here are all of Python's own classes, so no operation on them runs
code of the user. Nothing here changes an object. Does not know bytecode.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import CellType, FunctionType
from typing import Any, Final

import pyarrow as pa

from penstock.engine.model import types as t
from penstock.engine.model.row import Row

SCALARS: Final = frozenset({int, float, str, bool, bytes, Decimal, type(None)})
MOST_ITEMS: Final = 256
"""Of a list, dict or set outside of the function. Its items are looked at before each batch."""

PLAIN_RESULT: Final = (len, str, int, float, bool, abs, round, repr, ascii, ord, chr, isinstance)
"""Their results cannot be changed, whatever they are given."""
_FUNCTIONS: Final = (
    *PLAIN_RESULT,
    *(min, max, sum, sorted, tuple, list, divmod, pow, hex, oct, bin, bytes, format, Decimal, Row),
)
_OF_MATH: Final = frozenset({
    *("floor", "ceil", "sqrt", "trunc", "log", "log2", "log10", "exp", "pow", "isnan", "isinf"),
    *("isfinite", "fabs", "copysign", "sin", "cos", "tan", "atan2", "hypot", "radians", "degrees"),
    *("pi", "e", "inf", "nan", "gcd", "isclose"),
})
METHODS: Final = frozenset({
    *("strip", "lstrip", "rstrip", "lower", "upper", "title", "capitalize", "casefold", "swapcase"),
    *("split", "rsplit", "splitlines", "partition", "rpartition", "startswith", "endswith", "find"),
    *("rfind", "index", "rindex", "count", "replace", "join", "zfill", "ljust", "rjust", "center"),
    *("isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower", "isnumeric", "isdecimal"),
    *("istitle", "isidentifier", "isprintable", "isascii", "encode", "decode", "removeprefix"),
    *("removesuffix", "expandtabs", "hex", "bit_length", "is_integer", "get", "isoformat", "date"),
    *("time", "weekday", "isoweekday", "timestamp", "total_seconds", "quantize", "is_nan"),
})
MAKES_LIST: Final = frozenset({"split", "rsplit", "splitlines"})
ATTRIBUTES: Final = frozenset({
    *("year", "month", "day", "hour", "minute", "second", "microsecond", "days", "seconds"),
    *("real", "imag", "numerator", "denominator"),
})
_MISSING: Final = object()
_OF_TYPE: Final = frozenset({
    *(
        t.BasicType.STRING,
        t.BasicType.BYTE,
        t.BasicType.BOOLEAN,
        t.BasicType.SHORT,
        t.BasicType.INT,
    ),
    *(t.BasicType.LONG, t.BasicType.FLOAT, t.BasicType.DOUBLE, t.BasicType.CHAR),
})


def is_code(value: object) -> bool:
    """Whether this is a function, type or module of Python's that is known."""
    return value is math or any(value is one for one in _FUNCTIONS)


def of_math(name: str) -> Any:
    """A function or number of `math`; None: it is not known."""
    return getattr(math, name) if name in _OF_MATH else None


def is_plain(value: Any) -> bool:
    """Whether this is a scalar, or a collection of Python's with few scalars."""
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is dict:
        return _is_of_scalars(value) and _is_of_scalars(value.values())
    return kind in {tuple, frozenset, list, set} and _is_of_scalars(value)


def _is_of_scalars(values: Any) -> bool:
    """Whether a collection has few items, all of them scalars."""
    return bool(len(values) <= MOST_ITEMS) and SCALARS.issuperset(map(type, values))


def has_plain_values(kind: t.TypeInformation | None, arrow: pa.DataType) -> bool:
    """Whether the values of such a column are Python's own, and cannot be changed. `kind`: its declared type, if there is one."""
    if kind is not None:
        if isinstance(kind, t.BasicTypeInfo):
            return kind.basic_type in _OF_TYPE
        if isinstance(kind, t.PrimitiveArrayTypeInfo):
            return bool(kind.element_type == t.Types.BYTE())
        return isinstance(kind, t.DecimalTypeInfo)
    is_of = pa.types
    return bool(
        is_of.is_integer(arrow) or is_of.is_floating(arrow) or is_of.is_boolean(arrow)
        or is_of.is_string(arrow) or is_of.is_binary(arrow) or is_of.is_date32(arrow)
        or is_of.is_decimal128(arrow)
    )  # fmt: skip


def has_own_containers(
    kind: t.TypeInformation | None, arrow: pa.DataType, *, of_plain: bool = False
) -> bool:
    """Whether the values of such a column are Python's own lists and dicts of `has_plain_values`, made for each record.

    `of_plain`: none of them holds another list or dict.
    """
    is_known = has_plain_values if of_plain else _is_own
    if kind is not None:
        if isinstance(kind, t.MapTypeInfo):
            return has_plain_values(kind.key_type, arrow) and is_known(kind.value_type, arrow)
        if isinstance(kind, t.ExternalTypeInfo):
            return has_own_containers(kind.element_type, arrow, of_plain=of_plain)
        return isinstance(kind, t.ElementTypeInfo) and is_known(kind.element_type, arrow)
    return bool(pa.types.is_list(arrow)) and is_known(None, arrow.value_type)


def _is_own(kind: t.TypeInformation | None, arrow: pa.DataType) -> bool:
    return has_plain_values(kind, arrow) or has_own_containers(kind, arrow)


@dataclass(frozen=True, slots=True)
class Guard:
    """A variable outside of the function whose value was used. `read`: returns what it holds now."""

    read: Callable[[], Any]
    value: Any

    def holds(self) -> bool:
        """Whether the variable still holds this object, and the object still only has scalars."""
        value = self.value
        if self.read() is not value:
            return False
        return type(value) not in {list, dict, set} or is_plain(value)


def hold(guards: Sequence[Guard]) -> bool:
    """Whether all of them hold."""
    return all(guard.holds() for guard in guards)


def of_global(function: FunctionType, name: str) -> Guard | None:
    """The guard of a global variable or a builtin; None: there is none of this name."""
    own, others = function.__globals__, vars(builtins)

    def read() -> Any:
        found = own.get(name, _MISSING)
        return others.get(name, _MISSING) if found is _MISSING else found

    value = read()
    return None if value is _MISSING else Guard(read, value)


def of_cell(cell: CellType) -> Guard | None:
    """The guard of a variable of an outer function; None: it has no value."""

    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING

    value = read()
    return None if value is _MISSING else Guard(read, value)
