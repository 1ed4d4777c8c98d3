"""From a tree to Python: one comprehension over the columns that are read, with Python's own operations on Python's own values.

Does not know bytecode. Each constant has a name in the text's namespace, so the text has no literals but positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.runtime.row_functions.trees import LEAVES, Kind, Node, nodes_of, results_of

NOTHING: Final[Mapping[str, Any]] = {}
MOST_CHARACTERS: Final = 20_000
_ROOM: Final = "#" * 1000
Compiled = Callable[..., list[Any]]


class TooLarge(Exception):
    """The text of a function would be too long, or too deep for Python."""


def compiled(
    tree: Node,
    places: Iterable[int],
    name: str,
    *,
    is_flat: bool = False,
    attributes: Mapping[int, str] | None = None,
) -> Compiled:
    """The function `(count, *columns) -> results` of this tree. Rows come out as tuples of their values.

    Args: is_flat: the results are lists, whose items are wanted. places: of the columns, in the order in which they are given. name: shown in stacks.
        attributes: in place of columns one list of records is given, which have the columns as these attributes. Raises: TooLarge.
    """
    text = _Text(tree, attributes)
    conditions, kept = [], tree
    defined: set[int] = set()
    while kept.kind is Kind.IF and kept.args[2].kind is Kind.DROP:
        conditions.append(f" if {text.of(kept.args[0], defined)}")
        kept = kept.args[1]
    results = list(results_of(kept))
    value = text.of(kept, defined)
    if any(one.kind is Kind.DROP for one in results):
        conditions.append(f" if (kept := {value}) is not _drop")
        value = "kept"
    if is_flat:
        if ":=" in value:
            # No variable may be set in what a loop goes over.
            conditions.append(f" if (kept := {value}) is not _nothing")
            value = "kept"
        conditions.append(f" for item in {value}")
        value = "item"
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
    source = f"def run(count, {given}):\n    return [{value} for {loop}{''.join(conditions)}]\n"
    made: Compiled = made_function(source, text.namespace, f"<columns of {name}>")
    return made


def made_function(source: str, namespace: dict[str, Any], name: str) -> Callable[..., Any]:
    """The function `run` of this text. Raises: TooLarge."""
    if len(source) > MOST_CHARACTERS:
        raise TooLarge("it is too long")
    try:
        code = compile(source, name, "exec")
        # Made here, of names only.
        exec(code, namespace)  # ruff: ignore[exec-builtin]
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise TooLarge("it is nested too deeply") from error
    made: Callable[..., Any] = namespace["run"]
    return made


@dataclass(frozen=True, slots=True)
class Expression:
    """The text of a tree, over variables `c` with the index of the column. `namespace`: what the other names in it stand for."""

    text: str
    namespace: dict[str, Any]

    def in_function(
        self, source: str, name: str, known: Mapping[str, Any] = NOTHING
    ) -> Callable[..., Any]:
        """The function `run` of a text that has the expression in it. `known`: what further names stand for. Raises: TooLarge."""
        return made_function(source, {**self.namespace, **known}, name)


def expression(tree: Node) -> Expression:
    """The tree as an expression. Its Rows are tuples. Raises: TooLarge, with room for a loop around it."""
    text = _Text(tree)
    made = text.of(tree, set())
    made_function(f"def run():\n    return ([{made}])\n{_ROOM}", {}, "<expression>")
    return Expression(made, text.namespace)


class _Text:
    """The text of the nodes of one tree. A node that is used more than once is kept in a variable from its first use on."""

    def __init__(self, tree: Node, attributes: Mapping[int, str] | None = None) -> None:
        self._attributes = attributes
        self.namespace: dict[str, Any] = {
            "_drop": object(), "_nothing": object(), "_format": format, "_texts": "".join,
            "_repr": repr, "_str": str, "_ascii": ascii, "_slice": slice, "zip": zip,
            "range": range,
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
        if node.kind is Kind.DROP:
            return "_drop"
        return self._named(node.value, id(node))

    def _named(self, value: Any, key: int) -> str:
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"k{len(self._names)}"
            self.namespace[name] = value
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
