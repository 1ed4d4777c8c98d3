"""Protects emitted records: a function may change and emit the same list, dict, set or Row again after it has emitted it.

Results are gathered in a batch before anybody reads them, so a later change by the function would reach records that it has emitted.
A result is therefore copied if somebody else still has a reference to it or to a part of it. Reference counts tell this: a Row that a
function makes and returns belongs to nobody else. In an interpreter whose reference counts are not known to be exact (`may_count`),
everything that can be changed is copied.
If the first `LOOKED_AT` results of an operator cannot be changed, its next results are trusted, until a sample of them shows one that
can be changed. Does not know operators. Source: PyFlink, whose workers encode each result before the function goes on; differs:
objects of the user's own classes are not copied, and results may be trusted.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from sys import getrefcount
from typing import Any, Final, NoReturn

import numpy as np

from penstock.model.row import CHANGEABLE, Row, copied, make_row
from penstock.model.texts.bounded_text import bounded_repr
from penstock.runtime.records.frozen import IMMUTABLE_KINDS, is_immutable

_CONTAINERS: Final = (Row, list, dict, set, bytearray, deque, tuple, np.ndarray)
"""Also the classes derived from these, such as a Counter or a named tuple."""
_DEPTH: Final = 4
"""Deeper parts are copied by `deepcopy`, which recognises objects that it has met before."""


ONE_RECORD: Final = frozenset({str, bytes, bytearray, dict, Row})
"""Iterables that a function returns as its one result if its author forgot `yield`. Its parts must not become records in silence."""

LOOKED_AT: Final = 4096
SAMPLED: Final = 127
"""One result in so many is sampled. A prime, so that for a function with several results per record not always the
same one is sampled.
"""


class Emissions:
    """Decides whether the results of an operator have to be checked one by one."""

    def __init__(self) -> None:
        self._to_look_at = LOOKED_AT
        self._can_change = False

    @property
    def are_trusted(self) -> bool:
        return self._to_look_at <= 0 and not self._can_change

    def taken(self) -> Callable[[Iterable[Any]], Iterable[Any]]:
        """The function that the results of a call go through."""
        return same if self.are_trusted else as_they_are

    def note(self, results: list[Any]) -> None:
        """Note emitted results."""
        if self._can_change:
            return
        is_sampled = self._to_look_at <= 0
        self._can_change = not is_immutable(results[::SAMPLED] if is_sampled else results)
        self._to_look_at -= len(results)


def same(given: Any) -> Any:
    """Used where nothing has to be copied."""
    return given


def raise_if_no_results(returned: object) -> None:
    """Raises: TypeError if this is not an iterable, which functions with any number of results return."""
    if hasattr(returned, "__iter__") or hasattr(returned, "__getitem__"):
        return
    raise TypeError(
        f"the function returned {bounded_repr(returned)}, of type {type(returned).__name__}; "
        "expected its results as an iterable. Use `yield`, or return a list."
    ) from None


def refuse_one_record(returned: object) -> NoReturn:
    """Raises: TypeError, because a process function has returned a value of ONE_RECORD."""
    kind = type(returned).__name__
    raise TypeError(
        f"the function returned {bounded_repr(returned)}, of type {kind}; expected its results "
        "in a list or another iterable of records. Use `yield`: without it the parts of the "
        f"{kind} would be records."
    ) from None


def opened(results: Iterable[Any]) -> Iterator[Any]:
    """`as_they_are`, for what a function may have returned by mistake. Raises: TypeError: it is no iterable, or one record."""
    if type(results) in ONE_RECORD:
        refuse_one_record(results)
    try:
        return iter(as_they_are(results))
    except TypeError:
        raise_if_no_results(results)
        raise


def as_they_are(results: Iterable[Any]) -> Iterable[Any]:
    """The results of a function, each in the state in which it came out of the iterator. The caller does not use a list again."""
    return _of_own_list(results) if type(results) is list else map(as_it_is, results)


def as_it_is(value: Any) -> Any:
    """The value, if nobody else has a reference to anything in it that can be changed; else a copy."""
    kind = type(value)
    # This case comes first and without calls, because most records are flat tuples.
    if kind is tuple:
        for part in value:
            if part.__class__ not in IMMUTABLE_KINDS:
                break
        else:
            return value
        # `part` would count as one more reference.
        part = None
        return value if getrefcount(value) <= _ALONE and _are_alone(value) else own_copy(value)
    if kind in IMMUTABLE_KINDS:
        return value
    if kind not in CHANGEABLE:
        return own_copy(value) if isinstance(value, _CONTAINERS) else value
    if getrefcount(value) > _ALONE:
        return own_copy(value)
    return value if _has_parts_alone(value, kind) else own_copy(value)


def _has_parts_alone(value: Any, kind: type) -> bool:
    """Whether only this container has its parts. For a Row only if the parts cannot be changed: several Rows may
    share one tuple of values.
    """
    parts = _parts_of(value, kind)
    return IMMUTABLE_KINDS.issuperset(map(type, parts)) or (kind is not Row and _are_alone(parts))


def _parts_of(value: Any, kind: type) -> Any:
    if kind is Row:
        return value._values  # ruff: ignore[private-member-access] - hot
    return value.values() if kind is dict else value


def _are_alone(parts: Iterable[Any]) -> bool:
    return all(map(_is_alone, parts))


def _is_alone(part: Any) -> bool:
    """Whether only its container has this part, and the same holds for its own parts."""
    kind = type(part)
    if kind in IMMUTABLE_KINDS:
        return True
    if kind is not tuple and kind not in CHANGEABLE:
        return not isinstance(part, _CONTAINERS)
    if kind is tuple and IMMUTABLE_KINDS.issuperset(map(type, part)):
        return True
    return getrefcount(part) <= _ALONE + 1 and _has_parts_alone(part, kind)


def own_copy(value: Any, depth: int = _DEPTH) -> Any:
    """A copy of everything in the value that can be changed. A value that cannot be copied is returned itself: it could not leave this
    process either.
    """
    kind = type(value)
    # As in `as_it_is`.
    if kind is tuple:
        for part in value:
            if part.__class__ not in IMMUTABLE_KINDS:
                break
        else:
            return value
    if kind in IMMUTABLE_KINDS:
        return value
    if depth == 0 or (kind is not tuple and kind not in CHANGEABLE):
        return _deep_copy(value) if isinstance(value, _CONTAINERS) else value
    parts = _parts_of(value, kind)
    if kind is not tuple and IMMUTABLE_KINDS.issuperset(map(type, parts)):
        return copied(value)
    made = [
        part if part.__class__ in IMMUTABLE_KINDS else own_copy(part, depth - 1) for part in parts
    ]
    if kind is Row:
        return make_row(value._fields, made, value.get_row_kind())
    return dict(zip(value, made, strict=True)) if kind is dict else kind(made)


def _deep_copy(value: Any) -> Any:
    try:
        return deepcopy(value)
    # A lock cannot be copied, for example, and the code of user classes may raise anything.
    except Exception:
        return value


def _of_own_list(results: list[Any]) -> Iterator[Any]:
    """The items of a list that a function has returned. If nobody else has the list, it is emptied on the way, because it refers to the
    items too.
    """
    if getrefcount(results) > _LIST_ALONE:
        return map(as_it_is, results)
    return map(as_it_is, handed_over(results))


def handed_over(results: list[Any]) -> Iterator[Any]:
    """The items of a list, which is emptied on the way, so that it does not refer to what was taken."""
    results.reverse()
    return _emptied(results)


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


def may_count(version: tuple[int, int], implementation: str, is_usual: bool) -> bool:
    """Whether this interpreter is known to count each of the containers, variables and cells that have a value.

    From Python 3.14 on an argument does not count where it borrows the reference of a variable.

    Args: is_usual: the interpreter has the GIL, without which a count is spread over threads, and its JIT is off, which may leave
        references out.
    """
    return implementation == "cpython" and is_usual and version in COUNTED_ON


def tells_owners() -> bool:
    """Tests whether counting works: an object that a function has given away counts as unshared, and one that it keeps does not."""
    kept, made = [1], list[int]()
    kept_lists = ([[1]],)

    def give_away(_: int) -> list[int]:
        value = [1]
        made.append(id(value))
        return value

    gives_away = id(next(map(as_it_is, map(give_away, (0,))))) == made[0]
    keeps = next(map(as_it_is, map([kept].__getitem__, (0,)))) is not kept
    keeps_part = next(map(as_it_is, ([kept] for _ in (0,))))[0] is not kept
    # An operator holds what its function returned in the same way.
    results = kept_lists[0]
    (taken,) = as_they_are(results)
    keeps_list = len(results) == 1 and taken is not results[0]
    return gives_away and keeps and keeps_part and keeps_list


COUNTED_ON: Final = frozenset({(3, 11), (3, 12), (3, 13), (3, 14)})
COPY_ALWAYS: Final = -2
"""No count is as small, so everything that can be changed is copied."""
_JIT: Final[Any] = getattr(sys, "_jit", None)
_IS_USUAL: Final = "t" not in getattr(sys, "abiflags", "") and not (_JIT and _JIT.is_enabled())

_ALONE = next(map(_references, map(list, [()])))
"""How many references `as_it_is` sees to an object that a function has made and given away."""
_LIST_ALONE = _of_a_variable(_references_through_a_call)
"""The same for a list in `_of_own_list`."""
if not (may_count(sys.version_info[:2], sys.implementation.name, _IS_USUAL) and tells_owners()):
    _ALONE = _LIST_ALONE = COPY_ALWAYS
