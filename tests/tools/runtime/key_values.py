"""Values that keys may have, of many classes, and what Python says of two of them."""

import dataclasses
import datetime as dt
import ipaddress
import uuid
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from functools import cached_property
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.time import Duration, Instant
from penstock.engine.runtime.windows import TimeWindow

NEW_YORK, BERLIN = ZoneInfo("America/New_York"), ZoneInfo("Europe/Berlin")
EAST = dt.timezone(dt.timedelta(hours=1))


class Tcp(IntFlag):
    FIN = 1
    SYN = 2
    START = 2


class Access(Flag):
    READ = 4
    WRITE = 2


class Level(IntEnum):
    LOW = 1


class Colour(StrEnum):
    RED = "a"


class Shape(Enum):
    """Members are equal if their numbers of corners are."""

    SQUARE = ("square", 4)
    RECTANGLE = ("rectangle", 4)
    TRIANGLE = ("triangle", 3)

    def __eq__(self, other):
        return type(other) is Shape and self.value[1] == other.value[1]

    def __hash__(self):
        return self.value[1]


class Pair(NamedTuple):
    first: Any
    second: Any


class Text(str):
    __slots__ = ()


class Real(float):
    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Device:
    name: Any
    seen_at: float = dataclasses.field(compare=False, default=0.0)


@dataclasses.dataclass(frozen=True)
class Camera(Device):
    """Never equal to a Device."""


@dataclasses.dataclass(frozen=True)
class Route:
    start: str
    end: str

    @cached_property
    def length(self):
        return len(self.start) + len(self.end)


@dataclasses.dataclass(eq=True)
class Changeable:
    numbers: list[int]


@dataclasses.dataclass(frozen=True)
class ById:
    id: int
    name: str = dataclasses.field(compare=False, default="")

    def __hash__(self):
        return self.id


class Caseless:
    """Has an `==` that is not read: it calls a function."""

    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return isinstance(other, Caseless) and str.lower(self.text) == str.lower(other.text)

    def __hash__(self):
        return hash(self.text.lower())


class ShoutedText(str):
    __slots__ = ()

    def __eq__(self, other):
        return self.upper() == other.upper()

    def __hash__(self):
        return hash(self.upper())


@dataclasses.dataclass(frozen=True)
class OwnEquality:
    id: int
    name: str

    def __eq__(self, other):
        return type(other) is OwnEquality and self.id == other.id

    def __hash__(self):
        return self.id


class NoEquality:
    def __init__(self, text="a"):
        self.text = text


def _read_route():
    route = Route("x", "y")
    return route, route.length


def _asked_network():
    network = ipaddress.ip_network("10.0.0.0/24")
    return network, network.broadcast_address


def _at(*fields, zone=None, fold=0):
    return dt.datetime(*fields, tzinfo=zone, fold=fold)


VALUES = [
    0, 1, -1, 2**63, 2**70, True, False, 0.0, -0.0, 1.0, 1.5, float("nan"), -float("nan"),
    float("inf"), "a", "A", "", "\ud800", b"a", b"",
    Text("a"), Real(1.5), Real(-0.0), np.int64(1), np.int32(1), np.float64(1.5), np.float32(1.5),
    np.bool_(True), np.str_("a"), np.bytes_(b"a"),
    np.complex128(1), 1 + 0j, complex(0.0, -0.0), 0j, complex(1, 1),
    Decimal(5), Decimal("5.00"), Decimal("5E+2"), Decimal(500), Decimal(0), Decimal("-0.00"),
    Decimal("NaN"), Decimal("-5"), Decimal("Infinity"),
    Fraction(1, 2), Fraction(2, 4), Fraction(1), range(0), range(3, 1), range(0, 3, 2),
    range(0, 4, 2), range(1), range(0, 1, 5),
    Tcp(0), Tcp(1), Tcp(2), Tcp.START, Tcp(3), Tcp(64), Tcp(128), Access(0), Access(2), Access(6),
    Level.LOW, Colour.RED, *Shape, RowKind.INSERT,
    dt.date(2024, 1, 1), dt.timedelta(days=1), dt.timedelta(hours=24), dt.time(1),
    dt.time(1, fold=1), dt.time(1, tzinfo=dt.UTC), dt.time(2, tzinfo=EAST),
    dt.time(1, tzinfo=BERLIN), _at(2024, 1, 1), _at(2024, 1, 1, fold=1),
    _at(2024, 1, 1, 12, zone=dt.UTC), _at(2024, 1, 1, 13, zone=EAST),
    _at(2024, 1, 1, 12, zone=ZoneInfo("UTC")), _at(2024, 1, 1, 13, zone=BERLIN),
    _at(2024, 1, 1, 7, zone=NEW_YORK),
    _at(2024, 11, 3, 1, 30, zone=NEW_YORK), _at(2024, 11, 3, 1, 30, zone=NEW_YORK, fold=1),
    _at(2024, 11, 3, 5, 30, zone=dt.UTC),
    _at(2024, 11, 3, 6, 30, zone=dt.UTC), _at(2024, 3, 10, 2, 30, zone=NEW_YORK),
    _at(2024, 3, 10, 7, 30, zone=dt.UTC), _at(1, 1, 1, zone=EAST),
    uuid.UUID(int=5), uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe), uuid.UUID(int=6),
    PurePosixPath("/a/b"), PurePosixPath("/a") / "b", PureWindowsPath("C:/A"),
    PureWindowsPath("c:/a"), PurePosixPath("C:/A"),
    ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("::1"),
    ipaddress.ip_address("fe80::1%a"), ipaddress.ip_address("fe80::1"),
    ipaddress.ip_network("10.0.0.0/24"), _asked_network()[0], ipaddress.ip_network("10.0.0.0/25"),
    ipaddress.ip_interface("10.0.0.1/24"),
    ipaddress.ip_interface("10.0.0.1/25"), ipaddress.IPv4Address(1), ipaddress.IPv6Address(1),
    np.datetime64(1, "ns"), np.datetime64(2, "ns"), np.datetime64(1, "us"),
    np.datetime64(1000, "ns"), np.datetime64("2024-01-01"),
    np.datetime64("2024-01"), np.datetime64("2024"), np.timedelta64(1, "D"),
    np.timedelta64(24, "h"), np.timedelta64(1000, "ns"),
    pd.Timestamp("2024-01-01T12:00Z"), pd.Timestamp("2024-01-01T13:00+01:00"),
    pd.Timestamp("2024-01-01T12:00"), pd.Timestamp(1), pd.Timestamp(2),
    pd.Timestamp(1).as_unit("ns"), pd.Period("2024-01", "M"), pd.Period("2024-01", "M"),
    pd.Period("2024-01-01", "D"), pd.Timedelta(1, "D"),
    pd.Timedelta(24, "h"), pd.NaT,
    Instant(1, 2), Instant(1, 3), Duration.of_millis(1), Duration.of_nanos(1_000_000),
    TimeWindow(0, 5), TimeWindow(0, 6),
    (), (1,), (1.0,), (True,), (None,), (None, 1), ("eur", Decimal("5")), ("eur", Decimal("5.00")),
    Pair("a", 1), ("a", 1), (0.0,), (-0.0,), (float("nan"),),
    (Text("a"), 1), (b"a",), ((1,),), ((1.0,),), (NEW_YORK.key, _at(2024, 1, 1, 12, zone=dt.UTC)),
    (NEW_YORK.key, _at(2024, 1, 1, 13, zone=EAST)),
    frozenset(), frozenset("ab"), frozenset("ba"), frozenset([1]), frozenset([1.0]),
    frozenset([Decimal(5)]), frozenset([Decimal("5.0")]),
    Row(1, 2), Row(a=1, b=2), Row(b=2, a=1), Row(a=2, b=1), Row.of_kind(RowKind.DELETE, 1, 2),
    Row(1.0, 2),
    Device("d", 1.0), Device("d", 2.0), Camera("d"), Device(1), Device(1.0), Device(Decimal(1)),
    Device(Decimal("1.0")), Route("x", "y"), _read_route()[0],
    ById(1, "a"), ById(1, "b"), ById(2),
]  # fmt: skip
"""Keys, many of which equal others."""

