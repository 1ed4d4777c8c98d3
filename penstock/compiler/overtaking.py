"""Which tasks take a barrier ahead of the data before it, and which wait until they have it from everybody.

Source: Flink StreamGraphGenerator (shouldDisableUnalignedCheckpointing). Differs: a task between two that align does so too,
because both kinds together can stand still for ever. Say M takes a barrier early and A, which aligns in front of it, has not
got so far. B behind M takes nothing more of M until it has A's barrier on another way; M, whose output is full, takes
nothing more of A; and A never comes to its barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.model.graph.partitioning import ShipStrategy, may_be_overtaken


class Exchange(NamedTuple):
    """An edge between chains, by the heads of both."""

    source: int
    target: int
    strategy: ShipStrategy


def overtaking_readers(exchanges: Sequence[Exchange]) -> frozenset[int]:
    """Targets that take barriers early. All edges into one target are alike in this."""
    into: dict[int, list[Exchange]] = {}
    for one in exchanges:
        into.setdefault(one.target, []).append(one)
    aligning = {
        target
        for target, mine in into.items()
        if not may_be_overtaken(edge.strategy for edge in mine)
    }
    waiting = {target for target in aligning if not _has_one_channel(into[target])}
    behind = _reached(aligning, _neighbours((one.source, one.target) for one in exchanges))
    before = _reached(waiting, _neighbours((one.target, one.source) for one in exchanges))
    return frozenset(into.keys() - aligning - (behind & before))


def _has_one_channel(mine: Sequence[Exchange]) -> bool:
    """It has its only barrier at once, and blocks nobody."""
    return len(mine) == 1 and mine[0].strategy is ShipStrategy.FORWARD


def _neighbours(pairs: Iterable[tuple[int, int]]) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one, other in pairs:
        found.setdefault(one, []).append(other)
    return found


def _reached(starts: Iterable[int], neighbours: Mapping[int, list[int]]) -> set[int]:
    """Without the starts themselves, unless one leads to another."""
    found: set[int] = set()
    ahead = list(starts)
    while ahead:
        for one in neighbours.get(ahead.pop(), ()):
            if one not in found:
                found.add(one)
                ahead.append(one)
    return found
