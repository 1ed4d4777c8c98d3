"""Nodes that get no new subtasks for a while, because their subtasks were slow.

Knows no slots and no clock: the owner asks before it uses a slot of a node, and looks again at what it needs when one
is free again. Source: Flink DefaultBlocklistTracker, BlockedNode (docs/spec/elasticity.md#block-list).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockedNode:
    """`node`: a host. `until_ms`: from then on it is free again."""

    node: str
    cause: str
    until_ms: int


class Blocklist:
    """The nodes that are blocked, each once."""

    def __init__(self) -> None:
        self._nodes: dict[str, BlockedNode] = {}

    @property
    def nodes(self) -> tuple[BlockedNode, ...]:
        return tuple(self._nodes.values())

    def add(self, blocked: Iterable[BlockedNode]) -> tuple[BlockedNode, ...]:
        """Block nodes. Of two entries of a node the one with the later end stays, and of equal ones the newer.

        Returns: the entries that are new or have changed; none: nothing is to be told to anybody.
        """
        changed: dict[str, BlockedNode] = {}
        for one in blocked:
            known = self._nodes.get(one.node)
            if known is None or (one != known and one.until_ms >= known.until_ms):
                self._nodes[one.node] = changed[one.node] = one
        return tuple(changed.values())

    def remove_ended(self, now_ms: int) -> tuple[BlockedNode, ...]:
        """Remove and return the nodes whose end has come; if there are any, requirements are looked at again."""
        ended = tuple(one for one in self._nodes.values() if now_ms >= one.until_ms)
        for one in ended:
            del self._nodes[one.node]
        return ended

    def is_blocked(self, node: str) -> bool:
        """Whether it is listed; a node whose end has come is, until it is removed."""
        return node in self._nodes
