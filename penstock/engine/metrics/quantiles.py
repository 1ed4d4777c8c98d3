"""Quantiles as Flink computes them: position q(n+1) in sorted order, linear between neighbours, clamped to the extremes.

Source: commons-math DescriptiveStatistics; numpy calls it `weibull`.
"""

from __future__ import annotations

from collections.abc import Sequence


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the quantile of values in ascending order. `q`: from 0 to 1. NaN: there are no values."""
    if not ordered:
        return float("nan")
    position = q * (len(ordered) + 1)
    below = int(position)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[below - 1], ordered[below]
    return low + (position - below) * (high - low)
