"""Stand: how far the reading of a function has come on one way through it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.trees import Kind, Node

NO_VALUE: Final = frozenset({Kind.CODE, Kind.RECORD, Kind.ROW})


@dataclass(frozen=True, slots=True)
class Method:
    of: Node
    name: str


NULL: Final = object()
"""Marks a place on the stack that calls leave empty."""


@dataclass(slots=True)
class Stand:
    """One way through the function: what is on the stack, in variables, and which conditions were met.

    `made`: nodes since the last fork, in the order of the instructions; `before`: those before it.
    """

    at: int
    stack: list[Any]
    variables: dict[str, Any]
    met: dict[int, bool]
    names: tuple[str, ...] = ()
    made: list[Node] = field(default_factory=list)
    before: tuple[Node, ...] = ()

    def fork(self, at: int, condition: Node, is_true: bool) -> Stand:
        met = {**self.met, id(condition): is_true}
        before = (*self.before, *self.made)
        return Stand(at, self.stack.copy(), self.variables.copy(), met, before=before)

    def take(self, count: int) -> list[Any]:
        """Take so many values off the stack, the lowest first."""
        taken = [self.value() for _ in range(count)]
        taken.reverse()
        return taken

    def value(self) -> Node:
        """Take the top of the stack, which has to be a value of Python's own."""
        top = self.stack.pop()
        if not isinstance(top, Node):
            raise Refused("it reads a method without calling it")
        if top.kind in NO_VALUE:
            raise Refused(USED[top.kind])
        return top

    def push(self, node: Node) -> None:
        self.made.append(node)
        self.stack.append(node)


USED: Final = {
    Kind.CODE: "it uses a function as a value",
    Kind.RECORD: "it uses the record itself, not only its fields",
    Kind.ROW: "it uses a Row that it has made",
}
