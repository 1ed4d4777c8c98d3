"""Counting: an aggregate that only counts adds the number of a key's records at once.

The records of sliding windows are counted once, and not for each of their windows. Only where reading shows that `add` returns the
accumulator and a constant whole number, and where the accumulators are whole numbers of Python's own: then no record decides what
comes out, and one addition gives what many give. Does not know operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from operator import add as plus
from typing import Any, Final

from penstock.engine.runtime.row_functions.interpreters import is_watched
from penstock.engine.runtime.row_functions.known_code import Guard, hold
from penstock.engine.runtime.row_functions.plans import tree_of
from penstock.engine.runtime.row_functions.refusals import Refused
from penstock.engine.runtime.row_functions.trees import Kind, Node
from penstock.engine.runtime.value_classes import classes_of

_LEAST_RECORDS: Final = 128
_LEAST_GAIN: Final = 4
"""Records of a key, on average. Fewer are quicker added one by one."""
_REST: Final = 16
"""Runs after one that had too many keys in which nothing is counted."""
_CONSTANTS: Final = frozenset({Kind.CONSTANT, Kind.KNOWN})
_INT: Final = {int}


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """What is added for each key. `start`: the first accumulator."""

    added: dict[Any, int]
    start: int

    def are_added_to(self, table: dict[Any, Any]) -> bool:
        """Add them to accumulators. False: nothing is added, for one of these is no whole number."""
        before = list(map(table.get, self.added, repeat(self.start)))
        if classes_of(before) != _INT:
            return False
        table.update(zip(self.added, map(plus, before, self.added.values()), strict=True))
        return True


class Counting:
    """What `add` of one aggregate function adds for each record, if it only counts."""

    def __init__(self, create: Callable[[], Any], add: Callable[[Any, Any], Any]) -> None:
        self._create, self._add = create, add
        self._steps: tuple[int, int, tuple[Guard, ...]] | None = None
        self._is_read = False
        self._rest = 0

    def counts(self, skeys: Sequence[Any]) -> KeyCounts | None:
        """What records with these state keys add; None: they have to be added one by one."""
        self._rest -= 1
        if len(skeys) < _LEAST_RECORDS or self._rest > 0 or is_watched():
            return None
        if not self._is_read:
            # It is read when it is first needed: all that is outside of it has its values then.
            self._is_read = True
            with suppress(Refused):
                self._steps = steps_of_count(self._create, self._add)
        if self._steps is None or not hold(self._steps[2]):
            return None
        start, step, _ = self._steps
        counts = Counter(skeys)
        if len(counts) * _LEAST_GAIN > len(skeys):
            self._rest = _REST
            return None
        if step != 1:
            counts = Counter({skey: step * count for skey, count in counts.items()})
        return KeyCounts(counts, start)


def steps_of_count(
    create: Callable[[], Any], add: Callable[[Any, Any], Any]
) -> tuple[int, int, tuple[Guard, ...]]:
    """The first accumulator of an aggregate, what it adds for each record, and what has to hold. Its own code does not run.

    Raises: Refused: it does something else than to count.
    """
    first, guards = tree_of(create, ())
    tree, others = tree_of(add, (Node(Kind.RECORD, value=_no_field), Node(Kind.COLUMN, value=0)))
    if first.kind not in _CONSTANTS or type(first.value) is not int:
        raise Refused("its accumulator does not begin with a whole number")
    parts = tree.args if tree.kind is Kind.BINARY and tree.value == "+" else ()
    added = [part.value for part in parts if part.kind in _CONSTANTS]
    if [part.kind for part in parts].count(Kind.COLUMN) != 1 or list(map(type, added)) != [int]:
        raise Refused("it does something else than to add a constant whole number")
    return first.value, added[0], (*guards, *others)


def _no_field(_field: int | str) -> Node:
    raise Refused("it reads a field of its record")