WITHOUT_HASH = [
    [1, ["a"]], [1.0, ["a"]], {"a": 1, "b": 2}, {"b": 2, "a": 1}, {1, 2}, {2, 1}, bytearray(b"a"),
    Changeable([1]), Changeable([1]), Changeable([2]),
]  # fmt: skip
"""Keys that Python's dicts do not take."""

REFUSED = [
    Caseless("a"), ShoutedText("a"), OwnEquality(1, "a"), NoEquality(), object(), print,
    np.longdouble(1), Decimal("sNaN"), (1, Caseless("a")),
    frozenset([Caseless("a")]), Device(NoEquality()), Row(Caseless("a")), np.timedelta64(1),
    iter(()), NoEquality,
]  # fmt: skip

MOMENTS = st.datetimes(
    dt.datetime(2024, 1, 1),  # ruff: ignore[call-datetime-without-tzinfo] - the zone is drawn
    dt.datetime(2024, 12, 31),  # ruff: ignore[call-datetime-without-tzinfo]
    timezones=st.sampled_from([None, dt.UTC, EAST, NEW_YORK, BERLIN]),
)
NUMBERS = st.one_of(
    st.decimals(min_value=-20, max_value=20, places=2),
    st.builds(
        lambda digits, power: Decimal((0, digits, power)),
        st.tuples(st.integers(0, 1), st.integers(0, 1)),
        st.integers(-2, 2),
    ),
    st.fractions(-1, 1, max_denominator=4),
    st.integers(-2, 2),
    st.floats(-1, 1, width=16),
)  # fmt: skip
SINGLE = st.one_of(st.sampled_from(VALUES), MOMENTS, NUMBERS)
KEYS = st.one_of(
    SINGLE,
    st.tuples(SINGLE, SINGLE),
    st.builds(Pair, SINGLE, SINGLE),
    st.builds(Device, SINGLE),
    st.builds(Row, SINGLE),
)


def are_one_key(one, other):
    """Whether two values are of one class and equal, and so are their items."""
    one, other = _bare(one), _bare(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(are_one_key, one, other))
    if isinstance(one, frozenset | set):
        return len(one) == len(other) and all(any(are_one_key(a, b) for b in other) for a in one)
    if isinstance(one, dict):
        return are_one_key(set(one.items()), set(other.items()))
    if isinstance(one, Device):
        return are_one_key(one.name, other.name)
    if isinstance(one, Row):
        return one == other and are_one_key(sorted(one, key=repr), sorted(other, key=repr))
    if isinstance(one, complex):
        return are_one_key((one.real, one.imag), (other.real, other.imag))
    if one != one and other != other:  # ruff: ignore[comparison-with-itself] - every NaN is one key
        return True
    try:
        return bool(one == other)
    except TypeError:  # numpy has no common unit for them
        return False


def _bare(value):
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    for kind in (str, float):
        if type(value) in {Text, Real} and isinstance(value, kind):
            return kind(value)
    return tuple(value) if type(value) is Pair else value
