"""Histograms of the last N values, and Flink's rule for quantiles.

Source: Flink DescriptiveStatisticsHistogram.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.engine.metrics.quantiles import quantile
from penstock.engine.model.metrics import Quantiles

QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999)


class Histogram:
    """Keeps the last `size` values, and the number of all values."""

    __slots__ = ("_values", "count")

    def __init__(self, size: int) -> None:
        self._values: deque[int] = deque(maxlen=size)
        self.count = 0

    def add(self, value: int) -> None:
        self._values.append(value)
        self.count += 1

    @property
    def quantiles(self) -> Quantiles:
        """Statistics of the values that are kept. Any thread."""
        return quantiles_of(self._values.copy(), self.count)


def quantiles_of(kept: Iterable[int], count: int) -> Quantiles:
    """Statistics of `kept`. `count`: how many values there have ever been."""
    values = sorted(kept)
    if not values:
        return Quantiles(count, 0, 0, *[math.nan] * 9)
    mean = sum(values) / len(values)
    places = (quantile(values, q) for q in QUANTILES)
    return Quantiles(count, values[0], values[-1], mean, _deviation(values, mean), *places)


def _deviation(values: Sequence[float], mean: float) -> float:
    """The standard deviation of the sample; 0 for a single value."""
    if len(values) == 1:
        return 0.0
    squares = sum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1))
