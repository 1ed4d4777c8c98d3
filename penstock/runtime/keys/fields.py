"""KeyField: the column that has what a key selector gives, if reading one field is all that it does. Knows no batch.

Told by the selector's own bytecode, so that nothing is tried with records of ours: `lambda bid: bid[0]`, `lambda bid: bid["id"]`,
`lambda bid: bid.id`, the same as a function or method, and `operator`'s getters. What has one instruction more is no such selector.
Source: none; Flink's planner knows the fields of SQL keys, its DataStream API calls the selector.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, itemgetter
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from penstock.model.row import Row
from penstock.model.types import TypeInformation
from penstock.runtime.codec_base import Codec
from penstock.runtime.codecs import RecordCodec, codec_of

_OF_NO_EFFECT: Final = frozenset({"RESUME", "NOP"})
_LOADS_ARGUMENT: Final = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW"})
_LOADS_CONSTANT: Final = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})


@dataclass(frozen=True, slots=True)
class FieldRead:
    """`record[field]`, or `record.field` with `is_attribute`."""

    field: int | str
    is_attribute: bool = False

    def place_among(self, names: Sequence[str] | None, width: int) -> int | None:
        """Which field of such records it is. None: of none, or their class has something else of this name.

        Args: names: of Rows; None: the records are tuples. width: fields, count.
        """
        field = self.field
        if isinstance(field, int):
            return field % width if -width <= field < width else None
        if names is None or field not in names or (self.is_attribute and hasattr(Row, field)):
            return None
        return names.index(field)


class KeyField(NamedTuple):
    """A column of a stream's. `codec`: of its declared type; None: undeclared."""

    place: int
    codec: Codec | None


def key_field(
    selector: object, names: Sequence[str], type_info: TypeInformation | None
) -> KeyField | None:
    """Which column has what the selector gives of each record; None: none. `names`: of the columns of a stream of this type."""
    read = field_read(selector)
    codec = codec_of(type_info)
    if read is None:
        return None
    if codec.arrow is None:  # whatever there is, as Rows
        place = read.place_among(names, len(names))
        return None if place is None else KeyField(place, None)
    if not isinstance(codec, RecordCodec):
        return None
    place = read.place_among(codec.row_names, len(codec.fields))
    return None if place is None else KeyField(place, codec.fields[place])


def field_read(selector: object) -> FieldRead | None:
    """What this selector reads of a record; None: it does more than read one field, or nobody can tell."""
    kind = type(selector)
    if kind is itemgetter or kind is attrgetter:
        made_of: Any = selector.__reduce__()
        _, fields = made_of
        return _read_of(fields[0], kind is attrgetter) if len(fields) == 1 else None
    is_bound = isinstance(selector, MethodType)
    function = selector.__func__ if isinstance(selector, MethodType) else selector
    return (
        _read_by(function.__code__, int(is_bound)) if isinstance(function, FunctionType) else None
    )


def _read_of(field: Any, is_attribute: bool) -> FieldRead | None:
    if type(field) is int:
        return FieldRead(field)
    is_name = type(field) is str and not (is_attribute and "." in field)
    return FieldRead(field, is_attribute) if is_name else None


@lru_cache(maxsize=256)
def _read_by(code: CodeType, place: int) -> FieldRead | None:
    """`place`: of the record among the parameters."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _OF_NO_EFFECT]
    if not 3 <= len(steps) <= 4 or place >= code.co_argcount:
        return None
    first, *middle, last = steps
    if first.opname not in _LOADS_ARGUMENT or last.opname != "RETURN_VALUE":
        return None
    if first.argval != code.co_varnames[place]:
        return None
    if len(middle) == 1:
        return _read_of(middle[0].argval, True) if middle[0].opname == "LOAD_ATTR" else None
    constant, subscript = middle
    is_item = constant.opname in _LOADS_CONSTANT and _is_subscript(subscript)
    return _read_of(constant.argval, False) if is_item else None


def _is_subscript(step: dis.Instruction) -> bool:
    """`[...]`, which is one of many operators from Python 3.14 on."""
    return step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr == "[]")
