"""Loads over time, each with the job that it meets, and with what is asked of the autoscaler under it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from simulation.autoscaler.model import ModelVertex

_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_CHANGE_S: Final = 2 * _HOUR
"""When step and spike come."""
_SPIKE_S: Final = 300.0

PLAIN: Final = (
    ModelVertex("source", 2000.0, partitions=64),
    ModelVertex("enrich", 1000.0, outputs=0.8, inputs=("source",)),
    ModelVertex("count", 1500.0, outputs=0.5, inputs=("enrich",), is_keyed=True),
    ModelVertex("sink", 2500.0, inputs=("count",)),
)
"""Records per second of a subtask; what each vertex gets is 1, 1, 0.8 and 0.4 of the load."""
SKEWED: Final = tuple(
    replace(vertex, hot_share=0.25) if vertex.name == "count" else vertex for vertex in PLAIN
)
"""A quarter of all records has one key."""
LEAKING: Final = tuple(
    replace(vertex, lost_an_hour=0.1) if vertex.name == "count" else vertex for vertex in PLAIN
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Attributes:
    load: records per second at a time in seconds.
    length_s, step_s: of the run, and of a step of the model.
    settled_s: times in which the slots are judged. None: they are not.
    changes_s: when the load jumps, so that something must wait for a while.
    rescales_max: more would be flapping.
    is_helped: scaling can help; if not, the autoscaler must give up.
    served_load: the load for which there must be slots, if that is another one than arrives at the time.
    """

    name: str
    load: Callable[[float], float]
    vertices: tuple[ModelVertex, ...]
    length_s: float
    settled_s: tuple[tuple[float, float], ...]
    changes_s: tuple[float, ...]
    rescales_max: int
    is_helped: bool = True
    step_s: float = 1.0
    served_load: Callable[[float], float] | None = None

    def least_load(self, time_s: float) -> float:
        """Return the load for which there must be slots at a time."""
        return (self.served_load or self.load)(time_s)


def _sine(time_s: float) -> float:
    """Least at the begin, 2,000; most after half a day, 20,000."""
    return 11_000 - 9_000 * math.cos(2 * math.pi * time_s / _DAY)


def _step(time_s: float) -> float:
    return 6_000.0 if time_s < _CHANGE_S else 18_000.0


def _spike(time_s: float) -> float:
    return 20_000.0 if _CHANGE_S <= time_s < _CHANGE_S + _SPIKE_S else 5_000.0


def _steady(_time_s: float) -> float:
    return 10_000.0


def _waves(time_s: float) -> float:
    """From 6,000 to 14,000 and back within 8 min."""
    return 10_000 - 4_000 * math.cos(2 * math.pi * time_s / 480.0)


def _crest(_time_s: float) -> float:
    """To follow each wave would take a rescale every few minutes. So there must be slots for the crests."""
    return 14_000.0


_TO_CHANGE: Final = (_HOUR, _CHANGE_S)
CURVES: Final = (
    Curve("daily sine", _sine, PLAIN, _DAY, ((_HOUR, _DAY),), (0.0,), 50, step_s=2.0),
    Curve(
        "step",
        _step,
        PLAIN,
        4 * _HOUR,
        (_TO_CHANGE, (3 * _HOUR, 4 * _HOUR)),
        (0.0, _CHANGE_S),
        10,
    ),
    Curve(
        "spike",
        _spike,
        PLAIN,
        5 * _HOUR,
        (_TO_CHANGE, (4 * _HOUR, 5 * _HOUR)),
        (0.0, _CHANGE_S),
        15,
    ),
    Curve("waves", _waves, PLAIN, 4 * _HOUR, ((_HOUR, 4 * _HOUR),), (0.0,), 10, served_load=_crest),
    Curve("slow leak", _steady, LEAKING, 8 * _HOUR, ((_HOUR, 8 * _HOUR),), (0.0,), 12),
    Curve("skew", _steady, SKEWED, 3 * _HOUR, (), (), 6, is_helped=False),
)
"""How many rescales may be made: each step of a doubling or of 0.6 down, and for slow changes one for each 15 % of the load."""
