"""A list of an answer whose elements are made while it is written, and answers that are made step by step.

An answer about ten thousand subtasks would otherwise have a hundred thousand objects at once. Python's collector of cycles then
looks at all objects of the process, and no other thread runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar, overload

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""An answer that is made step by step, so that its caller can do something else between them."""


def answer_of(steps: Steps[T], between: Callable[[], object] = lambda: None) -> T:
    """Take all steps, and return the answer. `between`: called after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        between()


class Rows(Sequence[Any]):
    """A list whose elements become JSON when they are read.

    `view` makes the JSON of one item. It is called each time that the element is read. Equal to a list with the same elements.
    """

    __slots__ = ("_items", "_view")

    def __init__(self, items: Sequence[T], view: Callable[[T], Any]) -> None:
        self._items: Sequence[Any] = items
        self._view: Callable[[Any], Any] = view

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Any:
        found = self._items[index]
        return Rows(found, self._view) if isinstance(index, slice) else self._view(found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | Rows):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # As a list.

    def __repr__(self) -> str:
        return repr(list(self))
