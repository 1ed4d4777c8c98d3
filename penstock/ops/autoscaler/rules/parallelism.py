"""From what a vertex should be able to do to its number of subtasks.

Does not know gates. Source: JobVertexScaler, ParallelismAlignmentMode of Flink's Kubernetes operator
(docs/spec/autoscaler.md#parallelism, #alignment). Differs: what an alignment may add is limited, and sources may be held to their
partitions, as the settings say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.ops.autoscaler.rules.evaluation import Evaluated
from penstock.ops.autoscaler.rules.samples import Topology
from penstock.ops.autoscaler.rules.settings import AlignmentMode, StepSettings

_ROUNDING: Final = 1e-9
"""3.0000000000000004 subtasks are 3."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """`factor`: of the parallelism, within the limits of a step. `wanted`: before it is aligned. `parallelism`: what is proposed."""

    factor: float
    wanted: int
    parallelism: int
    scalability: float = 1.0


def propose(
    one: Evaluated, topology: Topology, settings: StepSettings, scalability: float = 1.0
) -> Proposal:
    """Return the parallelism that gives a vertex its capacity. `scalability`: share of its rate that a further subtask brings."""
    now = one.parallelism
    raw = one.capacity / one.true_rate / scalability
    factor = min(1 + settings.up_max, max(1 - settings.down_max, raw))
    most = topology.vertices[one.vertex_id].max_parallelism
    upper = min(most, max(now, settings.max_parallelism))
    partitions = one.measured.partitions
    if partitions and settings.is_at_most_partitions:
        upper = min(upper, partitions)
    lower = min(now, settings.min_parallelism, upper)
    wanted = min(upper, max(lower, math.ceil(factor * now - _ROUNDING), 1))
    shares = partitions
    if not shares and topology.is_keyed(one.vertex_id):
        shares = most
    if not shares:
        return Proposal(factor, wanted, wanted, scalability)
    limit = min(shares, upper) if wanted > now else now
    return Proposal(factor, wanted, align(wanted, shares, limit, settings), scalability)


def align(wanted: int, shares: int, limit: int, settings: StepSettings) -> int:
    """Return the first parallelism from `wanted` on that spreads the shares better; else `wanted`.

    Args:
        shares: partitions or key groups that are dealt out to the subtasks.
        limit: the largest parallelism that may be returned.
    """
    if settings.alignment is AlignmentMode.OFF:
        return wanted
    is_balanced = settings.alignment is AlignmentMode.BALANCED
    for one in range(wanted, limit + 1):
        is_better = is_balanced and shares // one < shares // wanted
        if shares % one == 0 or is_better:
            is_cheap = one == wanted or (one - wanted) / wanted < settings.max_added
            return one if is_cheap else wanted
    return wanted
