"""Kernel: one function, or several that follow each other, as steps on whole columns. Does not know operators.

It gives a value for each row, and tells for which rows it does not know it: these rows have to go through the function itself. Source:
none; anchor: Tuplex (SIGMOD 2021), whose general code takes the rows that the compiled code refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.model import types as t
from penstock.runtime.codecs.by_type import RecordCodec, codec_of
from penstock.runtime.codecs.convert import arrow_schema, fields_of, is_columnar
from penstock.runtime.elements import ColumnBatch
from penstock.runtime.row_functions.kernels.building import Builder
from penstock.runtime.row_functions.kernels.values import Result, Value
from penstock.runtime.row_functions.kernels.vectors import (
    Given,
    Mask,
    Of,
    Run,
    Vector,
    as_mask,
    either,
    kind_of,
)
from penstock.runtime.row_functions.known_code import has_own_containers
from penstock.runtime.row_functions.plans import Fields
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.trees import Node


@dataclass(frozen=True, slots=True)
class Made:
    """What a kernel gives for a batch. `columns`: an array for each field of the results. `kept`: rows that have a result; None: all.
    `bad`: rows to which neither applies; None: there are none.
    """

    columns: list[pa.Array]
    kept: Mask | None
    bad: Mask | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """`steps`: what is computed, and of which former steps. `result`: what comes out. `types`: of its fields in Arrow."""

    steps: tuple[tuple[Run, tuple[int, ...]], ...]
    result: Result
    types: tuple[pa.DataType, ...]

    def run(self, batch: ColumnBatch) -> Made:
        """Compute all rows; there is at least one."""
        given = Given(batch)
        vectors = self._vectors(given)
        columns, bad = [], None
        for value, kind in zip(self.result.fields, self.types, strict=True):
            column, wrong = _column(given, vectors[value.at], value, kind)
            columns.append(column)
            bad = either(bad, wrong)
        keeps = self.result.keeps
        if keeps is None:
            return Made(columns, None, _any(given, bad))
        found = vectors[keeps.at]
        kept = as_mask(given, found.data)
        # Nobody computes the fields of what is dropped.
        wrong = None if bad is None else bad & kept
        return Made(columns, kept, _any(given, either(found.bad, wrong)))

    def _vectors(self, given: Given) -> list[Vector]:
        made: list[Vector] = []
        # Where numpy would warn, a row is bad, or Python does not warn.
        with np.errstate(all="ignore"):
            for run, arguments in self.steps:
                made.append(run(given, *[made[at] for at in arguments]))
        return made


def _any(given: Given, mask: Mask | None) -> Mask | None:
    """A mask that is true somewhere; None: it is not."""
    if mask is None:
        return None
    mask = as_mask(given, mask)
    return mask if mask.any() else None


def kernel_of(tree: Node, given: Fields, kind: t.TypeInformation | None) -> Kernel:
    """The kernel of a function whose results are records of a declared type. `given`: of the records. Raises: Refused."""
    if kind is None or not is_columnar(kind):
        raise Refused("its results have no declared type")
    builder = Builder(given.types)
    result = builder.result(tree)
    codec = codec_of(kind)
    _check_shape(result, kind)
    fields = fields_of(codec)
    if len(fields) != len(result.fields):
        raise Refused("it returns another number of fields than declared")
    result = _in_order(result, codec)
    for value, field in zip(result.fields, fields, strict=True):
        _check_field(value, field.type_info, given)
    return Kernel(tuple(builder.steps), result, tuple(arrow_schema(kind).types))


def filter_of(tree: Node, types: list[pa.DataType]) -> Kernel:
    """The kernel of a filter. It gives no columns, and `kept`. Raises: Refused."""
    builder = Builder(types)
    keeps = builder.flag(tree)
    return Kernel(tuple(builder.steps), Result((), 0, is_row=False, names=None, keeps=keeps), ())


def plain_kernel_of(tree: Node, types: list[pa.DataType]) -> Kernel:
    """The kernel of a function whose results have no declared type. Raises: Refused."""
    builder = Builder(types)
    result = builder.result(tree)
    kinds = tuple(
        _ARROW[value.of] if value.column is None else types[value.column] for value in result.fields
    )
    return Kernel(tuple(builder.steps), result, kinds)


def _check_shape(result: Result, kind: t.TypeInformation) -> None:
    codec = codec_of(kind)
    is_record = isinstance(codec, RecordCodec)
    if not is_record and result.width is not None:
        raise Refused(f"it returns records, and {kind} is declared")
    if is_record and result.width is None:
        raise Refused(f"it returns values, and {kind} is declared")
    takes_row = isinstance(codec, RecordCodec) and codec.row_names is not None
    is_taken = not is_record or result.is_row == takes_row or (takes_row and kind.takes_tuples)
    if not is_taken:
        raise Refused(f"it returns another class of records than {kind}")


def _in_order(result: Result, codec: Any) -> Result:
    """The result with its fields in the order of the type's names."""
    names = result.names
    if names is None or names == codec.names:
        return result
    if set(names) != set(codec.names):
        raise Refused("it returns Rows with other names than declared")
    fields = tuple(result.fields[names.index(name)] for name in codec.names)
    return Result(fields, result.width, result.is_row, codec.names, result.keeps)


