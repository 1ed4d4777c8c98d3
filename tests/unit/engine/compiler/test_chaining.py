"""Which edges are chained, by docs/spec/job-graph.md#chaining."""

from dataclasses import replace

import pytest

from penstock.engine.compiler.chaining import ChainCandidate, is_chainable
from penstock.engine.model.graph.partitioning import ShipStrategy, StreamExchangeMode
from penstock.engine.model.graph.stream_graph import ChainingStrategy as C

GOOD = ChainCandidate(C.ALWAYS, C.ALWAYS, 4, 4, ShipStrategy.FORWARD)


@pytest.mark.parametrize("strategy", [C.ALWAYS, C.HEAD, C.HEAD_WITH_SOURCES])
def test_upstream_may_have_any_strategy_but_never(strategy: C) -> None:
    assert is_chainable(replace(GOOD, upstream_strategy=strategy))


@pytest.mark.parametrize(
    "change",
    [
        {"is_chaining_enabled": False},
        {"in_edges_of_downstream": 2},
        {"is_same_slot_sharing_group": False},
        {"upstream_strategy": C.NEVER},
        {"downstream_strategy": C.NEVER},
        {"downstream_strategy": C.HEAD},
        {"downstream_strategy": C.HEAD_WITH_SOURCES},
        {"downstream_parallelism": 3},
        {"ship_strategy": ShipStrategy.REBALANCE},
        {"ship_strategy": ShipStrategy.RESCALE},
        {"exchange_mode": StreamExchangeMode.BATCH},
        {"is_max_parallelism_accepted": False},
    ],
    ids=str,
)
def test_each_condition_alone_breaks_the_chain(change: dict) -> None:
    assert is_chainable(GOOD)
    assert not is_chainable(replace(GOOD, **change))


def test_head_with_sources_takes_a_source_and_undecided_parallelism_passes() -> None:
    edge = replace(GOOD, downstream_strategy=C.HEAD_WITH_SOURCES, is_upstream_source=True)
    assert is_chainable(edge)
    assert is_chainable(replace(GOOD, downstream_parallelism=-1))
