"""TypeInformation: the base of all types of records, and the date and time types.

Does not know coders. Source: PyFlink pyflink.common.typeinfo; differs: date and time values are taken in UTC, never in
the worker's local zone.
"""

from __future__ import annotations

import calendar
import datetime as dt
from enum import Enum
from typing import Any, Final

MICROS: Final = 1_000_000


class TypeInformation:
    """The base of all types. Two are equal if class and parts are equal.

    `takes_tuples`: a function may return a tuple where a ROW is declared. It is no part of the
    type.
    """

    takes_tuples: bool = False

    def need_conversion(self) -> bool:
        """Return whether a Python value differs from its internal form."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """Convert a Python value to its internal form: ints for dates, tuples for rows."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Convert an internal form to the Python value."""
        return obj

    def parts(self) -> tuple[Any, ...]:
        """Return what makes two types of one class differ."""
        return ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.parts() == other.parts()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.parts()))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return type(self).__name__


class DateTypeInfo(TypeInformation):
    """The type of a datetime.date; internally days since the epoch."""

    EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, d: Any) -> Any:
        return None if d is None else d.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, v: Any) -> Any:
        return None if v is None else dt.date.fromordinal(v + self.EPOCH_ORDINAL)


class TimeTypeInfo(TypeInformation):
    """The type of a datetime.time; internally microseconds since midnight."""

    EPOCH_ORDINAL = 0

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, t: Any) -> Any:
        if t is None:
            return None
        seconds = (t.hour * 60 + t.minute) * 60 + t.second
        return seconds * MICROS + t.microsecond

    def from_internal_type(self, t: Any) -> Any:
        if t is None:
            return None
        seconds, micros = divmod(t, MICROS)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return dt.time(hour, minute, second, micros)


class TimestampTypeInfo(TypeInformation):
    """The type of a datetime.datetime without zone; internally microseconds since the epoch."""

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, dt: Any) -> Any:
        if dt is None:
            return None
        stamp = dt.utctimetuple() if dt.tzinfo else dt.timetuple()
        return calendar.timegm(stamp) * MICROS + dt.microsecond

    def from_internal_type(self, ts: Any) -> Any:
        if ts is None:
            return None
        return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=ts)  # ruff: ignore[call-datetime-without-tzinfo]


class UtcTimestampTypeInfo(TimestampTypeInfo):
    """The type of a datetime.datetime in UTC, as Spark's TIMESTAMP.

    Internally microseconds since the epoch.
    """

    def from_internal_type(self, obj: Any) -> Any:
        return None if obj is None else super().from_internal_type(obj).replace(tzinfo=dt.UTC)


class DecimalTypeInfo(TypeInformation):
    """The type of a decimal.Decimal: up to `precision` digits, `scale` after the point."""

    MOST_DIGITS: Final = 38

    def __init__(self, precision: int, scale: int) -> None:
        if not (1 <= precision <= self.MOST_DIGITS and 0 <= scale <= precision):
            raise ValueError(
                f"a DECIMAL has 1 to {self.MOST_DIGITS} digits, and at most as many of them after "
                f"the point: got precision {precision}, scale {scale}"
            )
        self.precision = precision
        self.scale = scale

    def parts(self) -> tuple[Any, ...]:
        return (self.precision, self.scale)

    def __str__(self) -> str:
        return f"DecimalTypeInfo({self.precision}, {self.scale})"


class LocalTimeTypeInfo(TypeInformation):
    """The types of Java's LocalDate, LocalTime and LocalDateTime."""

    class TimeType(Enum):
        """The kinds of local types."""

        LOCAL_DATE = 0
        LOCAL_TIME = 1
        LOCAL_DATE_TIME = 2

    def __init__(self, time_type: LocalTimeTypeInfo.TimeType) -> None:
        self._time_type = time_type

    def parts(self) -> tuple[Any, ...]:
        return (self._time_type,)

    def __str__(self) -> str:
        words = ("LocalDate", "LocalTime", "LocalDateTime")
        return words[self._time_type.value]
