"""Values of several entities as one: the aggregating endpoints of REST. Source: Flink AbstractAggregatingMetricsHandler.

A metric that one of the entities lacks does not count for it, also not for the average. A metric with a value that is no number is left out. If no entity
has one of the metrics, the answer has none at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.engine.metrics.values import as_number

_MOST_SKEW: Final = 100.0


class Aggregation(StrEnum):
    """How to make one number of several."""

    MIN = "min"
    MAX = "max"
    AVG = "avg"
    SUM = "sum"
    SKEW = "skew"


ALL: Final = frozenset(Aggregation)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """One metric over several entities."""

    id: str
    numbers: Mapping[Aggregation, float]


def aggregated(
    ids: Sequence[str],
    entities: Sequence[Mapping[str, str]],
    wanted: frozenset[Aggregation] = ALL,
) -> list[Aggregated]:
    """One entry for each id. `entities`: the values of each entity, as `MetricStore.values` gives them."""
    found: list[Aggregated] = []
    for one in ids:
        texts = [values[one] for values in entities if one in values]
        if not texts:
            return []
        numbers = [number for text in texts if (number := as_number(text)) is not None]
        if len(numbers) == len(texts):
            found.append(Aggregated(one, _aggregates(numbers, wanted)))
    return found


def skew(numbers: Sequence[float]) -> float:
    """How unequal the numbers are, in percent: 0 if all are equal, at most 100."""
    mean = sum(numbers) / len(numbers)
    if mean == 0:
        return 0.0
    deviation = sum(abs(number - mean) for number in numbers) / len(numbers)
    return min(_MOST_SKEW, deviation / mean * 100)


def _aggregates(
    numbers: Sequence[float], wanted: frozenset[Aggregation]
) -> dict[Aggregation, float]:
    total = sum(numbers)
    every = {
        Aggregation.MIN: min(numbers),
        Aggregation.MAX: max(numbers),
        Aggregation.AVG: total / len(numbers),
        Aggregation.SUM: total,
        Aggregation.SKEW: skew(numbers),
    }
    return {kind: number for kind, number in every.items() if kind in wanted}
