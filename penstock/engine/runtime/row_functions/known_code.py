"""What is known of code: the interpreters whose bytecode is known, side-effect-free functions that a row function may use,
and refusals.

On every interpreter that is not listed a function runs as it is written: a new opcode would be refused, but an old one
with a new meaning would be misread without an error. The manual of `dis` says that bytecode may change between
versions.

The values of columns, constants, and the results of what is listed here are all of Python's own classes, so no
operation on them runs code of the user. Nothing here changes an object.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import CellType, CodeType, FunctionType
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


KNOWN_VERSIONS: Final = frozenset({(3, 11), (3, 12), (3, 13), (3, 14)})
"""Each of them has run the tests, also those with random functions."""
_DEBUGGER, _COVERAGE, _PROFILER = 0, 1, 2
_OLDER_NAMES: Final = {
    ("LOAD_FAST_BORROW", None): "LOAD_FAST",
    ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", None): "LOAD_FAST_LOAD_FAST",
    ("LOAD_SMALL_INT", None): "LOAD_CONST",
    ("BINARY_OP", "[]"): "BINARY_SUBSCR",
    ("LOAD_COMMON_CONSTANT", "AssertionError"): "LOAD_ASSERTION_ERROR",
}
"""By instruction, and by what it is given where that matters: the instruction of Python 3.13 that does the same."""


def may_read(version: tuple[int, int], implementation: str) -> bool:
    """Whether the bytecode of this interpreter is known."""
    return implementation == "cpython" and version in KNOWN_VERSIONS


READS_BYTECODE: Final = may_read(sys.version_info[:2], sys.implementation.name)
_HAS_METHOD_BIT: Final = "LOAD_METHOD" not in dis.opmap or dis.opmap["LOAD_METHOD"] > 255
"""Whether the lowest bit of LOAD_ATTR's argument says that a method is loaded. An opcode above 255
is a pseudo opcode of the compiler.
"""


def steps_of(code: CodeType) -> list[dis.Instruction]:
    """The instructions of a function. Those that Python 3.14 has in place of others have the older names."""
    return [_renamed(step) for step in dis.get_instructions(code)]


def _renamed(step: dis.Instruction) -> dis.Instruction:
    name = _OLDER_NAMES.get((step.opname, None)) or _OLDER_NAMES.get((step.opname, step.argrepr))
    return step if name is None else step._replace(opname=name)


def loads_method(step: dis.Instruction) -> bool:
    """Whether the step loads a method in order to call it."""
    return step.opname == "LOAD_METHOD" or (_HAS_METHOD_BIT and bool((step.arg or 0) & 1))


def is_watched() -> bool:
    """Whether a debugger, a profiler or a coverage tool sees this thread's calls. It would not see a function whose body runs elsewhere."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return True
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring is not None and any(
        monitoring.get_tool(tool) for tool in (_DEBUGGER, _COVERAGE, _PROFILER)
    )


_REFUSED_FLAGS: Final = {
    inspect.CO_GENERATOR: "it is a generator",
    inspect.CO_COROUTINE: "it is a coroutine",
    inspect.CO_ASYNC_GENERATOR: "it is a generator",
    inspect.CO_VARARGS: "it takes any number of arguments",
    inspect.CO_VARKEYWORDS: "it takes any number of arguments",
}
_BECAUSE: Final = {
    "GET_ITER": "it has a loop or a comprehension",
    "MAKE_FUNCTION": "it makes a function or has a comprehension",
    "LOAD_COMMON_CONSTANT": "it makes a function or has a comprehension",
    "LOAD_CLOSURE": "an inner function uses its variables",
    "MAKE_CELL": "an inner function uses its variables",
    "STORE_ATTR": "it changes an object",
    "STORE_SUBSCR": "it changes an object",
    "DELETE_SUBSCR": "it changes an object",
    "STORE_GLOBAL": "it changes a global variable",
    "STORE_DEREF": "it changes a variable of an outer function",
    "RAISE_VARARGS": "it raises an error itself",
    "LOAD_ASSERTION_ERROR": "it has an assert",
    "IMPORT_NAME": "it imports a module",
    "BUILD_MAP": "it makes a dict",
    "BUILD_CONST_KEY_MAP": "it makes a dict",
    "BUILD_SET": "it makes a set",
    "CALL_FUNCTION_EX": "it calls with * or **",
    "BEFORE_WITH": "it has a with statement",
}


class Refused(Exception):
    """Why a function does not run as columns, in words for its author.

    Why the function runs as it is written.
    """


def because(instruction: str) -> str:
    """What a function does that has an instruction which is not read."""
    return _BECAUSE.get(instruction, f"it has the instruction {instruction}")


def check_shape(code: CodeType) -> None:
    """Raises: Refused: the function is of a kind that is not read."""
    for flag, because in _REFUSED_FLAGS.items():
        if code.co_flags & flag:
            raise Refused(because)
    if code.co_kwonlyargcount:
        raise Refused("it has arguments that are only given by name")
    if getattr(code, "co_exceptiontable", b""):
        raise Refused("it has a try or with statement, or a comprehension")
