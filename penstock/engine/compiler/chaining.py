"""Which stream edges disappear inside one task.

Does not look into operators' code. Source: Flink StreamingJobGraphGenerator.isChainable
(docs/spec/job-graph.md#chaining). Differs: a source is never chained into an operator of several
inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model.graph.auto_parallelism import UNDECIDED
from penstock.engine.model.graph.partitioning import ShipStrategy, StreamExchangeMode
from penstock.engine.model.graph.stream_graph import ChainingStrategy


@dataclass(frozen=True, slots=True)
class ChainCandidate:
    """A stream edge, with everything that decides whether its two ends run in one task."""

    upstream_strategy: ChainingStrategy
    downstream_strategy: ChainingStrategy
    upstream_parallelism: int
    downstream_parallelism: int
    ship_strategy: ShipStrategy
    is_chaining_enabled: bool = True
    in_edges_of_downstream: int = 1
    is_same_slot_sharing_group: bool = True
    exchange_mode: StreamExchangeMode = StreamExchangeMode.UNDEFINED
    is_upstream_source: bool = False
    is_max_parallelism_accepted: bool = True


def is_chainable(edge: ChainCandidate) -> bool:
    """Whether all conditions for chaining hold. The condition of exactly one input edge also excludes unions."""
    return (
        edge.is_chaining_enabled
        and edge.in_edges_of_downstream == 1
        and edge.is_same_slot_sharing_group
        and edge.is_max_parallelism_accepted
        and edge.ship_strategy is ShipStrategy.FORWARD
        and edge.exchange_mode is not StreamExchangeMode.BATCH
        and _is_parallelism_equal(edge)
        and _are_strategies_willing(edge)
    )


def _is_parallelism_equal(edge: ChainCandidate) -> bool:
    both = (edge.upstream_parallelism, edge.downstream_parallelism)
    return UNDECIDED in both or both[0] == both[1]


def _are_strategies_willing(edge: ChainCandidate) -> bool:
    if edge.upstream_strategy is ChainingStrategy.NEVER:
        return False
    if edge.downstream_strategy is ChainingStrategy.HEAD_WITH_SOURCES:
        return edge.is_upstream_source
    return edge.downstream_strategy is ChainingStrategy.ALWAYS
