"""Times in which nothing is rescaled: on every day, by a cron expression of Quartz, or by both.

Knows no clock: it is asked about a time. All times are UTC. Source: CalendarUtils and `excluded.periods` of Flink's Kubernetes operator
(docs/spec/autoscaler.md#excluded-periods). Differs: UTC in place of the time zone of the process; Quartz's `L`, `W` and `#` are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.model.errors import ConfigurationError
from penstock.model.options.autoscaler import AutoscalerOptions

_DAILY: Final = re.compile(r"(\d{1,2}(?::\d{1,2}){1,2})-(\d{1,2}(?::\d{1,2}){1,2})")
_LIMITS: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (1, 7), (1970, 2199))
"""Seconds, minutes, hours, days of the month, months, days of the week (1 is Sunday), years."""
_MONTH, _WEEKDAY = 4, 5
_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_EXAMPLES: Final = "'9:30-10:50', '* * 9-11 ? * 2-6' or both with '&&'"


@dataclass(frozen=True, slots=True)
class Period:
    """`daily`: seconds of the day, first and last. `cron`: numbers that are allowed in each field; None: all."""

    text: str
    daily: tuple[int, int] | None
    cron: tuple[frozenset[int] | None, ...] | None

    def holds(self, time_ms: int) -> bool:
        """Whether the time, in ms since 1970, lies in the period."""
        at = datetime.fromtimestamp(time_ms // 1000, tz=UTC)
        second = at.hour * 3600 + at.minute * 60 + at.second
        if self.daily is not None and not self.daily[0] <= second <= self.daily[1]:
            return False
        weekday = at.isoweekday() % 7 + 1
        now = (at.second, at.minute, at.hour, at.day, at.month, weekday, at.year)
        fields = self.cron or ()
        return all(
            allowed is None or value in allowed for allowed, value in zip(fields, now, strict=False)
        )


def parse_periods(text: str) -> tuple[Period, ...]:
    """Return the periods of a setting. Raises: ConfigurationError: a text of another form; it is named."""
    return tuple(_parse(part.strip()) for part in text.split(";") if part.strip())


def _parse(text: str) -> Period:
    daily: tuple[int, int] | None = None
    cron: tuple[frozenset[int] | None, ...] | None = None
    parts = [part.strip() for part in text.split("&&")]
    for part in parts:
        match = _DAILY.fullmatch(part)
        if match and daily is None:
            daily = (_second_of_day(match[1], text), _second_of_day(match[2], text))
            if daily[0] > daily[1]:
                raise _refusal(text, "it ends before it begins; write two for a night")
        elif cron is None and not match:
            cron = _cron(part, text)
        else:
            raise _refusal(text, "it has two parts of the same kind")
    return Period(text, daily, cron)


def _second_of_day(text: str, period: str) -> int:
    numbers = [*map(int, text.split(":")), 0][:3]
    if numbers[0] > 23 or max(numbers[1:]) > 59:
        raise _refusal(period, f"{text} is no time of a day")
    return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]


def _cron(text: str, period: str) -> tuple[frozenset[int] | None, ...]:
    fields = text.upper().split()
    if len(fields) not in {6, 7}:
        raise _refusal(period, f"a cron expression has 6 or 7 fields, and this has {len(fields)}")
    return tuple(_field(field, index, period) for index, field in enumerate(fields))


def _field(text: str, index: int, period: str) -> frozenset[int] | None:
    """Return the numbers that `*`, `5`, `MON-FRI`, `1,3` or `0/15` allow; None: all."""
    if text in {"*", "?"}:
        return None
    found: set[int] = set()
    for part in text.split(","):
        numbers, slash, step = part.partition("/")
        first, last = _range(numbers, index, period)
        if slash:
            if not step.isdigit() or int(step) < 1:
                raise _refusal(period, f"'{part}' has no step")
            # 5/15 is every 15 from 5 on.
            last = last if "-" in numbers else _LIMITS[index][1]
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def _range(text: str, index: int, period: str) -> tuple[int, int]:
    least, most = _LIMITS[index]
    if text == "*":
        return least, most
    first, dash, last = text.partition("-")
    low = _number(first, index, period)
    high = _number(last, index, period) if dash else low
    if not least <= low <= high <= most:
        raise _refusal(period, f"'{text}' is not within {least} to {most}")
    return low, high


def _number(text: str, index: int, period: str) -> int:
    names = {_MONTH: _MONTHS, _WEEKDAY: _WEEKDAYS}.get(index, ())
    if text in names:
        return names.index(text) + 1
    if not text.isdigit():
        raise _refusal(period, f"'{text}' is no number")
    return int(text)


def _refusal(text: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"option '{AutoscalerOptions.EXCLUDED_PERIODS.key}' has the period '{text}': {why}. "
        f"It takes periods such as {_EXAMPLES}, with semicolons between them. Change the setting."
    )
