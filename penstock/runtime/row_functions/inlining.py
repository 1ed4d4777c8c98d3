"""The body of a function as an expression over its arguments, for a loop over Python objects of any class.

The classes of the objects are not known, so their operators and attributes may be the user's own code. The expression therefore does
what the function does, step by step, in the same order: each operation once. A function that calls code which is not known, or may
change an object, is refused. Does not know operators. Source: none; inlining as compilers do it.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from penstock.model.row import Row, make_row
from penstock.runtime.row_functions.interpreters import READS_BYTECODE, is_watched, loads_method
from penstock.runtime.row_functions.known_code import SCALARS, Guard, hold
from penstock.runtime.row_functions.plans import function_of
from penstock.runtime.row_functions.reading import Reader
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.rendering import Expression, TooLarge, expression
from penstock.runtime.row_functions.runner import TURNED_OFF
from penstock.runtime.row_functions.stand import NO_VALUE, Stand
from penstock.runtime.row_functions.trees import LEAVES, Kind, Node, results_of, with_results

_COMPARES: Final = frozenset({"==", "<=", ">=", "!="})
_GIVES_BOOL: Final = frozenset({"not ", "in", "not in", "is", "is not"})
_DEEPEST: Final = 20


@dataclass(slots=True)
class Inlined:
    """An expression over `c0`, and `c1` if the function takes two records. `why_not`: why there is none.

    `results`: the kinds of what it may give.
    """

    expression: Expression | None
    guards: tuple[Guard, ...] = ()
    why_not: str = ""
    results: frozenset[Kind] = frozenset()
    is_changeable: bool = True
    """Whether what it gives may be changed by somebody else, where it takes scalars."""

    def may_run(self) -> bool:
        """Whether it gives now what the function gives, and nobody watches calls."""
        return self.expression is not None and hold(self.guards) and not is_watched()


def inlined(
    call: object,
    count: int = 1,
    names: tuple[str, ...] | None = None,
    *,
    is_on: bool = True,
    takes_scalars: bool = False,
) -> Inlined:
    """The body of a function of so many records. Its own code does not run.

    Args: is_on: whether it is wanted; else it says so. names: of the Rows that it returns, where it gives them none.
        takes_scalars: its records will be scalars, and tuples of such.
    """
    function, place = function_of(call)
    why_not = ""
    if not is_on:
        why_not = TURNED_OFF
    elif not READS_BYTECODE:
        why_not = "the bytecode of this Python version is not known"
    elif function is None:
        why_not = f"{type(call).__name__} is no function of Python"
    else:
        try:
            tree, guards = _tree(function, place, count, are_changeable=not takes_scalars)
            return _inlined(tree, guards, names)
        except (Refused, TooLarge) as refused:
            why_not = str(refused)
        except RecursionError:
            why_not = "it is nested too deeply"
        except Exception as error:
            # The function itself needs no expression.
            why_not = f"it could not be read: {type(error).__name__}"
    return Inlined(None, why_not=why_not)


def comprehension(
    plan: Inlined, call: object, *, is_filter: bool = False
) -> Callable[[list[Any]], list[Any]] | None:
    """The function from a list of records to the list of what this one gives for each; None: its body is not known.

    Args: is_filter: whether only the truth of each result is wanted.
    """
    if plan.expression is None:
        return None
    text = plan.expression.text
    text = f"True if {text} else False" if is_filter else text
    source = f"def run(values):\n    return [{text} for c0 in values]\n"
    name = f"<body of {getattr(call, '__qualname__', 'a function')}>"
    try:
        return plan.expression.in_function(source, name)
    except TooLarge:
        return None


def tree_of(call: object, count: int) -> tuple[Node, tuple[Guard, ...]]:
    """The tree of what a function of so many arguments returns, over COLUMN 0, 1 and so on for them. Its own code does not run. Raises: Refused."""
    function, place = function_of(call) if READS_BYTECODE else (None, 0)
    if function is None:
        raise Refused("it is no function of Python whose bytecode is known")
    try:
        return _tree(function, place, count)
    except RecursionError as error:
        raise Refused("it is nested too deeply") from error


def _tree(
    function: FunctionType, place: int, count: int, *, are_changeable: bool = True
) -> tuple[Node, tuple[Guard, ...]]:
    given = {
        place + index: Node(Kind.COLUMN, value=index, is_changeable=are_changeable)
        for index in range(count)
    }
    reader = _ObjectReader(function, _no_field)
    return reader.tree(given), tuple(reader.guards)


def _inlined(tree: Node, guards: tuple[Guard, ...], names: tuple[str, ...] | None) -> Inlined:
    results = frozenset(one.kind for one in results_of(tree))
    made = expression(with_results(tree, lambda one: _as_row(one, names)))
    return Inlined(made, guards, "", results, tree.is_changeable or Kind.ROW in results)


def _no_field(_field: int | str) -> Node:
    raise AssertionError("the record is an object of any class")


def _as_row(result: Node, names: tuple[str, ...] | None) -> Node:
    """What makes a Row, if the function returns one that it makes."""
    if result.kind is not Kind.ROW:
        return result
    own: Any = result.value
    if own is None and names is not None and len(names) == len(result.args):
        own = names
    maker, fields = Node(Kind.CODE, value=make_row), Node(Kind.KNOWN, value=own)
    return Node(Kind.CALL, (maker, fields, Node(Kind.TUPLE, result.args)), ())


class _ObjectReader(Reader):
    """Reads a function of objects of any class. Whatever it gets from them may be changeable."""

    def attribute(self, way: Stand, step: dis.Instruction) -> None:
        of = way.stack[-1]
        if isinstance(of, Node) and of.kind not in NO_VALUE and not loads_method(step):
            way.stack.pop()
            changeable = of.is_changeable
            way.push(Node(Kind.ATTRIBUTE, (of,), step.argval, is_changeable=changeable))
        else:
            super().attribute(way, step)

    def binary(self, way: Stand, symbol: str) -> None:
        if symbol.endswith("=") and symbol not in _COMPARES:
            raise Refused("it may change an object in place")
        super().binary(way, symbol)

    def known_to_be(self, way: Stand, condition: Node) -> bool | None:
        found = super().known_to_be(way, condition)
        if found is not None and not _is_bool(condition):
            raise Refused("it tests one value twice")
        return found

    def _ended(self, way: Stand, result: Node) -> Node:
        """The result, which runs all operations in their order. Where it forks, they run before the condition is tested."""
        first = result.args[0] if result.kind is Kind.IF else result
        made = [node for node in way.made if node.can_fail]
        before = {id(node) for node in way.before}
        if list(map(id, _operations(first, before))) != list(map(id, made)):
            if any(map(_has_argument_between, made)):
                raise Refused("it calls a method with a value, and uses another one only later")
            for node in reversed(made):
                changeable = result.is_changeable
                result = Node(Kind.SEQUENCE, (node, result), is_changeable=changeable)
        return result


def _is_bool(node: Node) -> bool:
    return node.kind in {Kind.UNARY, Kind.BINARY} and node.value in _GIVES_BOOL


def _has_argument_between(node: Node) -> bool:
    """Whether the arguments of a method are computed between the reading of the method and its call."""
    return node.kind is Kind.METHOD and not all(one.kind in LEAVES for one in node.args[1:])


def _operations(node: Node, seen: set[int]) -> Iterator[Node]:
    """What may fail of a value, in the order in which it runs. `seen`: the ids of what has run before; grows."""
    if node.kind in LEAVES or id(node) in seen:
        return
    seen.add(id(node))
    for arg in node.args:
        yield from _operations(arg, seen)
    if node.can_fail:
        yield node


def is_of_python(value: Any, deepest: int = _DEEPEST) -> bool:
    """Whether this is a value of Python's own classes, or a Row of such. A function that changes nothing may run with it once more."""
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is dict:
        return deepest > 0 and is_of_python((*value, *value.values()), deepest)
    if deepest == 0 or kind not in {tuple, list, set, frozenset, Row}:
        return False
    return all(is_of_python(part, deepest - 1) for part in value)
