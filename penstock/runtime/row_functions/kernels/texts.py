"""Operations on vectors of texts. Where Arrow and Python agree only on ASCII, rows with other characters are bad. Does not know trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.row_functions.kernels.choices import flags
from penstock.runtime.row_functions.kernels.vectors import (
    Given,
    Mask,
    Run,
    Vector,
    as_mask,
    either,
    texts_of,
    unusable,
)

_SPACE: Final = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
"""What `str.strip` removes of ASCII."""


def _not_ascii(array: pa.Array) -> Mask | None:
    is_ascii = flags(pc.string_is_ascii(array))
    return None if is_ascii.all() else ~is_ascii


def of_ascii(call: Callable[[pa.Array], pa.Array]) -> Run:
    """An operation that is Python's on ASCII."""

    def run(given: Given, one: Vector) -> Vector:
        array = texts_of(given, one)
        bad = either(unusable(one), _not_ascii(array))
        return Vector(call(array), None, bad)

    return run


def of_texts(call: Callable[[pa.Array], pa.Array]) -> Run:
    """An operation that is Python's on any text."""
    return lambda given, one: Vector(call(texts_of(given, one)), None, unusable(one))


def tests(call: Callable[[pa.Array], pa.Array]) -> Run:
    """A question about any text, with BOOL as the answer."""
    return lambda given, one: Vector(flags(call(texts_of(given, one))), None, unusable(one))


def length(given: Given, one: Vector) -> Vector:
    counted = pc.fill_null(pc.utf8_length(texts_of(given, one)), 0)
    return Vector(counted.to_numpy(zero_copy_only=False).astype(np.int64), None, unusable(one))


def joined(given: Given, *parts: Vector) -> Vector:
    """Texts one behind the other."""
    arrays = [texts_of(given, part) for part in parts]
    empty = pa.scalar("", pa.string())
    return Vector(pc.binary_join_element_wise(*arrays, empty), None, unusable(*parts))


def text_of_int(_given: Given, one: Vector) -> Vector:
    return Vector(pc.cast(pa.array(one.data), pa.string()), None, unusable(one))


def text_of_bool(given: Given, one: Vector) -> Vector:
    data = pc.if_else(pa.array(as_mask(given, one.data)), "True", "False")
    return Vector(data, None, unusable(one))


def cut(start: int, stop: int | None) -> Run:
    """`text[start:stop]` of positions that are not negative."""
    if stop is not None and stop <= start:
        return of_texts(lambda array: pc.if_else(pc.is_valid(array), "", ""))
    return of_texts(lambda array: pc.utf8_slice_codeunits(array, start, stop))


def character(at: int) -> Run:
    """`text[at]` of a position that is not negative. A text that is too short is an IndexError."""

    def run(given: Given, one: Vector) -> Vector:
        array = texts_of(given, one)
        made = pc.utf8_slice_codeunits(array, at, at + 1)
        return Vector(made, None, either(unusable(one), ~flags(pc.not_equal(made, ""))))

    return run


def starts(prefix: str) -> Run:
    return tests(lambda array: pc.starts_with(array, prefix))


def ends(suffix: str) -> Run:
    return tests(lambda array: pc.ends_with(array, suffix))


def contains(part: str) -> Run:
    return tests(lambda array: pc.match_substring(array, part))


def replaced(part: str, by: str) -> Run:
    return of_texts(lambda array: pc.replace_substring(array, part, by))


PLAIN: Final[dict[str, Run]] = {
    "lower": of_ascii(pc.ascii_lower),
    "upper": of_ascii(pc.ascii_upper),
    "strip": of_ascii(lambda array: pc.ascii_trim(array, _SPACE)),
    "lstrip": of_ascii(lambda array: pc.ascii_ltrim(array, _SPACE)),
    "rstrip": of_ascii(lambda array: pc.ascii_rtrim(array, _SPACE)),
}
"""Methods without arguments, by name."""


def is_of_digits(given: Given, one: Vector) -> Vector:
    array = texts_of(given, one)
    bad = either(unusable(one), _not_ascii(array))
    return Vector(flags(pc.ascii_is_decimal(array)), None, bad)
