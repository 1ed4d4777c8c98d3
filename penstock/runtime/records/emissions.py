"""What functions emit, as it is at that moment: they may go on with the same list, dict, set or Row, and emit it again.

A batch is made before anybody reads it, so what such a function does afterwards would reach records that it has emitted. Copied is
what somebody else has too, which its references tell: a Row that a function makes and returns is nobody else's.
An operator whose first results, `LOOKED_AT` of them, cannot be changed is trusted with the next ones, until a sample of them shows one that can.
Knows no operator. Source: PyFlink, whose workers encode each result before the function goes on; differs: objects of the user's own
classes are not copied, and trust.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from sys import getrefcount
from typing import Any, Final

import numpy as np

from penstock.model.row import CHANGEABLE, Row, copied, make_row
from penstock.runtime.records.frozen import IMMUTABLE_KINDS, is_immutable

_CONTAINERS: Final = (Row, list, dict, set, bytearray, deque, tuple, np.ndarray)
"""And the classes derived from them, a Counter or a named tuple, say."""
_DEPTH: Final = 4
"""Deeper ones are left to `deepcopy`, which knows what it has met before."""


LOOKED_AT: Final = 4096
SAMPLED: Final = 127
"""One of so many; a function that gives several results for each record should not be met at the same one each time."""


class Emissions:
    """Whether the results of an operator have to be looked at one by one."""

    def __init__(self) -> None:
        self._to_look_at = LOOKED_AT
        self._can_change = False

    @property
    def are_trusted(self) -> bool:
        return self._to_look_at <= 0 and not self._can_change

    def taken(self) -> Callable[[Iterable[Any]], Iterable[Any]]:
        """What the results of a call go through."""
        return same if self.are_trusted else as_they_are

    def note(self, results: list[Any]) -> None:
        """They were emitted."""
        if self._can_change:
            return
        is_sampled = self._to_look_at <= 0
        self._can_change = not is_immutable(results[::SAMPLED] if is_sampled else results)
        self._to_look_at -= len(results)


def same(given: Any) -> Any:
    """Stands where nothing has to be copied."""
    return given


def as_they_are(results: Iterable[Any]) -> Iterable[Any]:
    """Results of a function, each as it is when it comes out of the iterator."""
    return _of_own_list(results) if type(results) is list else map(as_it_is, results)


def as_it_is(value: Any) -> Any:
    """The value, if nobody else has anything of it that can be changed, or a copy."""
    kind = type(value)
    if kind is tuple:  # first and written out: most records are flat ones
        for part in value:
            if part.__class__ not in IMMUTABLE_KINDS:
                break
        else:
            return value
        part = None  # it would be one reference more
        return value if getrefcount(value) <= _ALONE and _are_alone(value) else own_copy(value)
    if kind in IMMUTABLE_KINDS:
        return value
    if kind not in CHANGEABLE:
        return own_copy(value) if isinstance(value, _CONTAINERS) else value
    if getrefcount(value) > _ALONE:
        return own_copy(value)
    return value if _has_parts_alone(value, kind) else own_copy(value)


def _has_parts_alone(value: Any, kind: type) -> bool:
    """Of a Row only if they cannot be changed: several Rows may have one tuple of values."""
    parts = value._values if kind is Row else value.values() if kind is dict else value  # ruff: ignore[private-member-access] - hot
    return IMMUTABLE_KINDS.issuperset(map(type, parts)) or (kind is not Row and _are_alone(parts))


def _are_alone(parts: Iterable[Any]) -> bool:
    return all(map(_is_alone, parts))


def _is_alone(part: Any) -> bool:
    """Whether only what it is a part of has it, and the same holds for its own parts."""
    kind = type(part)
    if kind in IMMUTABLE_KINDS:
        return True
    if kind is not tuple and kind not in CHANGEABLE:
        return not isinstance(part, _CONTAINERS)
    if kind is tuple and IMMUTABLE_KINDS.issuperset(map(type, part)):
        return True
    return getrefcount(part) <= _ALONE + 1 and _has_parts_alone(part, kind)


def own_copy(value: Any, depth: int = _DEPTH) -> Any:
    """With all in it that can be changed. What cannot be copied is handed on: it could not leave this process either."""
    kind = type(value)
    if kind is tuple:  # as above
        for part in value:
            if part.__class__ not in IMMUTABLE_KINDS:
                break
        else:
            return value
    if kind in IMMUTABLE_KINDS:
        return value
    if depth == 0 or (kind is not tuple and kind not in CHANGEABLE):
        return _deep_copy(value) if isinstance(value, _CONTAINERS) else value
    parts = value.values() if kind is dict else value
    if kind is not tuple and IMMUTABLE_KINDS.issuperset(map(type, parts)):
        return copied(value)
    made = (own_copy(part, depth - 1) for part in parts)
    if kind is Row:
        return make_row(value._fields, made, value.get_row_kind())
    return dict(zip(value, made, strict=True)) if kind is dict else kind(made)


def _deep_copy(value: Any) -> Any:
    try:
        return deepcopy(value)
    # a lock, say, or whatever a class of the user's raises
    except Exception:
        return value


def _of_own_list(results: list[Any]) -> Iterator[Any]:
    """Items of a list that a function has returned. If nobody else has it, it is taken apart: it is a holder of theirs, too."""
    if getrefcount(results) > _LIST_ALONE:
        return map(as_it_is, results)
    results.reverse()
    return map(as_it_is, _emptied(results))


def _emptied(results: list[Any]) -> Iterator[Any]:
    pop = results.pop
    while results:
        yield pop()


def _references(value: Any) -> int:
    return getrefcount(value)


def _references_through_a_call(value: Any) -> int:
    return _references(value)


def _of_a_variable(count: Callable[[Any], int]) -> int:
    made: list[Any] = next(map(list, [()]))
    return count(made)


_ALONE: Final = next(map(_references, map(list, [()])))
"""How many references `as_it_is` sees to what a function has made and given away."""
_LIST_ALONE: Final = _of_a_variable(_references_through_a_call)
"""The same, of a list, in `_of_own_list`."""
