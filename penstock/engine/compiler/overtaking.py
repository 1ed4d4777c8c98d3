"""Which tasks let a barrier overtake the data before it, and which align: wait until every channel has delivered it.

Source: Flink StreamGraphGenerator (shouldDisableUnalignedCheckpointing). Differs: a task that lies between two aligning tasks
aligns too, because mixing both kinds there can deadlock. Example: task M lets barriers overtake, task A in front of it
aligns and has not reached its barrier yet. Task B behind M aligns too. B reads nothing more from M until A's barrier has
reached B on another path. M's output is therefore full, so M reads nothing more from A. So A never reaches its barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.engine.model.graph.partitioning import ShipStrategy, may_be_overtaken


class Exchange(NamedTuple):
    """An edge between two chains. `source`, `target`: the node ids of their heads."""

    source: int
    target: int
    strategy: ShipStrategy


def overtaking_readers(exchanges: Sequence[Exchange]) -> frozenset[int]:
    """The targets at which barriers overtake data. All edges into one target are treated alike."""
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
    """A task with one channel has the only barrier at once, so it blocks nothing."""
    return len(mine) == 1 and mine[0].strategy is ShipStrategy.FORWARD


def _neighbours(pairs: Iterable[tuple[int, int]]) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one, other in pairs:
        found.setdefault(one, []).append(other)
    return found


def _reached(starts: Iterable[int], neighbours: Mapping[int, list[int]]) -> set[int]:
    """Nodes that can be reached from `starts`. A start itself is included only if a path leads to it."""
    found: set[int] = set()
    ahead = list(starts)
    while ahead:
        for one in neighbours.get(ahead.pop(), ()):
            if one not in found:
                found.add(one)
                ahead.append(one)
    return found
