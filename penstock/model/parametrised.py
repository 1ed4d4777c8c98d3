"""Parametrised: classes that programs write with type parameters. Knows none of them.

Source: PyFlink's Generic base classes; differs: the parameters are for the reader, and type checkers see none.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any


class Parametrised:
    """`Trigger[tuple, TimeWindow]` is the class itself, as a base and in annotations."""

    __slots__ = ()

    def __class_getitem__(cls, item: Any, /) -> GenericAlias:
        return GenericAlias(cls, item)
