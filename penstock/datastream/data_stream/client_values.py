"""Conversion of collected values to the values that the client gets. Does not know any job.

Source: PyFlink's PythonBridgeUtils and pickled_bytes_to_python_converter: the client gets a FLOAT by its Java text,
1.1, while Python functions get its exact value, 1.100000023841858.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from penstock.engine.model.row import make_row
from penstock.engine.model.types import (
    BasicType,
    BasicTypeInfo,
    ElementTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

Change: TypeAlias = Callable[[Any], Any]


def client_values(type_info: TypeInformation | None) -> Callable[[list[Any]], list[Any]]:
    """A function that converts values of this type for the client. It returns the same list if the type has no FLOAT."""
    change = _change(type_info)
    return _same if change is None else lambda values: list(map(change, values))


def _same(values: list[Any]) -> list[Any]:
    return values


def _change(type_info: TypeInformation | None) -> Change | None:
    """A function that converts one value; None: there is nothing to convert."""
    change: Change | None = None
    if isinstance(type_info, BasicTypeInfo):
        change = _shortest if type_info.basic_type is BasicType.FLOAT else None
    elif isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        fields = [_change(one) for one in type_info.get_field_types()]
        change = _of_record(fields) if any(fields) else None
    elif isinstance(type_info, MapTypeInfo):
        change = _of_map(_change(type_info.key_type), _change(type_info.value_type))
    elif isinstance(type_info, ElementTypeInfo):
        change = _of_list(_change(type_info.element_type))
    return None if change is None else lambda value: None if value is None else change(value)


def _shortest(value: float) -> float:
    """The number with the fewest digits that is the same 32-bit float."""
    return float(str(np.float32(value)))


def _of_record(fields: Sequence[Change | None]) -> Change:
    def changed(record: Any) -> Any:
        values = [
            value if field is None else field(value)
            for field, value in zip(fields, record, strict=True)
        ]
        if isinstance(record, tuple):
            return tuple(values)
        return make_row(record._fields, values, record.get_row_kind())

    return changed


def _of_list(element: Change | None) -> Change | None:
    return None if element is None else lambda values: list(map(element, values))


def _of_map(key: Change | None, value: Change | None) -> Change | None:
    if key is None and value is None:
        return None
    of_key, of_value = key or _itself, value or _itself
    return lambda pairs: {of_key(one): of_value(other) for one, other in pairs.items()}


def _itself(value: Any) -> Any:
    return value
