"""Codecs of points in time and of decimals. Source: PyFlink's coders; differs: a datetime with a time zone is kept, in UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    Context,
    Decimal,
    DecimalException,
    Inexact,
    InvalidOperation,
)
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from penstock.engine.model import types as t
from penstock.engine.model.texts.bounded_text import MOST_OF_RECORD, bounded_str
from penstock.engine.model.time import Instant
from penstock.engine.runtime.codecs.base import Codec, ExactCodec
from penstock.engine.runtime.codecs.time_columns import PER_SECOND
from penstock.engine.runtime.elements import classes_of

_ZONE_OF: Final = attrgetter("tzinfo")


class InstantCodec(ExactCodec):
    """Instants. In Arrow they are nanoseconds since the epoch in UTC. Columns of files may have another unit, for times further away."""

    def __init__(self, type_info: t.TypeInformation) -> None:
        super().__init__(type_info, Instant, pa.timestamp("ns", tz="UTC"))

    def plain(self, values: Sequence[Any]) -> Sequence[Any]:
        return [None if v is None else v.seconds * 10**9 + v.nanos for v in values]

    def from_array(self, array: pa.Array) -> list[Any]:
        nanos = 10**9 // PER_SECOND[array.type.unit]
        numbers = array.cast(pa.int64()).to_pylist()
        return self.back([None if v is None else v * nanos for v in numbers])

    def back(self, values: list[Any]) -> list[Any]:
        return [None if v is None else Instant(*divmod(v, 10**9)) for v in values]


class _DayCodec(ExactCodec):
    """Dates and datetimes. pandas' NaT, which is a datetime to Python, is neither."""

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        super().enforce(values)
        if not classes_of(values) <= self._kinds:
            for value in values:
                if value != value:  # ruff: ignore[comparison-with-itself]
                    self.refuse(value, f"{self._kind.__name__}, or None where there is none")
        return values


class UtcTimestampCodec(_DayCodec):
    """Datetimes with a time zone, converted to UTC. One without a time zone is refused: it would mean another
    moment on each machine.
    """

    def __init__(self, type_info: t.TypeInformation) -> None:
        super().__init__(type_info, dt.datetime, pa.timestamp("us", tz="UTC"))

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        super().enforce(values)
        if all(value is None or value.tzinfo is dt.UTC for value in values):
            return values
        return [None if value is None else self._in_utc(value) for value in values]

    def back(self, values: list[Any]) -> list[Any]:
        return [None if value is None else value.astimezone(dt.UTC) for value in values]

    def _in_utc(self, value: dt.datetime) -> dt.datetime:
        if value.tzinfo is None:
            self.refuse(value, "a datetime with a time zone, such as datetime.now(UTC)")
        return value.astimezone(dt.UTC)


class DateCodec(_DayCodec):
    """Dates. Of a datetime its day is kept."""

    def __init__(self, type_info: t.TypeInformation) -> None:
        super().__init__(type_info, dt.date, pa.date32())

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        super().enforce(values)
        if not any(issubclass(kind, dt.datetime) for kind in classes_of(values)):
            return values
        return [value.date() if isinstance(value, dt.datetime) else value for value in values]


class ClockCodec(_DayCodec):
    """Times or datetimes without a time zone. Of one with a zone, what its clock shows is kept, as in PyFlink."""

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        super().enforce(values)
        # No time is false, so this drops None only. Compared by identity: a zone need not have a hash.
        if all(zone is None for zone in map(_ZONE_OF, filter(None, values))):
            return values
        return [None if value is None else value.replace(tzinfo=None) for value in values]


class DecimalCodec(ExactCodec):
    """Decimals with a fixed number of digits before and after the point. A value that would lose digits is refused."""

    def __init__(self, type_info: t.DecimalTypeInfo) -> None:
        kind = pa.decimal128(type_info.precision, type_info.scale)
        super().__init__(type_info, Decimal, kind)
        self._scale = type_info.scale
        self._digits = type_info.precision - type_info.scale
        self._unit = Decimal((0, (1,), -type_info.scale))
        # A value of another precision, or one whose digits would be cut, is an error.
        self._context = Context(
            prec=type_info.precision,
            Emin=MIN_EMIN,
            Emax=MAX_EMAX,
            traps=[Inexact, InvalidOperation],
        )

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        super().enforce(values)
        return [None if value is None else self._fitted(value) for value in values]

    def coerce(self, value: Any) -> Any:
        return Decimal(value) if isinstance(value, int) else value

    def converted(self, value: Any) -> Any:
        return Decimal(value) if type(value) is int else value

    def _fitted(self, value: Decimal) -> Decimal:
        if not value.is_finite():
            self.refuse(value, "a finite number")
        try:
            # Without the sign that zero may have.
            return self._context.plus(value.quantize(self._unit, context=self._context))
        except DecimalException:
            raise OverflowError(
                f"{bounded_str(value, MOST_OF_RECORD)} does not fit the declared type "
                f"{self.type_info}, which has {self._digits} digits before the point and "
                f"{self._scale} after it. Round the value, or declare more digits."
            ) from None


def time_codec(type_info: t.TypeInformation) -> Codec:
    word = str(type_info)
    if word in {"DateTypeInfo", "LocalDate"}:
        return DateCodec(type_info)
    if word in {"TimeTypeInfo", "LocalTime"}:
        return ClockCodec(type_info, dt.time, pa.time64("us"))
    if isinstance(type_info, t.UtcTimestampTypeInfo):
        return UtcTimestampCodec(type_info)
    if word in {"TimestampTypeInfo", "LocalDateTime"}:
        return ClockCodec(type_info, dt.datetime, pa.timestamp("us"))
    raise TypeError(f"{type_info} is not a type that records can have; use a type of `Types`")
