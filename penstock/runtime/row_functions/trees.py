"""Trees: what a function computes, as nodes. Does not know bytecode.

A node is evaluated at most once for each record. Two nodes are never merged because they are equal: `0.0` equals `-0.0`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a node does with its arguments, and what `Node.value` then is."""

    COLUMN = "column"
    """value: the index of the field."""
    CONSTANT = "constant"
    KNOWN = "known"
    """A variable outside of the function. value: what it holds."""
    CODE = "code"
    """A function, type or module that is known. It can only be called."""
    RECORD = "record"
    """A Row. Only its fields can be read."""
    BINARY = "binary"
    """value: the operator, also of comparisons."""
    UNARY = "unary"
    ITEM = "item"
    SLICE = "slice"
    CALL = "call"
    """The first argument is CODE. value: names of the last arguments."""
    METHOD = "method"
    """value: (name, names of the last arguments)."""
    ATTRIBUTE = "attribute"
    TUPLE = "tuple"
    LIST = "list"
    FORMAT = "format"
    """value: conversion, as `!r` or nothing. A second argument is the format specification."""
    JOIN = "join"
    IF = "if"
    """Condition, then, else."""
    SEQUENCE = "sequence"
    """Evaluates the first argument, and gives the second one."""
    ROW = "row"
    """value: names of the fields, or None. Only a result."""
    DROP = "drop"
    """No result for this record."""


LEAVES = frozenset({Kind.COLUMN, Kind.CONSTANT, Kind.KNOWN, Kind.CODE, Kind.RECORD, Kind.DROP})
_CANNOT_FAIL = LEAVES | {Kind.TUPLE, Kind.LIST, Kind.ROW, Kind.SLICE}


@dataclass(eq=False, slots=True)
class Node:
    """One operation. `is_changeable`: its value may be a list or another object that can be changed, or hold one. `has_plain_items`: no
    item of it can be changed.
    """

    kind: Kind
    args: tuple[Node, ...] = ()
    value: Any = None
    is_changeable: bool = False
    has_plain_items: bool = False

    @property
    def can_fail(self) -> bool:
        return self.kind not in _CANNOT_FAIL

    @property
    def gives_changeable(self) -> bool:
        """Whether an item of it can be changed."""
        return self.is_changeable and not self.has_plain_items


def chosen(condition: Node, then: Node, other: Node) -> Node:
    """One of two values."""
    changeable = then.is_changeable or other.is_changeable
    return Node(Kind.IF, (condition, then, other), is_changeable=changeable)


def always_evaluated(node: Node) -> set[int]:
    """The ids of the nodes that are evaluated whenever this one is."""
    known: dict[int, set[int]] = {}

    def of(one: Node) -> set[int]:
        found = known.get(id(one))
        if found is None:
            parts = [of(arg) for arg in one.args]
            is_fork = one.kind is Kind.IF
            inside = parts[0] | (parts[1] & parts[2]) if is_fork else set().union(*parts)
            found = known[id(one)] = inside | {id(one)}
        return found

    return of(node)


def with_all(made: list[Node], result: Node) -> Node:
    """The result, with the nodes in front of it that have to be evaluated although it may not use them: they may fail."""
    evaluated = always_evaluated(result)
    for node in reversed(made):
        if node.can_fail and id(node) not in evaluated:
            result = Node(Kind.SEQUENCE, (node, result), is_changeable=result.is_changeable)
            evaluated = always_evaluated(result)
    return result


def results_of(tree: Node) -> Iterator[Node]:
    """The nodes that may be the value of the tree."""
    if tree.kind is Kind.IF:
        yield from results_of(tree.args[1])
        yield from results_of(tree.args[2])
    elif tree.kind is Kind.SEQUENCE:
        yield from results_of(tree.args[1])
    else:
        yield tree


def with_results(tree: Node, change: Callable[[Node], Node]) -> Node:
    """The tree with each of its values changed."""
    if tree.kind is Kind.DROP:
        return tree
    if tree.kind is Kind.IF:
        condition, then, other = tree.args
        return chosen(condition, with_results(then, change), with_results(other, change))
    if tree.kind is Kind.SEQUENCE:
        first, result = tree.args[0], with_results(tree.args[1], change)
        return Node(Kind.SEQUENCE, (first, result), is_changeable=result.is_changeable)
    return change(tree)


def nodes_of(tree: Node) -> Iterator[Node]:
    """Each node of the tree once."""
    seen: set[int] = set()
    left = [tree]
    while left:
        node = left.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            left += node.args
