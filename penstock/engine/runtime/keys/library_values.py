"""What is equal about values of the standard library, numpy and pandas: they are equal exactly when these are.

Each function returns numbers, texts and tuples of them. Python's own rules, which the functions follow, stand at them.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath, PureWindowsPath
from typing import Any, Final, TypeAlias

import numpy as np

from penstock.engine.model.time import Duration, Instant, Time
from penstock.engine.runtime.windows import CountWindow, GlobalWindow, TimeWindow

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
    """Return the tag and the content of a class; None: it is none of these."""
    package = kind.__module__.partition(".")[0]
    return CONTENT_OF.get(kind) or _CONTENT_BY_NAME.get((package, kind.__name__))
