"""The base of classes that programs write with type parameters. Does not know any of these classes.

Source: PyFlink's Generic base classes; differs: the parameters may be left out. Type checkers then take Any, by defaults of type
variables, which Python has from 3.13 on.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    X = TypeVar("X", default=Any)
    Y = TypeVar("Y", default=Any)
else:
    from typing import TypeVar

    X = TypeVar("X")
    Y = TypeVar("Y")


class Parametrised:
    """`Trigger[tuple, TimeWindow]` is the class itself, as a base and in annotations."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, item: Any, /) -> GenericAlias:
            return GenericAlias(cls, item)


if TYPE_CHECKING:

    class OfOne(Parametrised, Generic[X]):
        """With one parameter."""

    class OfTwo(Parametrised, Generic[X, Y]):
        """With two parameters."""

else:
    OfOne = OfTwo = Parametrised
