"""Whether two values cannot be told apart."""

import math
from collections.abc import Sequence
from typing import Any

from penstock.engine.model.row import Row


def are_same(one: Any, other: Any) -> bool:  # ruff: ignore[too-many-return-statements]
    """Whether two values cannot be told apart: also by class, by the sign of zero, and by being NaN."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is float:
        if math.isnan(one):
            return math.isnan(other)
        return bool(one == other and math.copysign(1, one) == math.copysign(1, other))
    if kind is Row:
        has_same_shape = one._fields == other._fields and one.get_row_kind() is other.get_row_kind()
        return has_same_shape and _are_all_same(list(one), list(other))
    if kind in {tuple, list}:
        return _are_all_same(one, other)
    if kind is dict:
        return _are_all_same([*one, *one.values()], [*other, *other.values()])
    if hasattr(one, "as_tuple"):
        return bool(one.as_tuple() == other.as_tuple())
    return bool(one == other)


def _are_all_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(are_same, one, other))
