"""Additions: an aggregate whose accumulator is a count, a sum, or a tuple of those adds the records of a key at once.

So the records of sliding windows are added up once, and not for each of their windows. Only where the result is exactly
that of the function: for Python's own whole numbers, out of records of Python's own classes. Does not know operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from operator import add as plus
from typing import Any, Final

from penstock.model.row import Row
from penstock.runtime.row_functions.inlining import tree_of
from penstock.runtime.row_functions.interpreters import is_watched
from penstock.runtime.row_functions.known_code import SCALARS, Guard, hold
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.rendering import expression
from penstock.runtime.row_functions.trees import Kind, Node
from penstock.runtime.value_classes import classes_of

_LEAST_RECORDS: Final = 128
_LEAST_GAIN: Final = 4
"""So many records a key, on average. Fewer are quicker added one by one."""
_REST: Final = 16
"""So many runs later it is tried again, where it could not be done, or was not worth it."""
_RECORDS: Final = SCALARS | {tuple, list, dict, Row}
_INT: Final = {int}
_FIELDS: Final = frozenset({Kind.ITEM, Kind.ATTRIBUTE})
Part = int | Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class _Plan:
    """`start`: the first accumulator. `parts`: what is added to it, or to each of its fields, for each record."""

    start: Any
    parts: tuple[Part, ...]
    guards: tuple[Guard, ...]

    @property
    def is_count(self) -> bool:
        return all(isinstance(part, int) for part in self.parts)


@dataclass(slots=True)
class KeySums:
    """What is added for each key, a list for each part."""

    _of: Additions
    keys: list[Any]
    parts: list[list[int]]

    def are_added_to(self, table: dict[Any, Any]) -> bool:
        """Add them to accumulators. False: nothing is added, for one of these is no sum of whole numbers."""
        return self._of.are_added(self, table)


class Additions:
    """What `add` of one aggregate function adds."""

    def __init__(self, create: Callable[[], Any], add: Callable[[Any, Any], Any]) -> None:
        self._create, self._add = create, add
        self._plan: _Plan | None = None
        self._is_read = False
        self._rest = 0

    def sums(
        self, skeys: Sequence[Any], values: Sequence[Any], windows: int, *, are_lent: bool = False
    ) -> KeySums | None:
        """What records add to each of so many windows; None: they have to be added one by one.

        Args: are_lent: they are fields of columns, not objects of the user's.
        """
        self._rest -= 1
        if not windows or len(skeys) < _LEAST_RECORDS or self._rest > 0:
            return None
        plan = self._ready_plan()
        if plan is None:
            return None
        is_plain = plan.is_count or are_lent or classes_of(values) <= _RECORDS
        is_worth_it = is_plain and (windows > 1 or plan.is_count)
        made = self._made(plan, skeys, values) if is_worth_it else None
        if made is None:
            self._rest = _REST
        return made

    def _made(self, plan: _Plan, skeys: Sequence[Any], values: Sequence[Any]) -> KeySums | None:
        counts = Counter(skeys)
        if len(counts) * _LEAST_GAIN > len(skeys):
            return None
        parts = []
        for part in plan.parts:
            if isinstance(part, int):
                summed: list[int] | None = [part * count for count in counts.values()]
            else:
                summed = _summed(skeys, values, part)
            if summed is None:
                return None
            parts.append(summed)
        return KeySums(self, list(counts), parts)

    def are_added(self, sums: KeySums, table: dict[Any, Any]) -> bool:
        """As `KeySums.are_added_to`."""
        plan = self._plan
        assert plan is not None, "it has made these sums"
        before = list(map(table.get, sums.keys, repeat(plan.start)))
        added = _added(before, sums.parts, len(plan.parts) if type(plan.start) is tuple else None)
        if added is None:
            return False
        table.update(zip(sums.keys, added, strict=True))
        return True

    def _ready_plan(self) -> _Plan | None:
        if is_watched():
            return None
        if not self._is_read:
            # It is read when it is first needed: all that is outside of it has its values then.
            self._is_read = True
            with suppress(Refused):
                self._plan = _plan_of(self._create, self._add)
        plan = self._plan
        return plan if plan is not None and hold(plan.guards) else None


# ---------------------------------------------------------------------- what a function adds


def why_not_added(
    create: Callable[[], Any], add: Callable[[Any, Any], Any], *, has_overlaps: bool
) -> str:
    """Why a function adds record by record; empty: it does not. Its own code does not run. `has_overlaps`: a record is in many windows."""
    try:
        plan = _plan_of(create, add)
    except Refused as refused:
        return str(refused)
    return "" if has_overlaps or plan.is_count else "a sum needs windows that overlap"


def _plan_of(create: Callable[[], Any], add: Callable[[Any, Any], Any]) -> _Plan:
    """How a function adds. Its own code does not run. Raises: Refused: its accumulator is no sum."""
    first, guards = tree_of(create, 0)
    tree, others = tree_of(add, 2)
    start = _constant(first)
    if type(start) is not tuple:
        parts = [_part(tree, None)]
    elif tree.kind is Kind.TUPLE and len(tree.args) == len(start):
        parts = [_part(node, place) for place, node in enumerate(tree.args)]
    else:
        raise Refused("it returns another accumulator than it begins with")
    return _Plan(start, tuple(parts), (*guards, *others))


def _constant(tree: Node) -> Any:
    """A whole number, or a tuple of those. Raises: Refused."""
    if tree.kind is Kind.TUPLE and tree.args:
        return tuple(map(_constant, tree.args))
    value = tree.value if tree.kind in {Kind.CONSTANT, Kind.KNOWN} else None
    numbers = value if type(value) is tuple else (value,)
    if not numbers or set(map(type, numbers)) != _INT:
        raise Refused("its accumulator does not begin with whole numbers")
    return value


def _part(tree: Node, place: int | None) -> Part:
    """What a tree adds to the accumulator, or to its field at a place. Raises: Refused."""
    if tree.kind is not Kind.BINARY or tree.value != "+":
        raise Refused("its accumulator is no sum")
    one, other = tree.args
    if _is_accumulator(one, place):
        added = other
    elif _is_accumulator(other, place):
        added = one
    else:
        raise Refused("its accumulator is no sum")
    if added.kind in {Kind.CONSTANT, Kind.KNOWN} and type(added.value) is int:
        return int(added.value)
    is_field = added.kind in _FIELDS and _is_record(added.args[0])
    is_constant = added.kind is not Kind.ITEM or added.args[1].kind is Kind.CONSTANT
    if not (_is_record(added) or (is_field and is_constant)):
        raise Refused("it adds something else than a whole number or a field of the record")
    made = expression(added)
    found: Callable[[Sequence[Any]], list[Any]] = made.in_function(
        f"def run(values):\n    return [{made.text} for c0 in values]\n", "<what is added>"
    )
    return found


def _is_record(node: Node) -> bool:
    return node.kind is Kind.COLUMN and node.value == 0


def _is_accumulator(node: Node, place: int | None) -> bool:
    if place is None:
        return node.kind is Kind.COLUMN and node.value == 1
    if node.kind is not Kind.ITEM or node.args[1].kind is not Kind.CONSTANT:
        return False
    of, at = node.args[0], node.args[1].value
    return of.kind is Kind.COLUMN and of.value == 1 and type(at) is int and at == place


# ---------------------------------------------------------------------- adding


def _summed(
    skeys: Sequence[Any], values: Sequence[Any], part: Callable[[Sequence[Any]], list[Any]]
) -> list[int] | None:
    """What is added for each key; None: it is not all whole numbers, or cannot be told."""
    try:
        added = part(values)
    except Exception:  # The function itself raises it again, at its record.
        return None
    if classes_of(added) != _INT:
        return None
    sums: dict[Any, int] = {}
    get = sums.get
    for skey, one in zip(skeys, added, strict=True):
        sums[skey] = get(skey, 0) + one
    return list(sums.values())


def _added(before: list[Any], parts: list[list[int]], width: int | None) -> list[Any] | None:
    """The accumulators with what is added; None: some are no whole numbers, or no tuples of so many of those."""
    if width is None:
        return list(map(plus, before, parts[0])) if classes_of(before) == _INT else None
    if classes_of(before) != {tuple} or set(map(len, before)) != {width}:
        return None
    fields: Iterable[tuple[Any, ...]] = zip(*before, strict=True)
    made = []
    for field, part in zip(fields, parts, strict=True):
        if classes_of(field) != _INT:
            return None
        made.append(map(plus, field, part))
    return list(zip(*made, strict=True))
