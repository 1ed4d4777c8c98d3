"""What `==` compares of two objects: of a user's class, read from its code, and of the standard library's, numpy's and
pandas' values.

The code of a user's class runs once on symbols in place of two objects.

    def __eq__(self, other):
        return isinstance(other, Word) and self.text.lower() == other.text.lower()

compares `text.lower()`. The reading holds for every pair of objects, because nothing but equal expressions of the two
decides the result. Code that does anything else, such as a loop, another call or a comparison of another kind, is not
read: a symbol raises when it is asked, and what Python decides without asking it (`is`, `match`) is found in the
bytecode. Does not know bytes.
"""

from __future__ import annotations

import datetime as dt
import dis
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath, PureWindowsPath
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias

import numpy as np

from penstock.engine.model.time import Duration, Instant, Time
from penstock.engine.runtime.row_functions.known_code import READS_BYTECODE, steps_of
from penstock.engine.runtime.windows import CountWindow, GlobalWindow, TimeWindow

Tree: TypeAlias = "tuple[Any, ...]"
"""An expression: (SELF,), ("attribute", tree, name), ("call", tree, arguments) or ("item", tree, index)."""
_SELF: Final = ("self",)
_OTHER: Final = ("other",)
_CONSTANTS: Final = (str, int, float, bytes, bool, type(None))
_MOST_COMPARED: Final = 64


class _Unread(Exception):
    """The code does something that is not read."""


def _unread(*_: object) -> Any:
    raise _Unread


_own: Final = object.__getattribute__


class _Symbol:
    """An expression of one of the objects. What is not defined here raises.

    Its own attributes are read by `_own` only, because the object that it stands for may have some of the same names.
    """

    __slots__ = ("run", "tree")

    def __init__(self, tree: Tree, run: _Run) -> None:
        self.tree = tree
        self.run = run

    def __getattribute__(self, name: str) -> Any:
        tree = _own(self, "tree")
        if name == "__class__" and tree in (_SELF, _OTHER):
            return _THE_CLASS
        if name.startswith("__"):
            raise _Unread
        return _Symbol(("attribute", tree, name), _own(self, "run"))

    def __call__(self, *arguments: object) -> _Symbol:
        if not all(isinstance(one, _CONSTANTS) for one in arguments):
            raise _Unread
        return _Symbol(("call", _own(self, "tree"), arguments), _own(self, "run"))

    def __getitem__(self, index: object) -> _Symbol:
        if not isinstance(index, _CONSTANTS):
            raise _Unread
        return _Symbol(("item", _own(self, "tree"), index), _own(self, "run"))

    def __eq__(self, other: object) -> Any:
        if type(other) is not _Symbol or _mirrored(_own(self, "tree")) != _own(other, "tree"):
            raise _Unread
        tree = _own(self, "tree")
        of_self = tree if _root(tree) == _SELF else _mirrored(tree)
        return _Equality(of_self, _own(self, "run"))

    def __hash__(self) -> int:
        raise _Unread

    __bool__ = __ne__ = __str__ = __repr__ = __format__ = __iter__ = __len__ = _unread
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __index__ = __reduce_ex__ = _unread


class _Equality:
    """`tree` of the one object equals that of the other. Asked for its truth, it is what the run says."""

    __slots__ = ("run", "tree")

    def __init__(self, tree: Tree, run: _Run) -> None:
        self.tree = tree
        self.run = run

    def __bool__(self) -> bool:
        return self.run.decided(self)

    __eq__ = __ne__ = __hash__ = __str__ = __repr__ = __format__ = _unread


class _Run:
    """One run. The comparison of number `false_at` is false, all before it are true; None: all are."""

    def __init__(self, false_at: int | None) -> None:
        self.false_at = false_at
        self.compared: list[_Equality] = []

    def decided(self, equality: _Equality) -> bool:
        if len(self.compared) >= _MOST_COMPARED:
            raise _Unread
        self.compared.append(equality)
        return len(self.compared) - 1 != self.false_at


