"""The base of all codecs, and the codec of values of one Python class. Source: PyFlink's coders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn

import pyarrow as pa

from penstock.engine.model import types as t
from penstock.engine.model.texts.bounded_text import bounded_repr, bounded_str
from penstock.engine.runtime.codecs.time_columns import nanos_as_micros, nanos_as_numbers
from penstock.engine.runtime.elements import classes_of

NONE: Final = type(None)
_UNHELD: Final = (pa.ArrowException, OverflowError, UnicodeError)
"""What Arrow raises for a value of the right type: half a surrogate pair, a None as a dict's key, a time out of its range."""


class NoColumnForValue(ValueError):
    """A value has its declared type, and Arrow cannot hold it. It stays a Python value where rows will do."""


class NoPythonValue(ValueError):
    """A column has a value for which Python has none, such as a time of the year 20000."""


def listed(array: pa.Array) -> list[Any]:
    """`to_pylist`. Raises: NoPythonValue, with Arrow's text of the first value that it holds for."""
    try:
        values: list[Any] = array.to_pylist()
    except (OverflowError, ValueError) as error:
        why = str(error)
    else:
        return values
    if len(array) > 1:
        half = len(array) // 2
        return [*listed(array.slice(0, half)), *listed(array.slice(half))]
    raise NoPythonValue(f"Python has no value for {arrow_text(array)} of type {array.type}: {why}")


def arrow_text(array: pa.Array) -> str:
    """Arrow's text of an array with one value."""
    text: str = array.to_string(skip_new_lines=True)
    return bounded_str(text[1:-1], 200)


@lru_cache(1024)
def may_lack_values(kind: pa.DataType) -> bool:
    """Whether `listed` may find a value that Python does not have."""
    if pa.types.is_dictionary(kind):
        return may_lack_values(kind.value_type)
    if pa.types.is_nested(kind):
        return any(may_lack_values(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind))


def values_of_array(array: pa.Array) -> list[Any]:
    """The Python values of a column without a declared type. Numbers take a shorter way than `to_pylist`.

    Of times in nanoseconds the microseconds are kept.
    """
    kind = array.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    values: list[Any]
    if is_number and array.null_count == 0:
        values = array.to_numpy(zero_copy_only=False).tolist()
    else:
        values = listed(nanos_as_micros(array))
    return values


class Codec:
    """The base of codecs. Itself the codec of pickled values: any value passes, and there is no Arrow form."""

    arrow: pa.DataType | None = None

    def __init__(self, type_info: t.TypeInformation | None) -> None:
        self.type_info = type_info

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values as the coder would return them; the same object if nothing changes.

        Raises: TypeError, AssertionError or OverflowError, depending on the type.
        """
        return values

    def coerce(self, value: Any) -> Any:
        """Convert one value leniently, for `from_collection`."""
        return value

    def converted(self, value: Any) -> Any:
        """A value that `enforce` refuses, as the type's coder would write it. What it cannot convert is returned unchanged."""
        return value

    def plain(self, values: Sequence[Any]) -> Sequence[Any]:
        """Enforced values in the form that `pa.array` takes."""
        return values

    def back(self, values: list[Any]) -> list[Any]:
        """Python values from those that `to_pylist` gave, with numbers for times in nanoseconds."""
        return values

    def to_array(self, values: Sequence[Any]) -> pa.Array:
        """Check the values and convert them to Arrow.

        Raises: NoColumnForValue: a value has the type, and Arrow cannot hold it; as `enforce`.
        """
        enforced = self.enforce(values)
        try:
            return pa.array(self.plain(enforced), type=self.arrow)
        except _UNHELD as error:
            raise NoColumnForValue(f"no column of {self.arrow} holds it: {error}") from error

    def as_sent(self, values: Sequence[Any]) -> list[Any]:
        """The values as a column would give them back; one that Arrow cannot hold as `enforce` gives it. Raises: as `enforce`."""
        try:
            return self.from_array(self.to_array(values))
        except NoColumnForValue:
            if len(values) == 1:
                return list(self.enforce(values))
        half = len(values) // 2
        return [*self.as_sent(values[:half]), *self.as_sent(values[half:])]

    def from_array(self, array: pa.Array) -> list[Any]:
        """The Python values of a column."""
        return self.back(listed(nanos_as_numbers(array)))

    def refuse(self, value: Any, expected: str) -> NoReturn:
        raise TypeError(
            f"a value of type {type(value).__qualname__} does not fit the declared type "
            f"{self.type_info}: expected {expected}, got {bounded_repr(value, 200)}"
        )


def column_values(array: pa.Array, codec: Codec | None, name: str) -> list[Any]:
    """The Python values of a column. `codec`: of the declared type, if there is one. Raises: NoPythonValue, which names the column."""
    try:
        return values_of_array(array) if codec is None else codec.from_array(array)
    except NoPythonValue as error:
        why = str(error)
    raise NoPythonValue(f"column {name!r}: {why}")


class ExactCodec(Codec):
    """Values of one Python class or its subclasses, unchanged."""

    def __init__(self, type_info: t.TypeInformation, kind: type, arrow: pa.DataType | None) -> None:
        super().__init__(type_info)
        self._kind = kind
        self._kinds = frozenset({kind, NONE})
        self.arrow = arrow

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        if classes_of(values) <= self._kinds:
            return values
        for value in values:
            if value is not None and not isinstance(value, self._kind):
                self.refuse(value, self._kind.__name__)
        return values
