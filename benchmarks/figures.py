"""Figures: the runs of one measured quantity beside those of its floor or peer, as JSON and as a row.

Knows no benchmark and no clock.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Figure:
    """`values` and `floors`: one per run. The ratio is that of the medians, value over floor.

    `against`: what the floors are: "floor" if measured beside it, "peer" if somebody published it.
    """

    name: str
    values: Sequence[float]
    unit: str
    floors: Sequence[float] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    against: str = "floor"

    @property
    def ratio(self) -> float | None:
        return median(self.values) / median(self.floors) if self.floors else None

    def json_line(self) -> str:
        fields: dict[str, Any] = {
            "name": self.name,
            "value": _rounded(median(self.values)),
            "unit": self.unit,
            "min": _rounded(min(self.values)),
            "max": _rounded(max(self.values)),
            "runs": len(self.values),
        }
        if self.ratio is not None:
            fields[self.against] = _rounded(median(self.floors))
            fields[f"{self.against}_min"] = _rounded(min(self.floors))
            fields[f"{self.against}_max"] = _rounded(max(self.floors))
            fields["ratio"] = _rounded(self.ratio)
        fields["settings"] = self.settings
        return json.dumps(fields)

    def table_row(self) -> str:
        floor = ratio = ""
        if self.ratio is not None:
            floor, ratio = _spread(self.floors), f"{self.ratio:.3g}"
        settings = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        cells = (self.name, _spread(self.values), self.unit, floor, ratio, settings)
        return f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float]) -> str:
    """Median, then the least and the most."""
    middle, low, high = (_text(f(values)) for f in (median, min, max))
    return f"{middle} ({low} to {high})"


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _rounded(value: float) -> float:
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")
