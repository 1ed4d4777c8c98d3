"""Trees of what functions compute, and the Python text of a tree: one comprehension over the columns that are read.

The text has Python's own operations on Python's own values. Each constant has a name in the text's namespace, so the text has no
literals but positions. A node is evaluated at most once for each record. Two nodes are never merged because they are equal: `0.0`
equals `-0.0`. Does not know bytecode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


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
    """A Row. Only its fields can be read. value: gives the node of a field by name or index, or raises Refused."""
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


LEAVES: Final = frozenset({Kind.COLUMN, Kind.CONSTANT, Kind.KNOWN, Kind.CODE, Kind.RECORD})
_CANNOT_FAIL: Final = LEAVES | {Kind.TUPLE, Kind.LIST, Kind.ROW, Kind.SLICE}


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


# ---------------------------------------------------------------------- text

MOST_CHARACTERS: Final = 20_000
Compiled = Callable[..., list[Any]]


class TooLarge(Exception):
    """The text of a function would be too long, or too deep for Python."""


def compiled(
    tree: Node, places: Iterable[int], name: str, attributes: Mapping[int, str] | None = None
) -> Compiled:
    """Make the function `(count, *columns) -> results` of this tree. Rows come out as tuples of their values.

    Args: places: of the columns, in the order in which they are given. name: shown in stacks. attributes: in place of columns one
        list of records is given, which have the columns as these attributes. Raises: TooLarge.
    """
    text = _Text(tree, attributes)
    value = text.of(tree, set())
    columns = [f"c{place}" for place in places]
    given = ", ".join(f"l{place}" for place in places)
    if attributes is not None:
        given, loop = "records", "record in records"
    elif not columns:
        loop = "_ in range(count)"
    elif len(columns) == 1:
        loop = f"{columns[0]} in {given}"
    else:
        loop = f"{', '.join(columns)} in zip({given})"
    source = f"def run(count, {given}):\n    return [{value} for {loop}]\n"
    if len(source) > MOST_CHARACTERS:
        raise TooLarge("it is too long")
    try:
        code = compile(source, f"<columns of {name}>", "exec")
        # Made here, of names only.
        exec(code, text.namespace)  # ruff: ignore[exec-builtin]
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise TooLarge("it is nested too deeply") from error
    made: Compiled = text.namespace["run"]
    return made


class _Text:
    """The text of the nodes of one tree. A node that is used more than once is kept in a variable from its first use on."""

    def __init__(self, tree: Node, attributes: Mapping[int, str] | None = None) -> None:
        self._attributes = attributes
        self.namespace: dict[str, Any] = {
            "_nothing": object(), "_format": format, "_texts": "".join, "_repr": repr,
            "_str": str, "_ascii": ascii, "_slice": slice, "zip": zip, "range": range,
        }  # fmt: skip
        self._uses: dict[int, int] = {}
        self._names: dict[int, str] = {}
        for node in nodes_of(tree):
            for arg in node.args:
                self._uses[id(arg)] = self._uses.get(id(arg), 0) + 1

    def of(self, node: Node, defined: set[int]) -> str:
        """The text of a node. `defined`: the nodes that have a value in a variable here; grows."""
        if node.kind in LEAVES:
            return self._leaf(node)
        if id(node) in defined:
            return self._names[id(node)]
        text = self._operation(node, defined)
        if self._uses.get(id(node), 0) < 2:
            return f"({text})"
        name = self._names.setdefault(id(node), f"t{len(self._names)}")
        defined.add(id(node))
        return f"({name} := {text})"

    def _leaf(self, node: Node) -> str:
        if node.kind is Kind.COLUMN:
            names = self._attributes
            return f"c{node.value}" if names is None else f"record.{names[node.value]}"
        name = self._names.get(id(node))
        if name is None:
            name = self._names[id(node)] = f"k{len(self._names)}"
            self.namespace[name] = node.value
        return name

    def _operation(  # ruff: ignore[too-many-return-statements] - a dispatch by kind
        self, node: Node, defined: set[int]
    ) -> str:
        kind = node.kind
        if kind is Kind.IF:
            condition = self.of(node.args[0], defined)
            then = self.of(node.args[1], defined.copy())
            other = self.of(node.args[2], defined.copy())
            return f"{then} if {condition} else {other}"
        if kind is Kind.JOIN:
            return self._joined(node, defined)
        if kind is Kind.ITEM and self._is_cut(node.args[1]):
            of, *bounds = [self.of(arg, defined) for arg in (node.args[0], *node.args[1].args)]
            return f"{of}[{':'.join(bounds)}]"
        parts = [self.of(arg, defined) for arg in node.args]
        if kind is Kind.SEQUENCE:
            return f"{parts[1]} if {parts[0]} is not _nothing else _nothing"
        if kind is Kind.BINARY:
            return f"{parts[0]} {node.value} {parts[1]}"
        if kind is Kind.UNARY:
            return f"{node.value}{parts[0]}"
        if kind is Kind.ITEM:
            index = node.args[1]
            # A position is a little faster than a name of it.
            is_position = index.kind is Kind.CONSTANT and type(index.value) is int
            return f"{parts[0]}[{index.value if is_position else parts[1]}]"
        if kind is Kind.ATTRIBUTE:
            return f"{parts[0]}.{node.value}"
        if kind is Kind.FORMAT:
            return self._formatted(node, parts)
        if kind is Kind.CALL:
            return f"{parts[0]}({_arguments(parts[1:], node.value)})"
        if kind is Kind.METHOD:
            name, names = node.value
            return f"{parts[0]}.{name}({_arguments(parts[1:], names)})"
        return _AROUND[kind].format(", ".join(parts) + ("," if len(parts) == 1 else ""))

    def _is_cut(self, index: Node) -> bool:
        return index.kind is Kind.SLICE and self._uses[id(index)] == 1

    def _formatted(self, node: Node, parts: list[str]) -> str:
        piece = _piece(node.value, parts)
        # With quotes in it, an f-string cannot be part of another one before Python 3.12.
        if '"' not in piece:
            return f'f"{piece}"'
        value = f"{_CONVERSION[node.value]}({parts[0]})" if node.value else parts[0]
        return f"_format({', '.join([value, *parts[1:]])})"

    def _joined(self, node: Node, defined: set[int]) -> str:
        pieces, texts = [], []
        for arg in node.args:
            if arg.kind is Kind.FORMAT and self._uses[id(arg)] == 1:
                parts = [self.of(one, defined) for one in arg.args]
                pieces.append(_piece(arg.value, parts))
                texts.append(self._formatted(arg, parts))
            else:
                texts.append(self.of(arg, defined))
                pieces.append(f"{{{texts[-1]}}}")
        whole = "".join(pieces)
        return f"_texts(({', '.join(texts)},))" if '"' in whole else f'f"{whole}"'


def _piece(conversion: str, parts: list[str]) -> str:
    """What stands for a value in an f-string."""
    specification = f":{{{parts[1]}}}" if len(parts) > 1 else ""
    return f"{{{parts[0]}{conversion}{specification}}}"


def _arguments(parts: list[str], names: tuple[str, ...]) -> str:
    plain = len(parts) - len(names)
    named = [f"{name}={part}" for name, part in zip(names, parts[plain:], strict=True)]
    return ", ".join([*parts[:plain], *named])


_CONVERSION: Final = {"!s": "_str", "!r": "_repr", "!a": "_ascii"}
_AROUND: Final = {
    Kind.TUPLE: "({})",
    Kind.LIST: "[{}]",
    Kind.ROW: "({})",
    Kind.SLICE: "_slice({})",
}
