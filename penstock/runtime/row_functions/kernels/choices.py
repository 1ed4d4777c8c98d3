"""Comparisons, truth, None, and one of two values, on vectors. Does not know trees."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.row_functions.kernels.numbers import is_inexact
from penstock.runtime.row_functions.kernels.vectors import (
    Given,
    Mask,
    Of,
    Run,
    Vector,
    all_of,
    as_mask,
    either,
    texts_of,
    unusable,
    where,
)

_NUMBERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_TEXTS: Final[dict[str, Any]] = {
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
    "==": pc.equal, "!=": pc.not_equal,
}  # fmt: skip
COMPARISONS: Final = frozenset(_NUMBERS)


def flags(array: pa.Array) -> Mask:
    """A boolean column; null counts as False."""
    if array.null_count:
        array = array.fill_null(False)
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found


def compared_texts(symbol: str) -> Run:
    """Texts in UTF-8 have the order of their code points."""
    call = _TEXTS[symbol]

    def run(_given: Given, one: Vector, other: Vector) -> Vector:
        return _with_nulls(symbol, flags(call(one.data, other.data)), one, other)

    return run


def compared_numbers(symbol: str) -> Run:
    """Ints with ints, or floats with floats; an int that is compared with a float comes out of `exact`."""
    call = _NUMBERS[symbol]

    def run(_given: Given, one: Vector, other: Vector) -> Vector:
        return _with_nulls(symbol, call(one.data, other.data), one, other)

    return run


def exact(_given: Given, one: Vector) -> Vector:
    """Ints as floats, to be compared with floats. Python compares both exactly."""
    bad = either(one.bad, is_inexact(one))
    return Vector(one.data.astype(np.float64), one.nulls, bad)


def _with_nulls(symbol: str, data: Any, one: Vector, other: Vector) -> Vector:
    nulls = either(one.nulls, other.nulls)
    if nulls is None:
        return Vector(data, None, either(one.bad, other.bad))
    if symbol not in {"==", "!="}:
        return Vector(data, None, unusable(one, other))
    if one.nulls is None or other.nulls is None:
        are_equal: Any = False
    else:
        are_equal = one.nulls & other.nulls
    same = are_equal if symbol == "==" else ~np.asarray(are_equal)
    return Vector(np.where(nulls, same, data), None, either(one.bad, other.bad))


def truth(kind: Of) -> Run:
    """`bool(value)`, as BOOL. None is false."""

    def run(given: Given, one: Vector) -> Vector:
        data = _TRUTH[kind](given, one.data)
        if one.nulls is not None:
            return Vector(data & ~one.nulls, None, one.bad)
        return Vector(data, None, one.bad)

    return run


_TRUTH: Final[dict[Of, Callable[[Given, Any], Any]]] = {
    Of.BOOL: lambda _given, data: data,
    Of.INT: lambda _given, data: data != 0,
    Of.FLOAT: lambda _given, data: data != 0,
    Of.TEXT: lambda given, data: flags(pc.not_equal(texts_of(given, Vector(data)), "")),
    Of.NOTHING: lambda _given, data: data,
}


def negated(_given: Given, one: Vector) -> Vector:
    """Of BOOL without None, as `truth` gives it."""
    return Vector(~one.data, None, one.bad)


def is_none(given: Given, one: Vector) -> Vector:
    data = all_of(given, is_true=False) if one.nulls is None else one.nulls
    return Vector(data, None, one.bad)


def always(*, is_true: bool) -> Run:
    """The same for all rows, whose value is still computed: it may fail."""
    return lambda given, one: Vector(all_of(given, is_true), None, one.bad)


def is_flag(is_true: bool) -> Run:
    """`value is True` or `value is False`, of BOOL."""

    def run(given: Given, one: Vector) -> Vector:
        data = as_mask(given, one.data if is_true else ~one.data)
        return Vector(data if one.nulls is None else data & ~one.nulls, None, one.bad)

    return run


def is_not_none(given: Given, one: Vector) -> Vector:
    return negated(given, is_none(given, one))


def among_numbers(values: Collection[int]) -> Run:
    wanted = pa.array(sorted(values), pa.int64())

    def run(_given: Given, one: Vector) -> Vector:
        return Vector(flags(pc.is_in(pa.array(one.data), wanted)), None, unusable(one))

    return run


def among_texts(values: Collection[str]) -> Run:
    wanted = pa.array(sorted(values), pa.string())

    def run(given: Given, one: Vector) -> Vector:
        return Vector(flags(pc.is_in(texts_of(given, one), wanted)), None, unusable(one))

    return run


def chosen(kind: Of) -> Run:
    """`then if condition else other`; both are of this class, or NOTHING. The condition comes as `truth` gives it."""

    def run(given: Given, condition: Vector, then: Vector, other: Vector) -> Vector:
        is_met = as_mask(given, condition.data)
        bad = either(condition.bad, where(is_met, then.bad, other.bad))
        nulls = where(is_met, then.nulls, other.nulls)
        if kind is Of.TEXT:
            data = pc.if_else(pa.array(is_met), then.data, other.data)
            return Vector(data, nulls, bad)
        low = high = None
        if kind is Of.INT:
            (low, high), (least, most) = then.bounds(), other.bounds()
            low, high = min(low, least), max(high, most)
        return Vector(np.where(is_met, then.data, other.data), nulls, bad, low, high)

    return run


def nothing(kind: Of) -> Run:
    """None for all rows, as a vector of this class."""
    data: Any = {Of.INT: np.int64(0), Of.FLOAT: np.float64(0), Of.BOOL: np.bool_(False)}.get(kind)

    def run(given: Given, one: Vector) -> Vector:
        made = pa.scalar(None, pa.string()) if data is None else data
        bounds = (0, 0) if kind is Of.INT else (None, None)
        return Vector(made, all_of(given, is_true=True), one.bad, *bounds)

    return run


def after(_given: Given, first: Vector, result: Vector) -> Vector:
    """The second one; the rows at which the first one fails are bad too."""
    bad = either(first.bad, result.bad)
    return Vector(result.data, result.nulls, bad, result.low, result.high)
