"""TypeInformation: the base of all types of records, and the date and time types.

Knows no coder. Source: PyFlink pyflink.common.typeinfo; differs: date and time values are taken in UTC,
never in the worker's local zone.
"""

from __future__ import annotations

import calendar
import datetime as dt
from enum import Enum
from typing import Any, Final

MICROS: Final = 1_000_000


class TypeInformation:
    """Base of all types. Two are equal when class and parts are equal.

    `takes_tuples`: a tuple will do where a ROW is due. It is no part of the type: only where functions return such values
    it makes a difference.
    """

    takes_tuples: bool = False

    def need_conversion(self) -> bool:
        """Whether a Python value differs from its internal (plain) form."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """Python value to plain form (ints for dates, tuples for rows)."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Plain form to Python value."""
        return obj

    def parts(self) -> tuple[Any, ...]:
        """What makes two types of one class differ."""
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
    """dt.date; internally days since the epoch."""

    EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, d: Any) -> Any:
        return None if d is None else d.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, v: Any) -> Any:
        return None if v is None else dt.date.fromordinal(v + self.EPOCH_ORDINAL)


class TimeTypeInfo(TypeInformation):
    """dt.time; internally microseconds since midnight."""

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
    """dt.datetime without zone; internally microseconds since the epoch."""

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
    """dt.datetime in UTC; internally microseconds since the epoch. Spark's TIMESTAMP."""

    def from_internal_type(self, obj: Any) -> Any:
        return None if obj is None else super().from_internal_type(obj).replace(tzinfo=dt.UTC)


class DecimalTypeInfo(TypeInformation):
    """decimal.Decimal of at most `precision` digits, `scale` of them behind the point."""

    MOST_DIGITS: Final = 38

    def __init__(self, precision: int, scale: int) -> None:
        if not (1 <= precision <= self.MOST_DIGITS and 0 <= scale <= precision):
            raise ValueError(
                f"a DECIMAL has 1 to {self.MOST_DIGITS} digits, and not more of them behind the point: got "
                f"precision {precision}, scale {scale}"
            )
        self.precision = precision
        self.scale = scale

    def parts(self) -> tuple[Any, ...]:
        return (self.precision, self.scale)

    def __str__(self) -> str:
        return f"DecimalTypeInfo({self.precision}, {self.scale})"


class LocalTimeTypeInfo(TypeInformation):
    """Java's LocalDate, LocalTime, LocalDateTime."""

    class TimeType(Enum):
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
