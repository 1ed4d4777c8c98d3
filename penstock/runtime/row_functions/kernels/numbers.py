"""Arithmetic on vectors. Rows with a result that is not Python's are bad: overflow, a divisor of 0, a float that is no number.

Does not know trees. Source: the manual of Python; `//` and `%` of numpy round as Python's, which the random functions show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from penstock.runtime.row_functions.kernels.vectors import (
    EXACT,
    HIGHEST,
    LOWEST,
    Given,
    Mask,
    Run,
    Vector,
    either,
    unusable,
)

_SAFE: Final = 2.0**62
"""Products below it, computed as floats, are below 2**63."""


def as_ints(_given: Given, one: Vector) -> Vector:
    """Booleans as 0 and 1."""
    return Vector(one.data.astype(np.int64), one.nulls, one.bad, 0, 1)


def as_floats(_given: Given, one: Vector) -> Vector:
    """Whole numbers as floats, rounded as Python rounds them."""
    return Vector(one.data.astype(np.float64), one.nulls, one.bad)


def _wide(low: int, high: int) -> tuple[int | None, int | None]:
    """The bounds, if all between them fit."""
    return (low, high) if low >= LOWEST and high <= HIGHEST else (None, None)


def added(_given: Given, one: Vector, other: Vector) -> Vector:
    (low, high), (least, most) = one.bounds(), other.bounds()
    data = one.data + other.data
    bounds = _wide(low + least, high + most)
    over = None if bounds[0] is not None else ((one.data ^ data) & (other.data ^ data)) < 0
    return Vector(data, None, either(unusable(one, other), over), *bounds)


def subtracted(_given: Given, one: Vector, other: Vector) -> Vector:
    (low, high), (least, most) = one.bounds(), other.bounds()
    data = one.data - other.data
    bounds = _wide(low - most, high - least)
    over = None if bounds[0] is not None else ((one.data ^ other.data) & (one.data ^ data)) < 0
    return Vector(data, None, either(unusable(one, other), over), *bounds)


def multiplied(_given: Given, one: Vector, other: Vector) -> Vector:
    products = [a * b for a in one.bounds() for b in other.bounds()]
    data = one.data * other.data
    bounds = _wide(min(products), max(products))
    over = None
    if bounds[0] is None:
        size = np.abs(one.data.astype(np.float64) * other.data.astype(np.float64))
        over = size >= _SAFE
    return Vector(data, None, either(unusable(one, other), over), *bounds)


def _divisor(other: Vector) -> tuple[Any, Mask | None]:
    """The divisors, with 1 for 0, and where they are 0."""
    low, high = other.bounds()
    if low > 0 or high < 0:
        return other.data, None
    is_zero = other.data == 0
    return np.where(is_zero, 1, other.data), is_zero


def floor_divided(_given: Given, one: Vector, other: Vector) -> Vector:
    divisor, is_zero = _divisor(other)
    over = None
    if one.bounds()[0] == LOWEST:
        over = (one.data == LOWEST) & (other.data == -1)
        divisor = np.where(over, 1, divisor)
    data = np.floor_divide(one.data, divisor)
    return Vector(data, None, either(unusable(one, other), is_zero, over))


def remainder(_given: Given, one: Vector, other: Vector) -> Vector:
    divisor, is_zero = _divisor(other)
    # By 1 and by -1 nothing remains, and one of them overflows.
    divisor = np.where(divisor == -1, 1, divisor) if other.bounds()[0] < 0 else divisor
    data = np.remainder(one.data, divisor)
    return Vector(data, None, either(unusable(one, other), is_zero))


def is_inexact(vector: Vector) -> Mask | None:
    """Where a whole number may be another one as a float."""
    low, high = vector.bounds()
    if low >= -EXACT and high <= EXACT:
        return None
    found: Mask = (vector.data > EXACT) | (vector.data < -EXACT)
    return found


def divided_ints(given: Given, one: Vector, other: Vector) -> Vector:
    """Python divides whole numbers exactly, and rounds once."""
    bad = either(is_inexact(one), is_inexact(other), one.bad, other.bad)
    floats = [Vector(v.data.astype(np.float64), v.nulls, bad) for v in (one, other)]
    return divided_floats(given, *floats)


def divided_floats(_given: Given, one: Vector, other: Vector) -> Vector:
    data = np.true_divide(one.data, other.data)
    is_zero = other.data == 0
    return Vector(data, None, either(unusable(one, other), is_zero if is_zero.any() else None))


def _of_finite(operation: Callable[[Any, Any], Any]) -> Run:
    def run(_given: Given, one: Vector, other: Vector) -> Vector:
        is_usual = np.isfinite(one.data) & np.isfinite(other.data) & (other.data != 0)
        bad = unusable(one, other)
        if not is_usual.all():
            bad = either(bad, ~is_usual)
        return Vector(operation(one.data, other.data), None, bad)

    return run


def _of_floats(operation: Callable[[Any, Any], Any]) -> Run:
    return lambda _given, one, other: Vector(
        operation(one.data, other.data), None, unusable(one, other)
    )


INTS: Final[dict[str, Run]] = {
    "+": added, "-": subtracted, "*": multiplied, "//": floor_divided, "%": remainder,
    "&": _of_floats(np.bitwise_and), "|": _of_floats(np.bitwise_or),
    "^": _of_floats(np.bitwise_xor),
}  # fmt: skip
"""By operator, of two vectors of ints. Those on bits have no other errors than None."""
FLOATS: Final[dict[str, Run]] = {
    "+": _of_floats(np.add), "-": _of_floats(np.subtract), "*": _of_floats(np.multiply),
    "/": divided_floats, "//": _of_finite(np.floor_divide), "%": _of_finite(np.remainder),
}  # fmt: skip


def negative_int(_given: Given, one: Vector) -> Vector:
    low, high = one.bounds()
    over = one.data == LOWEST if low == LOWEST else None
    bounds = (None, None) if low == LOWEST else (-high, -low)
    return Vector(np.negative(one.data), None, either(unusable(one), over), *bounds)


def absolute_int(_given: Given, one: Vector) -> Vector:
    over = one.data == LOWEST if one.bounds()[0] == LOWEST else None
    return Vector(np.abs(one.data), None, either(unusable(one), over))


def of_one(operation: Callable[[Any], Any]) -> Run:
    """An operation on one vector that has no other errors than None."""
    return lambda _given, one: Vector(operation(one.data), None, unusable(one))


negative_float: Final = of_one(np.negative)
absolute_float: Final = of_one(np.abs)
inverted: Final = of_one(np.invert)


def int_of_bool(_given: Given, one: Vector) -> Vector:
    return Vector(one.data.astype(np.int64), None, unusable(one), 0, 1)


def same(_given: Given, one: Vector) -> Vector:
    """The value itself, if it is not None."""
    return Vector(one.data, None, unusable(one), one.low, one.high)


def to_int(rounded: Callable[[Any], Any]) -> Run:
    """Floats as whole numbers, once they are rounded."""

    def run(_given: Given, one: Vector) -> Vector:
        is_usual = np.abs(one.data) < _SAFE
        bad = unusable(one)
        if is_usual.all():
            return Vector(rounded(one.data).astype(np.int64), None, bad)
        data = rounded(np.where(is_usual, one.data, 0.0)).astype(np.int64)
        return Vector(data, None, either(bad, ~is_usual))

    return run


def square_root(_given: Given, one: Vector) -> Vector:
    return Vector(np.sqrt(one.data), None, either(unusable(one), one.data < 0))


def smaller(_given: Given, one: Vector, other: Vector) -> Vector:
    """`min` of two: the first one, unless the second one is smaller."""
    data = np.where(other.data < one.data, other.data, one.data)
    return Vector(data, None, unusable(one, other))


def larger(_given: Given, one: Vector, other: Vector) -> Vector:
    data = np.where(other.data > one.data, other.data, one.data)
    return Vector(data, None, unusable(one, other))
