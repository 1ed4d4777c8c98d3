"""Reads the fields of frozen dataclasses from pickles that an earlier release wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from typing import Any


def set_fields(one: Any, state: Sequence[Any]) -> None:
    """For `__setstate__` of a frozen dataclass with slots: set its fields. The last ones have their defaults if the pickle lacks them."""
    of_class = fields(one)
    values = (*state, *map(_default_of, of_class[len(state) :]))
    for field_of, value in zip(of_class, values, strict=True):
        # It is frozen.
        object.__setattr__(one, field_of.name, value)  # ruff: ignore[unnecessary-dunder-call]


def _default_of(field_of: Field[Any]) -> Any:
    factory = field_of.default_factory
    return field_of.default if factory is MISSING else factory()
