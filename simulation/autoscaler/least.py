"""The fewest slots that hold the bound of the lag, found by trial on the model: no formula of the autoscaler is used.

The bound must also hold after a failure: when the job has stood still for 30 s, not more than 5 s of its load may wait 90 s later. A job with
just enough slots for its load would never make that good.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from simulation.autoscaler.model import ModelJob, ModelVertex

OUTAGE_S: Final = 30
CATCH_UP_S: Final = 90
LAG_BOUND_S: Final = 5.0
MOST: Final = 64


def least_slots(vertices: Sequence[ModelVertex], load: float, time_s: float) -> int:
    """Return the sum of the least parallelism of each vertex. `time_s`: for vertices that slow down."""
    names = tuple(vertices)
    return sum(_least(names, vertex.name, load, time_s) for vertex in vertices)


@lru_cache(maxsize=4096)
def _least(vertices: tuple[ModelVertex, ...], name: str, load: float, time_s: float) -> int:
    """Return the least parallelism of a vertex while all others have more than enough."""
    counts = range(1, MOST)
    return 1 + bisect_left(
        counts, True, key=lambda count: _holds(vertices, {name: count}, load, time_s)
    )


def _holds(
    vertices: tuple[ModelVertex, ...], parallelism: dict[str, int], load: float, time_s: float
) -> bool:
    job = ModelJob(vertices, {vertex.name: MOST for vertex in vertices} | parallelism)
    for second in range(OUTAGE_S + CATCH_UP_S):
        job.step(time_s, 1.0, load, is_running=second >= OUTAGE_S)
    return job.lag <= LAG_BOUND_S * load
