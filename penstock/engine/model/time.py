"""Duration, Time and Instant of the user API, as plain data. Does not read any clock.

Source: PyFlink pyflink.common.time; differs: no Java object is wrapped, `millis_of` takes all
kinds.
"""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, Final

_NANOS_PER_MILLI: Final = 1_000_000


class Duration:
    """A length of time with nanosecond resolution."""

    __slots__ = ("_nanos",)

    def __init__(self, nanos: int = 0) -> None:
        self._nanos = _whole(nanos, 1, "ns")

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a length of this many days of 24 h."""
        return Duration._of(days, 86_400_000)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a length of this many hours."""
        return Duration._of(hours, 3_600_000)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a length of this many minutes."""
        return Duration._of(minutes, 60_000)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a length of this many seconds."""
        return Duration._of(seconds, 1000)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a length of this many ms."""
        return Duration._of(millis, 1)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a length of this many ns."""
        return Duration(nanos)

    @staticmethod
    def _of(amount: Any, millis: int) -> Duration:
        return Duration(_whole(amount, millis * _NANOS_PER_MILLI, "ns"))

    def to_millis(self) -> int:
        """Return the length in whole ms, rounded down."""
        return self._nanos // _NANOS_PER_MILLI

    def to_nanos(self) -> int:
        """Return the length in ns."""
        return self._nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and other._nanos == self._nanos

    def __hash__(self) -> int:
        return hash(("Duration", self._nanos))

    def __repr__(self) -> str:
        return f"Duration({self._nanos / 1e9:g} s)"


class Time:
    """A length of time in ms. Older programs use it; newer ones use Duration."""

    __slots__ = ("_millis",)

    def __init__(self, milliseconds: int) -> None:
        self._millis = _whole(milliseconds, 1, "ms")

    def to_milliseconds(self) -> int:
        """Return the length in ms."""
        return self._millis

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a length of this many ms."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a length of this many seconds."""
        return Time(_whole(seconds, 1000, "ms"))

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a length of this many minutes."""
        return Time(_whole(minutes, 60_000, "ms"))

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a length of this many hours."""
        return Time(_whole(hours, 3_600_000, "ms"))

    @staticmethod
    def days(days: int) -> Time:
        """Return a length of this many days of 24 h."""
        return Time(_whole(days, 86_400_000, "ms"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and other._millis == self._millis

    def __hash__(self) -> int:
        return hash(("Time", self._millis))

    def __repr__(self) -> str:
        return f"Time({self})"

    def __str__(self) -> str:
        return f"{self._millis} ms"


def _whole(amount: Any, units: int, unit: str) -> int:
    """`amount` times `units`. Raises: TypeError: no number. ValueError: no whole number of the
    finest unit.
    """
    if isinstance(amount, bool) or not isinstance(amount, Real):
        raise TypeError(f"expected a number, got {type(amount).__name__}: {amount!r:.200}")
    if isinstance(amount, Integral):
        return int(amount) * units
    # As it is written: 1.1 s are 1100 ms.
    exact = Fraction(repr(float(amount))) * units if math.isfinite(amount) else Fraction(1, 2)
    if exact.denominator != 1:
        raise ValueError(f"{amount!r} is no whole number of {unit}")
    return int(exact)


class Instant:
    """A point in time: seconds since the epoch, and nanoseconds within the second."""

    __slots__ = ("nanos", "seconds")

    def __init__(self, seconds: int, nanos: int) -> None:
        self.seconds = seconds
        self.nanos = nanos

    def to_epoch_milli(self) -> int:
        """Return the whole ms since the epoch, rounded down."""
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MILLI

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant this many ms after the epoch; before it if negative."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Instant)
            and self.seconds == other.seconds
            and self.nanos == other.nanos
        )

    def __lt__(self, other: Instant) -> bool:
        return (self.seconds, self.nanos) < (other.seconds, other.nanos)

    def __hash__(self) -> int:
        return hash((self.seconds, self.nanos))

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


def millis_of(length: Any) -> int:
    """Return the milliseconds of a Duration, Time or timedelta. Raises TypeError for others; a bare number has no unit."""
    if isinstance(length, Duration):
        return length.to_millis()
    if isinstance(length, Time):
        return length.to_milliseconds()
    if isinstance(length, dt.timedelta):
        return length // dt.timedelta(milliseconds=1)
    for name in ("to_milliseconds", "to_millis"):
        method = getattr(length, name, None)
        if callable(method):
            return int(method())
    expected = f"expected a Duration, Time or timedelta, got {type(length).__name__}: {length!r}"
    if isinstance(length, (int, float)) and not isinstance(length, bool):
        expected += (
            ", which has no unit. Write Duration.of_seconds(...), Duration.of_millis(...) or "
            "timedelta(seconds=...)."
        )
    raise TypeError(expected)


def millis_or_number(length: Any) -> int:
    """Return `millis_of`, or a whole number itself: for parameters that PyFlink documents in milliseconds."""
    is_number = isinstance(length, int) and not isinstance(length, bool)
    return length if is_number else millis_of(length)
