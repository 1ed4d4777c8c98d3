"""Vectors: the values of one operation for all rows of a batch, with what is known about them. Does not know operations.

Source: none; anchor: validity bitmaps of Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.elements import ColumnBatch

Mask: TypeAlias = NDArray[np.bool_]
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1
EXACT: Final = 2**53
"""Whole numbers up to here are the same as floats."""


class Of(StrEnum):
    """The class of a vector's values in Python."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "str"
    NOTHING = "None"
    OTHER = "another class"
    """It can only be passed on."""


@dataclass(slots=True)
class Vector:
    """`data`: INT, FLOAT and BOOL: a numpy array of int64, float64 or bool, shape (rows,). TEXT, OTHER: an Arrow array. Of a constant: one
    numpy or Arrow scalar.

    `nulls`: where the value is None; None: nowhere. `bad`: rows whose value or error has to come from the function; None: none. What `data`
    has in these rows does not matter. `low`, `high`: no int in `data` is outside of them; None: not known yet.
    """

    data: Any
    nulls: Mask | None = None
    bad: Mask | None = None
    low: int | None = None
    high: int | None = None

    def bounds(self) -> tuple[int, int]:
        """The bounds of ints."""
        if self.low is None or self.high is None:
            self.low, self.high = int(self.data.min()), int(self.data.max())
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Given:
    """A batch with at least one row."""

    batch: ColumnBatch

    def __len__(self) -> int:
        return len(self.batch)


Run: TypeAlias = Callable[..., Vector]
"""`(given, *arguments) -> result`. Raises nothing for any value of the arguments."""


def either(*masks: Mask | None) -> Mask | None:
    """Where one of the masks is true. None stands for one that is true nowhere."""
    found: Mask | None = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found | mask
    return found


def unusable(*vectors: Vector) -> Mask | None:
    """The bad rows of an operation that None has not, or where Python raises."""
    return either(*(mask for one in vectors for mask in (one.bad, one.nulls)))


def where(condition: Mask | np.bool_, then: Mask | None, other: Mask | None) -> Mask | None:
    """One of two masks by row."""
    found: Mask
    if then is None:
        if other is None:
            return None
        found = ~condition & other
    else:
        found = condition & then if other is None else np.where(condition, then, other)
    return found


def kind_of(arrow: pa.DataType) -> Of:
    """The class of the values of such a column."""
    is_of = pa.types
    if is_of.is_integer(arrow) and arrow != pa.uint64():
        return Of.INT
    if is_of.is_float64(arrow) or is_of.is_float32(arrow):
        return Of.FLOAT
    if is_of.is_boolean(arrow):
        return Of.BOOL
    return Of.TEXT if is_of.is_string(arrow) else Of.OTHER


_NUMPY: Final = {Of.INT: np.int64, Of.FLOAT: np.float64, Of.BOOL: np.bool_}
_FILLS: Final = {Of.INT: 0, Of.FLOAT: 0.0, Of.BOOL: False}


def of_column(array: pa.Array, kind: Of) -> Vector:
    """The vector of a column."""
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if kind in {Of.TEXT, Of.OTHER}:
        return Vector(array, nulls)
    if nulls is not None:
        array = array.fill_null(pa.scalar(_FILLS[kind], array.type))
    data = array.to_numpy(zero_copy_only=False)
    return Vector(data.astype(_NUMPY[kind], copy=False), nulls)


def of_constant(value: Any) -> tuple[Of, Vector] | None:
    """The vector of a constant; None: there is none for its class, or its size."""
    kind = type(value)
    if value is None:
        return Of.NOTHING, Vector(np.bool_(False))
    if kind is int and LOWEST <= value <= HIGHEST:
        return Of.INT, Vector(np.int64(value), low=value, high=value)
    if kind is float:
        return Of.FLOAT, Vector(np.float64(value))
    if kind is bool:
        return Of.BOOL, Vector(np.bool_(value))
    if kind is str and _is_unicode(value):
        return Of.TEXT, Vector(pa.scalar(value, pa.string()))
    return None


def _is_unicode(text: str) -> bool:
    """Whether Arrow can hold it: it has no surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def spread(given: Given, vector: Vector) -> Vector:
    """A constant as a vector with a value for each row."""
    if isinstance(vector.data, pa.Scalar):
        return Vector(pa.repeat(vector.data, len(given)), vector.nulls, vector.bad)
    data = np.full(len(given), vector.data)
    return Vector(data, vector.nulls, vector.bad, vector.low, vector.high)


def all_of(given: Given, is_true: bool | np.bool_) -> Mask:
    """The same for all rows."""
    return np.full(len(given), is_true)


def as_mask(given: Given, data: Any) -> Mask:
    """A mask, also where it is the same for all rows."""
    found: Mask = np.broadcast_to(data, len(given))
    return found


def texts_of(given: Given, vector: Vector) -> pa.Array:
    """Texts as an array, also of a constant."""
    data = vector.data
    return pa.repeat(data, len(given)) if isinstance(data, pa.Scalar) else data
