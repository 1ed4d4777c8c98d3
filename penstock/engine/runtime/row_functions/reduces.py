"""Reduces that may combine their own results, proven by reading for every record.

Each field of a reduce's result is the sum, the minimum or the maximum of whole numbers, or the value of the first or
the last record: always of this same field of both records. Such a function gives the same however the records of a key
are grouped. Sums of floats depend on the order of additions, and so are not proven; nor are those of records without a declared type, which may be floats. Does not know operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.engine.model.row import Row
from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.codecs.base import Codec
from penstock.engine.runtime.codecs.by_type import RecordCodec, codec_of
from penstock.engine.runtime.codecs.convert import fields_of
from penstock.engine.runtime.elements import classes_of
from penstock.engine.runtime.row_functions.known_code import Guard, Refused, hold
from penstock.engine.runtime.row_functions.plans import tree_of
from penstock.engine.runtime.row_functions.trees import Kind, Node

_INT: Final = {int}


@dataclass(frozen=True, slots=True)
class CombiningProof:
    """What the proof needs of records. `record`: their class; None: they are single values. `numbers`: the fields that have to be ints."""

    guards: tuple[Guard, ...]
    record: type | None
    numbers: tuple[int, ...]

    def holds_for(self, values: Sequence[Any]) -> bool:
        """Whether each of these records is as the proof needs it."""
        if not hold(self.guards):
            return False
        if self.record is None:
            return not self.numbers or classes_of(values) <= _INT
        return classes_of(values) <= {self.record} and all(
            classes_of([value[place] for value in values]) <= _INT for place in self.numbers
        )


def combining_proof(
    call: Callable[[Any, Any], Any], type_info: TypeInformation | None
) -> CombiningProof | None:
    """Read whether a reduce of records of this type may combine its results; None: it is not proven."""
    codec = codec_of(type_info)
    if codec.arrow is None:  # Then records are not converted to the type before they are reduced.
        return None
    try:
        tree, guards = tree_of(call, (_record_node(codec, 0), _record_node(codec, 1)))
        fields = _result_fields(tree, codec)
        numbers = [place for place, node in enumerate(fields) if _is_number(node, place, codec)]
    except Refused:
        return None
    names = codec.row_names if isinstance(codec, RecordCodec) else None
    record = (tuple if names is None else Row) if isinstance(codec, RecordCodec) else None
    return CombiningProof(guards, record, tuple(numbers))


def _record_node(codec: Codec, index: int) -> Node:
    """The first or second record. A column's value is (record, field)."""
    columns = [Node(Kind.COLUMN, value=(index, place)) for place in range(len(fields_of(codec)))]
    if not isinstance(codec, RecordCodec):
        return columns[0]
    names = codec.row_names
    if names is None:
        return Node(Kind.TUPLE, tuple(columns))

    def field_of(field: int | str) -> Node:
        if isinstance(field, str) and field in names:
            return columns[names.index(field)]
        if isinstance(field, int) and -len(names) <= field < len(names):
            return columns[field]
        raise Refused(f"its records have no field {field!r}")

    return Node(Kind.RECORD, value=field_of)


def _result_fields(tree: Node, codec: Codec) -> tuple[Node, ...]:
    if not isinstance(codec, RecordCodec):
        return (tree,)
    is_row = codec.row_names is not None
    if tree.kind is not (Kind.ROW if is_row else Kind.TUPLE) or (
        len(tree.args) != len(codec.fields) or tree.value not in {None, codec.row_names}
    ):
        raise Refused("it returns other records than it gets")
    return tree.args


def _is_number(node: Node, place: int, codec: Codec) -> bool:
    """Whether this field has to be a whole number. Raises: Refused: the field is not proven."""
    if node.kind is Kind.COLUMN and node.value[1] == place:
        return False
    args: tuple[Node, ...] = ()
    if node.kind is Kind.BINARY and node.value == "+":
        args = node.args
    elif node.kind is Kind.CALL and not node.value and node.args[0].value in {min, max}:
        args = node.args[1:]
    both = [arg.value for arg in args if arg.kind is Kind.COLUMN]
    is_whole = pa.types.is_signed_integer(fields_of(codec)[place].arrow)
    if len(args) != 2 or sorted(both) != [(0, place), (1, place)] or not is_whole:
        raise Refused("it is no sum, minimum, maximum, first or last value of each field")
    return True
