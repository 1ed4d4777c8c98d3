"""Partial aggregates: a reduce whose fields are sums, minima, maxima, first and last values combines the records of a key in columns first.

Only where the result is exactly that of the function, record by record: sums, minima and maxima of whole numbers without None, whose sums
stay below 64 bits, and fields that are taken over. Sums of floats depend on the order of additions, so floats are only taken over. A
record that stands for several of a key then goes through the function as if it had come itself. Does not know operators. Source: combiners
of MapReduce (OSDI 2004); here read from the function's bytecode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.model.types import TypeInformation
from penstock.runtime.codecs.by_type import RecordCodec, codec_of
from penstock.runtime.codecs.convert import fields_of, is_as_declared, rows_of_fields
from penstock.runtime.elements import ColumnBatch, Int64s
from penstock.runtime.row_functions.inlining import tree_of
from penstock.runtime.row_functions.interpreters import is_watched
from penstock.runtime.row_functions.known_code import Guard, hold
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.trees import Kind, Node

LEAST_GAIN: Final = 2
"""Off for batches in which a key has fewer records than that, on average."""
_LIMIT: Final = 2**63
Places = NDArray[np.int64]


class How(StrEnum):
    """What a reduce makes of a field of two records."""

    FIRST = "first"
    LAST = "last"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


_REDUCE: Final[dict[How, Any]] = {How.SUM: np.add, How.MIN: np.minimum, How.MAX: np.maximum}


@dataclass(frozen=True, slots=True)
class Combining:
    """What a reduce makes of each field of records of one type. `why_not`: why it does not combine in columns."""

    hows: tuple[How, ...]
    guards: tuple[Guard, ...] = ()
    why_not: str = ""

    def depends_on_order(self, keys: Sequence[int]) -> bool:
        """Whether it matters which record of a key comes first. `keys`: the places of the key's fields."""
        others = {how for place, how in enumerate(self.hows) if place not in keys}
        return bool({How.FIRST, How.LAST} & others)


def combining_of(call: Callable[[Any, Any], Any], kind: TypeInformation | None) -> Combining:
    """How a reduce combines records of a declared type. Its own code does not run."""
    codec = codec_of(kind)
    if not isinstance(codec, RecordCodec) or codec.arrow is None:
        return Combining((), why_not="its records have no declared type with columns")
    try:
        tree, guards = tree_of(call, 2)
        return Combining(_hows(tree, codec), guards)
    except Refused as refused:
        return Combining((), why_not=str(refused))


def _hows(tree: Node, codec: RecordCodec) -> tuple[How, ...]:
    names = codec.row_names
    if tree.kind is not (Kind.TUPLE if names is None else Kind.ROW):
        raise Refused("it returns another class of records than it gets")
    if len(tree.args) != len(codec.fields) or (names is not None and tree.value != names):
        raise Refused("it returns records with other fields than it gets")
    return tuple(_how(node, place, codec) for place, node in enumerate(tree.args))


def _how(node: Node, place: int, codec: RecordCodec) -> How:
    """What becomes of the field at a place. Raises: Refused."""
    record = _record_of(node, place, codec)
    if record is not None:
        return How.LAST if record else How.FIRST
    how, args = None, node.args
    if node.kind is Kind.BINARY and node.value == "+":
        how = How.SUM
    elif node.kind is Kind.CALL and not node.value and len(node.args) == 3:
        how, args = {min: How.MIN, max: How.MAX}.get(node.args[0].value), node.args[1:]
    if how is None or {_record_of(one, place, codec) for one in args} != {0, 1}:
        raise Refused("it is no sum, minimum, maximum, first or last value of each field")
    if not pa.types.is_signed_integer(codec.fields[place].arrow):
        raise Refused(f"it is the {how} of a field that is no whole number")
    return how


def _record_of(node: Node, place: int, codec: RecordCodec) -> int | None:
    """Whose field at this place it is: 0 of the first, 1 of the second record; None: it is something else."""
    if node.kind is Kind.ATTRIBUTE and codec.row_names is not None:
        field: Any = node.value
    elif node.kind is Kind.ITEM and node.args[1].kind is Kind.CONSTANT:
        field = node.args[1].value
    else:
        return None
    of = node.args[0]
    names = codec.row_names or ()
    is_place = type(field) is int and (field == place or field == place - len(codec.fields))
    is_name = type(field) is str and place < len(names) and names[place] == field
    return int(of.value) if of.kind is Kind.COLUMN and (is_place or is_name) else None


@dataclass(frozen=True, slots=True)
class Combined:
    """One record for each group. `first`: the index of the group's first record. `values`: the records."""

    first: Places
    values: list[Any]


class Combiner:
    """Combines batches for one reduce."""

    def __init__(self, call: Callable[[Any, Any], Any]) -> None:
        self._call = call
        self._known: dict[int, tuple[TypeInformation, Combining]] = {}

    def combining(self, kind: TypeInformation | None) -> Combining | None:
        """How records of a type are combined; None: they are not, or somebody watches the function's calls."""
        if kind is None or is_watched():
            return None
        known = self._known.get(id(kind))
        if known is None:
            known = self._known[id(kind)] = kind, combining_of(self._call, kind)
        found = known[1]
        return found if not found.why_not and hold(found.guards) else None

    def combined(
        self, batch: ColumnBatch, kind: TypeInformation, groups: Int64s
    ) -> Combined | None:
        """One record for each group, in the order in which they begin; None: the records are needed.

        Args: groups: a number for each record, 0 or more, shape (len(batch),).
        """
        combining = self.combining(kind)
        is_of_type = is_as_declared(batch.schema, kind)
        if combining is None or not is_of_type or not _are_exact(batch, combining):
            return None
        order, starts, first = _grouped(groups)
        if len(starts) * LEAST_GAIN > len(batch):
            return None
        ends = np.append(starts[1:], len(order)) - 1
        lists = []
        for place, (how, codec) in enumerate(
            zip(combining.hows, fields_of(codec_of(kind)), strict=True)
        ):
            array = batch.column(place)
            if how in _REDUCE:
                numbers = array.to_numpy().astype(np.int64, copy=False)[order]
                lists.append(_REDUCE[how].reduceat(numbers, starts).tolist())
            else:
                places = order[starts if how is How.FIRST else ends]
                lists.append(codec.from_array(array.take(pa.array(places))))
        few = ColumnBatch(batch.data.slice(0, len(starts)))
        by_start = np.argsort(first, kind="stable")
        values = rows_of_fields(few, kind, lists).values
        return Combined(first[by_start], [values[at] for at in by_start.tolist()])


def _are_exact(batch: ColumnBatch, combining: Combining) -> bool:
    """Whether all sums, minima and maxima are of numbers that numpy reduces as Python does."""
    for place, how in enumerate(combining.hows):
        if how not in _REDUCE:
            continue
        array = batch.column(place)
        if array.null_count:
            return False
        if how is How.SUM:
            numbers = array.to_numpy()
            most = max(abs(int(numbers.min())), abs(int(numbers.max())))
            if most * len(numbers) >= _LIMIT:
                return False
    return True


def _grouped(groups: Int64s) -> tuple[Places, Places, Places]:
    """The records by group, each group's in their order: their places, where in these each group starts, and its first record."""
    small = groups.astype(np.uint16) if int(groups.max()) < 1 << 16 else groups
    order = np.argsort(small, kind="stable")
    by_group = groups[order]
    starts = np.flatnonzero(np.concatenate(([True], by_group[1:] != by_group[:-1])))
    return order, starts, order[starts]