@dataclass(frozen=True, slots=True)
class _Class:
    """A class that the code names."""

    kind: type

    def __hash__(self) -> int:
        raise _Unread

    __eq__ = _unread


class _TheClass:
    """The class of both objects."""

    def __eq__(self, other: object) -> bool:
        if other is not self:
            raise _Unread
        return True

    def __hash__(self) -> int:
        raise _Unread

    __ne__ = _unread


_THE_CLASS: Final = _TheClass()


def compared_by(owner: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return what gives the values of an object that its `==` compares; None: the code of `==` is not read.

    `owner`: the class that defines `__eq__`.
    """
    equality = owner.__dict__.get("__eq__")
    is_plain = any(one.__module__ == "builtins" for one in owner.__mro__[:-1])
    if is_plain or not isinstance(equality, FunctionType):
        return None  # An exchange may send an object of a subclass of str as a text.
    try:
        trees = _trees(equality, owner)
    except Exception:  # Code of users may raise anything when it gets symbols.
        return None
    return lambda key: tuple(_value(tree, key) for tree in trees)


def _trees(equality: FunctionType, owner: type) -> list[Tree]:
    run = _Run(None)
    result = _call(equality, owner, run)
    compared = [*run.compared, *([result] if isinstance(result, _Equality) else [])]
    if not compared or not (result is True or isinstance(result, _Equality)):
        raise _Unread
    for number in range(len(run.compared)):
        other = _Run(number)
        found = _call(equality, owner, other)
        # `a == b and c == d` gives the first that is false.
        if found is not False and found is not other.compared[-1]:
            raise _Unread
    return list(dict.fromkeys(one.tree for one in compared))


def _call(equality: FunctionType, owner: type, run: _Run) -> Any:
    code = equality.__code__
    # A handler of errors could catch what says that the code is not read.
    if code.co_freevars or code.co_argcount != 2 or code.co_exceptiontable:
        raise _Unread

    def is_instance(value: Any, kind: Any) -> bool:
        is_one = kind is _THE_CLASS or (isinstance(kind, _Class) and issubclass(owner, kind.kind))
        if is_one and _own(value, "tree") in (_SELF, _OTHER):
            return True
        raise _Unread

    def type_of(value: Any) -> object:
        return value.__class__

    names: dict[str, Any] = {
        "isinstance": is_instance,
        "type": type_of,
        "NotImplemented": NotImplemented,
    }
    if names.keys() & equality.__globals__.keys():
        raise _Unread  # The module has others of these names.
    steps = steps_of(code)
    if not READS_BYTECODE or _decides_unasked(steps, code):
        raise _Unread
    for step in steps:
        if step.opname == "LOAD_GLOBAL" and step.argval not in names:
            kind = equality.__globals__.get(step.argval)
            if not isinstance(kind, type):
                raise _Unread
            names[step.argval] = _Class(kind)
        elif step.opname.startswith(("STORE_ATTR", "STORE_GLOBAL", "DELETE", "IMPORT", "YIELD")):
            raise _Unread
    function = FunctionType(code, {**names, "__builtins__": {}}, "__eq__", equality.__defaults__)
    return function(_Symbol(_SELF, run), _Symbol(_OTHER, run))


_BY_IDENTITY: Final = re.compile(r"(SO|OS|(TSC|SK)(TOC|OK)|(TOC|OK)(TSC|SK))=")
"""`self is other`, and comparisons of the classes of the two, in the letters of `_letter`."""
_NO_ACTION: Final = frozenset({"RESUME", "CACHE", "PRECALL", "PUSH_NULL", "NOP"})


def _decides_unasked(steps: Sequence[dis.Instruction], code: CodeType) -> bool:
    """Whether the code has a step that decides by what a value is, and asks the value nothing, as `x is None` does.

    `is` between the two objects, or between their classes, says the same of symbols.
    """
    places = dict(zip(code.co_varnames[:2], "SO", strict=True))
    text = "".join(_letter(step, places) for step in steps if step.opname not in _NO_ACTION)
    return bool(re.search(r"[=!]", _BY_IDENTITY.sub("", text)))


def _letter(step: dis.Instruction, places: dict[str, str]) -> str:
    """One letter for a step; one more, before it, where a jump leads to it."""
    name, given = step.opname, step.argval
    used = given if isinstance(given, tuple) else (given,)
    letter = "."
    if name.startswith("MATCH_") or name.endswith("_NONE"):
        letter = "!"
    elif name.startswith("STORE_FAST") and places.keys() & set(used[: 1 if "LOAD" in name else 2]):
        letter = "!"  # The name means another value from here on.
    elif name.startswith("LOAD_FAST"):
        letter = "".join(places.get(one, ".") for one in used)
    elif name == "IS_OP":
        letter = "="
    elif name == "CALL" and step.arg == 1:
        letter = "C"
    elif (name, given) == ("LOAD_GLOBAL", "type"):
        letter = "T"
    elif (name, given) == ("LOAD_ATTR", "__class__"):
        letter = "K"
    return "." * step.is_jump_target + letter


def _root(tree: Tree) -> Tree:
    while len(tree) > 1:
        tree = tree[1]
    return tree


def _mirrored(tree: Tree) -> Tree:
    """The same expression of the other object."""
    if len(tree) == 1:
        return _OTHER if tree == _SELF else _SELF
    return (tree[0], _mirrored(tree[1]), tree[2])


def _value(tree: Tree, key: Any) -> Any:
    if len(tree) == 1:
        return key
    what, inner, more = tree
    found = _value(inner, key)
    if what == "attribute":
        return getattr(found, more)
    return found(*more) if what == "call" else found[more]


Content: TypeAlias = Callable[[Any], Any]

_ATTOSECONDS: Final = {
    "W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3_600 * 10**18, "m": 60 * 10**18, "s": 10**18,
    "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
_MONTHS: Final = {"Y": 12, "M": 1}


def _of_decimal(value: Decimal) -> str:
    """1.0 equals 1.00, and 0 equals -0. A signalling NaN has no hash."""
    if value.is_snan():
        raise TypeError("a signalling NaN cannot be hashed; replace it before key_by")
    if not value.is_finite():
        return "nan" if value.is_nan() else str(value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a finite number has an exponent"
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    return f"{'-' * sign}{kept}e{exponent + len(text) - len(kept)}" if kept else "0"


def _of_timedelta(value: dt.timedelta) -> tuple[int, ...]:
    return value.days, value.seconds, value.microseconds


def _of_datetime(value: dt.datetime) -> Any:
    """With a zone, the moment. A local time that its zone has twice or never equals times of the same zone only (PEP 495)."""
    fields = dt.timedelta(value.toordinal()) + _since_midnight(value)
    offset = value.utcoffset()
    if offset is None:
        return "local", _of_timedelta(fields)
    if value.replace(fold=1 - value.fold).utcoffset() == offset:
        return "moment", _of_timedelta(fields - offset)
    zone = getattr(value.tzinfo, "key", None)
    if not isinstance(zone, str):
        raise TypeError(
            f"{value!r} is a local time that its zone has twice or never, so Python has it equal "
            "to no time of another zone, and its zone has no name; convert it with "
            "astimezone(datetime.timezone.utc)"
        )
    return zone, _of_timedelta(fields)


def _of_time(value: dt.time) -> Any:
    """With an offset, the time of UTC, which may lie outside the day."""
    since_midnight, offset = _since_midnight(value), value.utcoffset()
    if offset is None:
        return "local", _of_timedelta(since_midnight)
    return "utc", _of_timedelta(since_midnight - offset)


def _since_midnight(value: dt.datetime | dt.time) -> dt.timedelta:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return dt.timedelta(seconds=seconds, microseconds=value.microsecond)


def _of_range(value: range) -> tuple[int, ...]:
    """Ranges are equal if they have the same numbers."""
    if not value:
        return ()
    first, last = int(value[0]), int(value[-1])
    return (first,) if first == last else (first, last, int(value.step))


def _of_path(value: PurePath) -> tuple[str, str]:
    text = str(value)
    is_of_windows = isinstance(value, PureWindowsPath)
    return ("windows", text.lower()) if is_of_windows else ("posix", text)


def _of_address(value: Any) -> tuple[Any, ...]:
    return value.version, int(value), getattr(value, "scope_id", None)


def _of_network(value: Any) -> tuple[Any, ...]:
    return _of_address(value.network_address), value.prefixlen


def _of_interface(value: Any) -> tuple[Any, ...]:
    return _of_address(value), _of_network(value.network)


def _of_numpy_time(value: Any) -> Any:
    """Numbers of different units are equal if they mean the same. Every NaT is one value."""
    if np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    if unit in _MONTHS and isinstance(value, np.datetime64):
        value, unit, count = value.astype("datetime64[D]"), "D", 1
    number = int(value.astype(np.int64)) * count
    if unit in _MONTHS:
        return "months", number * _MONTHS[unit]
    if unit not in _ATTOSECONDS:
        raise TypeError(f"{value!r} of numpy has no unit, so it equals such a value of any unit")
    return "time", number * _ATTOSECONDS[unit]


def _of_timestamp(value: Any) -> tuple[Any, ...]:
    return value.tzinfo is None, _of_numpy_time(value.asm8)


CONTENT_OF: Final[dict[type, tuple[bytes, Content]]] = {
    Decimal: (b"D", _of_decimal),
    dt.datetime: (b"t", _of_datetime),
    dt.date: (b"a", dt.date.toordinal),
    dt.time: (b"h", _of_time),
    dt.timedelta: (b"l", _of_timedelta),
    complex: (b"c", lambda value: (value.real, value.imag)),
    Fraction: (b"f", lambda value: (value.numerator, value.denominator)),
    range: (b"r", _of_range),
    PurePath: (b"p", _of_path),
    ipaddress.IPv4Address: (b"A", _of_address),
    ipaddress.IPv6Address: (b"A", _of_address),
    ipaddress.IPv4Network: (b"B", _of_network),
    ipaddress.IPv6Network: (b"B", _of_network),
    ipaddress.IPv4Interface: (b"J", _of_interface),
    ipaddress.IPv6Interface: (b"J", _of_interface),
    np.datetime64: (b"m", _of_numpy_time),
    np.timedelta64: (b"n", _of_numpy_time),
    Instant: (b"I", lambda value: (value.seconds, value.nanos)),
    Duration: (b"U", lambda value: value.to_nanos()),
    Time: (b"v", lambda value: value.to_milliseconds()),
    TimeWindow: (b"W", lambda value: (value.start, value.end)),
    CountWindow: (b"w", lambda value: value.id),
    GlobalWindow: (b"G", lambda _value: None),
}
"""The tag of a class, and what is equal about its values."""

_CONTENT_BY_NAME: Final[dict[tuple[str, str], tuple[bytes, Content]]] = {
    ("uuid", "UUID"): (b"u", lambda value: value.int),
    ("pandas", "Timestamp"): (b"x", _of_timestamp),
    ("pandas", "Timedelta"): (b"y", lambda value: _of_numpy_time(value.asm8)),
    ("pandas", "Period"): (b"z", lambda value: (value.freqstr, value.ordinal)),
    ("pandas", "NaTType"): (b"Z", lambda _value: None),
}
"""The same by package and name, for classes that are not imported here: pandas is optional, uuid draws by chance."""


def content_of(kind: type) -> tuple[bytes, Content] | None:
    """What is equal about values of the standard library, numpy and pandas: they are equal exactly when these are.

    Each function returns numbers, texts and tuples of them. Python's own rules, which the functions follow, stand at
    them.

    Return the tag and the content of a class; None: it is none of these.
    """
    package = kind.__module__.partition(".")[0]
    return CONTENT_OF.get(kind) or _CONTENT_BY_NAME.get((package, kind.__name__))