_TAKEN: Final = {
    t.BasicType.LONG: {Of.INT, Of.NOTHING},
    t.BasicType.INT: {Of.INT, Of.NOTHING},
    t.BasicType.SHORT: {Of.INT, Of.NOTHING},
    t.BasicType.BYTE: {Of.INT, Of.NOTHING},
    t.BasicType.DOUBLE: {Of.FLOAT, Of.INT, Of.NOTHING},
    t.BasicType.BOOLEAN: {Of.BOOL, Of.NOTHING},
    t.BasicType.STRING: {Of.TEXT, Of.NOTHING},
}
_ARROW: Final = {
    Of.INT: pa.int64(), Of.FLOAT: pa.float64(), Of.BOOL: pa.bool_(), Of.TEXT: pa.string(),
    Of.NOTHING: pa.null(),
}  # fmt: skip


def _check_field(value: Value, kind: Any, given: Fields) -> None:
    """Raises: Refused: values of this class would be converted in Python."""
    taken: set[Of] = set()
    if isinstance(kind, t.BasicTypeInfo):
        taken = _TAKEN.get(kind.basic_type, set())
    if value.of not in taken and not (value.of is Of.OTHER and _is_passed_on(value, kind, given)):
        raise Refused(f"no kernel makes a field of type {kind} of {value.of}")


def _is_passed_on(value: Value, kind: t.TypeInformation, given: Fields) -> bool:
    """Whether the column is that of the results, too."""
    place, arrow = value.column, codec_of(kind).arrow
    if place is None or given.types[place] != arrow:
        return False
    is_same = given.kind(place) == kind
    return bool(pa.types.is_binary(arrow)) or (is_same and has_own_containers(kind, arrow))


def _column(
    given: Given, vector: Vector, value: Value, kind: pa.DataType
) -> tuple[pa.Array, Mask | None]:
    """A vector as a column of a type, and the rows that it does not hold."""
    if value.column is not None:
        column = given.batch.column(value.column)
        if column.type == kind:
            return column, vector.bad
    if value.of is Of.NOTHING:
        return pa.nulls(len(given), kind), vector.bad
    if value.of is Of.TEXT:
        data = vector.data
        return (pa.repeat(data, len(given)) if isinstance(data, pa.Scalar) else data), vector.bad
    data, bad = np.broadcast_to(vector.data, len(given)), vector.bad
    if value.of is Of.INT and kind_of(kind) is Of.INT and kind.bit_width < 64:
        low, high = vector.bounds()
        most = (1 << (kind.bit_width - 1)) - 1
        if low < -most - 1 or high > most:
            is_over = (data > most) | (data < -most - 1)
            bad, data = either(bad, is_over), np.where(is_over, 0, data)
    nulls = None if vector.nulls is None else as_mask(given, vector.nulls)
    return pa.array(data.astype(_dtype_of(kind), copy=False), kind, mask=nulls), bad


def _dtype_of(kind: pa.DataType) -> np.dtype[Any]:
    """Of a column of whole numbers, doubles or booleans. pyarrow tells it with pandas only, before version 26."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    letter = "f" if pa.types.is_floating(kind) else "i"
    return np.dtype(f"{letter}{kind.bit_width // 8}")
