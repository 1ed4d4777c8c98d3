"""Parametrised: the base of classes that programs write with type parameters. Does not know any of these classes.

Source: PyFlink's Generic base classes; differs: the parameters are only for readers, and type checkers do not see them.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any


class Parametrised:
    """`Trigger[tuple, TimeWindow]` is the class itself, as a base and in annotations."""

    __slots__ = ()

    def __class_getitem__(cls, item: Any, /) -> GenericAlias:
        return GenericAlias(cls, item)
