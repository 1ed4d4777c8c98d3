"""KeyFields: the columns that hold a record's key, if the key selector only reads fields. Does not know batches.

The selector's bytecode shows what it reads; the selector is not called with test records. Recognised are `lambda bid: bid[0]`,
`lambda bid: bid["id"]`, `lambda bid: bid.id`, a tuple of such expressions, functions and methods with such a body, and
`itemgetter` and `attrgetter` of `operator`. A selector with any further instruction is not recognised, and none but the last two where
the bytecode of this interpreter is not known.
Source: none; Flink's planner knows the fields of SQL keys, its DataStream API calls the selector.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from operator import attrgetter, itemgetter
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from penstock.engine.model.row import Row
from penstock.engine.model.types import TupleTypeInfo, TypeInformation
from penstock.engine.runtime.codecs.base import Codec
from penstock.engine.runtime.codecs.by_type import RecordCodec, codec_of
from penstock.engine.runtime.row_functions.interpreters import READS_BYTECODE, steps_of

_OF_NO_EFFECT: Final = frozenset({"RESUME", "NOP"})


@dataclass(frozen=True, slots=True)
class FieldRead:
    """`record[field]`, or `record.field` with `is_attribute`."""

    field: int | str
    is_attribute: bool = False

    def place_among(self, names: Sequence[str] | None, width: int) -> int | None:
        """The index of the field in such records. None: they do not have it, or the class Row has another attribute of this name.

        Args: names: of the fields of Rows; None: the records are tuples. width: number of fields.
        """
        field = self.field
        if isinstance(field, int):
            return field % width if -width <= field < width else None
        if names is None or field not in names or (self.is_attribute and hasattr(Row, field)):
            return None
        return names.index(field)


@dataclass(frozen=True, slots=True)
class KeyRead:
    """What a selector reads: one field, or a tuple of fields (`is_tuple`)."""

    fields: tuple[FieldRead, ...]
    is_tuple: bool = False


class KeyField(NamedTuple):
    """A column of a stream. `codec`: of its declared type; None: undeclared."""

    place: int
    codec: Codec | None


class KeyFields(NamedTuple):
    """The columns with a key's values: one column with the key itself, or (`is_tuple`) one column for each of its items."""

    fields: tuple[KeyField, ...]
    is_tuple: bool

    def is_of(self, key_type: TypeInformation) -> bool:
        """Whether this declared type of the key neither converts nor refuses any value of these columns."""
        types = [field.codec.type_info if field.codec else None for field in self.fields]
        if not self.is_tuple:
            return types == [key_type]
        return isinstance(key_type, TupleTypeInfo) and types == key_type.get_field_types()


def key_fields(
    selector: object, names: Sequence[str], type_info: TypeInformation | None
) -> KeyFields | None:
    """The columns that hold the key which the selector returns; None: there are none. `names`: of the columns of a
    stream of this type.
    """
    read = key_read(selector)
    codec = codec_of(type_info)
    if read is None:
        return None
    row_names: Sequence[str] | None
    codecs: Sequence[Codec | None]
    # Undeclared columns are read as Rows, whatever their types.
    if codec.arrow is None:
        row_names, codecs = names, [None] * len(names)
    elif isinstance(codec, RecordCodec):
        row_names, codecs = codec.row_names, codec.fields
    else:
        return None
    found = []
    for field in read.fields:
        place = field.place_among(row_names, len(codecs))
        if place is None:
            return None
        found.append(KeyField(place, codecs[place]))
    return KeyFields(tuple(found), read.is_tuple)


def key_read(selector: object) -> KeyRead | None:
    """What this selector reads of a record; None: it does more than read fields, or its code cannot be read."""
    kind = type(selector)
    if kind is itemgetter or kind is attrgetter:
        made_of: Any = selector.__reduce__()
        _, fields = made_of
        return _read_of([(field, kind is attrgetter) for field in fields], len(fields) > 1)
    if not READS_BYTECODE:
        return None
    is_bound = isinstance(selector, MethodType)
    function = selector.__func__ if isinstance(selector, MethodType) else selector
    return (
        _read_by(function.__code__, int(is_bound)) if isinstance(function, FunctionType) else None
    )


def _read_of(accesses: Sequence[tuple[Any, bool]], is_tuple: bool) -> KeyRead | None:
    """`accesses`: (index or name, whether it is read as an attribute)."""
    for field, is_attribute in accesses:
        is_name = type(field) is str and not (is_attribute and "." in field)
        if not (is_name or type(field) is int):
            return None
    return KeyRead(tuple(starmap(FieldRead, accesses)), is_tuple)


@lru_cache(maxsize=256)
def _read_by(code: CodeType, place: int) -> KeyRead | None:
    """`place`: position of the record among the parameters."""
    steps = [step for step in steps_of(code) if step.opname not in _OF_NO_EFFECT]
    if place >= code.co_argcount or steps.pop().opname != "RETURN_VALUE":
        return None
    record, accesses = code.co_varnames[place], []
    count = None
    if steps and steps[-1].opname == "BUILD_TUPLE":
        count = steps.pop().argval
    while steps:
        load = steps.pop(0)
        access = _access_at(steps)
        if load.opname != "LOAD_FAST" or load.argval != record or access is None:
            return None
        accesses.append(access)
    if len(accesses) != (1 if count is None else count):
        return None
    return _read_of(accesses, count is not None)


def _access_at(steps: list[dis.Instruction]) -> tuple[Any, bool] | None:
    """Take one access off `steps`: (index or name, whether it is an attribute). None: the next step is something else."""
    if steps and steps[0].opname == "LOAD_ATTR":
        return steps.pop(0).argval, True
    if [step.opname for step in steps[:2]] != ["LOAD_CONST", "BINARY_SUBSCR"]:
        return None
    field = steps.pop(0).argval
    steps.pop(0)
    return field, False
