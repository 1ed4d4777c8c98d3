"""What functions emit, as it is at that moment: they may go on with the same list, dict, set or Row, and emit it again.

A batch is made before anybody reads it, so what such a function does afterwards would reach records that it has emitted. Copied is what
somebody else has too, which its references tell: a Row that a function makes and returns is nobody else's. Knows no operator. Source: PyFlink, whose workers encode each result before the function goes on; differs: objects of the user's own
classes are not copied, and functions whose first result of a batch cannot be changed are trusted with the rest of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from sys import getrefcount
from typing import Any, Final

from penstock.model.row import CHANGEABLE, Row, copied, make_row
from penstock.runtime.checkpoint.snapshot import is_immutable

_ATOMS: Final = frozenset({int, float, str, bool, bytes, type(None)})
"""Enough to be quick with most records."""


class Emissions:
    """Of one batch. Its first result tells whether they are of a kind that can be changed."""

    __slots__ = ("_are_copied",)

    def __init__(self) -> None:
        self._are_copied: bool | None = None

    def of(self, results: Iterable[Any]) -> Iterable[Any]:
        """The results, each as it is when it comes out of the iterator."""
        if self._are_copied is None:
            return self._from_first(iter(results))
        return map(as_it_is, results) if self._are_copied else results

    def _from_first(self, results: Iterator[Any]) -> Iterable[Any]:
        for first in results:
            self._are_copied = not is_immutable((first,))
            return self.of(chain((first,), results))
        return ()  # not `results`: a StopIteration out of a function ends them too, and they would go on


def as_it_is(value: Any) -> Any:
    """The value, if nobody else has anything of it that can be changed, or a copy."""
    kind = type(value)
    if kind in _ATOMS or (kind is not tuple and kind not in CHANGEABLE):
        return value
    is_alone = getrefcount(value) <= _ALONE
    if is_alone or kind is tuple:
        parts = value._values if kind is Row else value.values() if kind is dict else value  # ruff: ignore[private-member-access] - hot
        if _ATOMS.issuperset(map(type, parts)) or (is_alone and all(map(_is_alone, parts))):
            return value
    return _copy(value)


def _is_alone(part: Any) -> bool:
    """Whether only what it is a part of has it, and the same holds for its own parts."""
    kind = type(part)
    if kind in _ATOMS or (kind is not tuple and kind not in CHANGEABLE):
        return True
    is_alone = getrefcount(part) <= _ALONE + 1
    if not is_alone and kind is not tuple:
        return False
    parts = part.values() if kind is dict else part
    return _ATOMS.issuperset(map(type, parts)) or (is_alone and all(map(_is_alone, parts)))


def _copy(value: Any) -> Any:
    """With all in it that can be changed."""
    kind = type(value)
    if kind in _ATOMS or (kind is not tuple and kind not in CHANGEABLE):
        return value
    parts = value.values() if kind is dict else value
    if _ATOMS.issuperset(map(type, parts)):
        return value if kind is tuple else copied(value)
    made = map(_copy, parts)
    if kind is Row:
        return make_row(value._fields, made, value.get_row_kind())
    return dict(zip(value, made, strict=True)) if kind is dict else kind(made)


def _references(value: Any) -> int:
    return getrefcount(value)


_ALONE: Final = next(map(_references, map(list, [()])))
"""How many references `as_it_is` sees to what a function has made and given away."""
