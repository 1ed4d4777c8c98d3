"""Trees of flame graphs, made of stacks that were sampled. Source: Flink VertexFlameGraphFactory.

    {"name": "root", "value": 100, "children": [{"name": "app.parse:12", "value": 60, "children": []}]}

The value of the root is the number of samples; the value of a frame is in how many of them it was. Differs: frames are
Python's, so that no lambda has a number in its name that must go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from penstock.engine.model.messages import SampledStack

Tree: TypeAlias = dict[str, Any]


class GraphType(StrEnum):
    """Which samples count: all, those on a processor, or those that waited. Values as Flink's `type` parameter has them."""

    FULL = "full"
    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"


_HITS: Final[Mapping[GraphType, Callable[[SampledStack], int]]] = {
    GraphType.FULL: lambda stack: stack.on_cpu + stack.off_cpu,
    GraphType.ON_CPU: lambda stack: stack.on_cpu,
    GraphType.OFF_CPU: lambda stack: stack.off_cpu,
}


@dataclass(slots=True)
class _Node:
    value: int
    children: dict[str, _Node]


def tree_of(stacks: Iterable[SampledStack], kind: GraphType) -> Tree:
    """Return the tree of samples of one or many tasks. Children are in the order of their values, the largest first."""
    hits_of = _HITS[kind]
    root = _Node(0, {})
    for stack in stacks:
        hits = hits_of(stack)
        if not hits:
            continue
        root.value += hits
        node = root
        for frame in stack.frames:
            node = node.children.setdefault(frame, _Node(0, {}))
            node.value += hits
    return _plain(root)


def _plain(root: _Node) -> Tree:
    """Convert without recursion, because stacks may be deeper than Python's own limit."""
    top: Tree = {"name": "root", "value": root.value, "children": []}
    left = [(root, top)]
    while left:
        node, tree = left.pop()
        for name, child in sorted(node.children.items(), key=lambda item: -item[1].value):
            found: Tree = {"name": name, "value": child.value, "children": []}
            tree["children"].append(found)
            left.append((child, found))
    return top
