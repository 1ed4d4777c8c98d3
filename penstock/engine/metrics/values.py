"""Values of metrics as Flink's REST prints them: texts as Java writes them. Source: Flink MetricStore, MetricDump."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Final

from penstock.engine.model.metrics import Distribution, Quantiles, Rate, Value

STATISTICS: Final[Mapping[str, attrgetter[float]]] = {
    "min": attrgetter("min"),
    "max": attrgetter("max"),
    "mean": attrgetter("mean"),
    "median": attrgetter("p50"),
    "stddev": attrgetter("stddev"),
    "p75": attrgetter("p75"),
    "p90": attrgetter("p90"),
    "p95": attrgetter("p95"),
    "p98": attrgetter("p98"),
    "p99": attrgetter("p99"),
    "p999": attrgetter("p999"),
}
"""What REST shows of a histogram, by the ending of the id."""
_PLAIN_FROM: Final = 1e-3
_PLAIN_BELOW: Final = 1e7


def rest_values(rest_id: str, value: Value) -> Iterator[tuple[str, str]]:
    """The ids under which REST shows a value, each with its text. A histogram has one for each statistic, a meter its rate."""
    if isinstance(value, Quantiles):
        for suffix in STATISTICS:
            yield f"{rest_id}_{suffix}", rest_text(value, suffix)
    else:
        yield rest_id, rest_text(value)


def rest_text(value: Value, statistic: str = "") -> str:
    """The text of a value. `statistic`: which one of a histogram."""
    if isinstance(value, Quantiles):
        return printed(STATISTICS[statistic](value))
    return printed(value.per_s if isinstance(value, Rate) else value)


def printed(value: float | bool | str | Distribution) -> str:
    """A single value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return java_double(value) if isinstance(value, float) else str(value)


def java_double(value: float) -> str:
    """A double as `Double.toString` of Java writes it: `0.0`, `8.25`, `1.0E7`, `NaN`, `Infinity`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return repr(value)
    sign = "-" if value < 0 else ""
    digits, exponent = _digits(abs(value))
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def as_number(text: str) -> float | None:
    """A text of `printed` as a number; None: it is none, as `true` or a user's text."""
    try:
        return None if "_" in text else float(text)  # Python takes underscores in numbers.
    except ValueError:
        return None


def _digits(value: float) -> tuple[str, int]:
    """The shortest digits that mean this number, and the exponent of the first one."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, rest = mantissa.partition(".")
    rest = "" if rest == "0" else rest
    if exponent:
        return whole + rest, int(exponent)
    digits = (whole + rest).lstrip("0")
    if whole.strip("0"):
        return digits.rstrip("0") or "0", len(whole) - 1
    return digits.rstrip("0") or "0", -(len(rest) - len(rest.lstrip("0")) + 1)
