"""TypeInformation family and the `Types` factory: how a stream's records are declared.

Does not know Arrow or coders: `engine/runtime/codecs/convert.py` gives types their meaning for
batches. Source: PyFlink pyflink.common.typeinfo; differs: no Java type is wrapped.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from penstock.engine.model.row import Row, make_row
from penstock.engine.model.time import Instant
from penstock.engine.model.type_information import (
    MICROS,
    DateTypeInfo,
    DecimalTypeInfo,
    LocalTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    UtcTimestampTypeInfo,
)

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "DecimalTypeInfo",
    "ElementTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "UtcTimestampTypeInfo",
    "is_pickled",
    "taking_tuples",
]


class BasicType(Enum):
    """The kinds of basic types."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


def _maker(basic_type: BasicType) -> staticmethod[[], BasicTypeInfo]:
    def make() -> BasicTypeInfo:
        is_instant = basic_type is BasicType.INSTANT
        return InstantTypeInfo() if is_instant else BasicTypeInfo(basic_type)

    return staticmethod(make)


class BasicTypeInfo(TypeInformation):
    """The type of a single value: string, number, boolean or instant."""

    def __init__(self, basic_type: BasicType) -> None:
        self._basic_type = basic_type

    @property
    def basic_type(self) -> BasicType:
        return self._basic_type

    def parts(self) -> tuple[Any, ...]:
        return (self._basic_type,)

    def __str__(self) -> str:
        return self._basic_type.value

    STRING_TYPE_INFO = _maker(BasicType.STRING)
    BOOLEAN_TYPE_INFO = _maker(BasicType.BOOLEAN)
    BYTE_TYPE_INFO = _maker(BasicType.BYTE)
    SHORT_TYPE_INFO = _maker(BasicType.SHORT)
    INT_TYPE_INFO = _maker(BasicType.INT)
    LONG_TYPE_INFO = _maker(BasicType.LONG)
    FLOAT_TYPE_INFO = _maker(BasicType.FLOAT)
    DOUBLE_TYPE_INFO = _maker(BasicType.DOUBLE)
    CHAR_TYPE_INFO = _maker(BasicType.CHAR)
    BIG_INT_TYPE_INFO = _maker(BasicType.BIG_INT)
    BIG_DEC_TYPE_INFO = _maker(BasicType.BIG_DEC)
    INSTANT_TYPE_INFO = _maker(BasicType.INSTANT)


class InstantTypeInfo(BasicTypeInfo):
    """The type of a point in time; internally microseconds since the epoch."""

    def __init__(self, basic_type: BasicType = BasicType.INSTANT) -> None:
        super().__init__(basic_type)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        return None if obj is None else obj.seconds * MICROS + obj.nanos // 1000

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        seconds, micros = divmod(obj, MICROS)
        return Instant(seconds, micros * 1000)


class SqlTimeTypeInfo(TypeInformation):
    """Creates the date and time types."""

    @staticmethod
    def DATE() -> DateTypeInfo:  # ruff: ignore[invalid-function-name]
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:  # ruff: ignore[invalid-function-name]
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:  # ruff: ignore[invalid-function-name]
        return TimestampTypeInfo()


class PickledBytesTypeInfo(TypeInformation):
    """The type of any Python value, and of everything without a declared type."""

    @staticmethod
    def PICKLED_BYTE_ARRAY_TYPE_INFO() -> PickledBytesTypeInfo:  # ruff: ignore[invalid-function-name]
        return PickledBytesTypeInfo()

    def __str__(self) -> str:
        return "PickledByteArrayTypeInfo"


class ElementTypeInfo(TypeInformation):
    """A type with one element type."""

    def __init__(self, element_type: TypeInformation) -> None:
        self._element_type = _checked(element_type, type(self).__name__)

    @property
    def element_type(self) -> TypeInformation:
        return self._element_type

    elem_type = element_type

    def parts(self) -> tuple[Any, ...]:
        return (self._element_type,)

    def need_conversion(self) -> bool:
        return self._element_type.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        convert = self._element_type.to_internal_type
        return None if obj is None else [convert(item) for item in obj]

    def from_internal_type(self, obj: Any) -> Any:
        convert = self._element_type.from_internal_type
        return None if obj is None else [convert(item) for item in obj]

    def __str__(self) -> str:
        return f"{type(self).__name__}<{self._element_type}>"


class ListTypeInfo(ElementTypeInfo):
    """The type of a list."""


class BasicArrayTypeInfo(ElementTypeInfo):
    """The type of an array of basic values, which may be None."""


class PrimitiveArrayTypeInfo(ElementTypeInfo):
    """The type of an array of primitive values; an array of bytes is a bytes object."""


class ObjectArrayTypeInfo(ElementTypeInfo):
    """The type of an array of elements of any type."""


class ExternalTypeInfo(ElementTypeInfo):
    """Wraps a type in its external form."""

    def __init__(self, type_info: TypeInformation) -> None:
        super().__init__(type_info)

    def to_internal_type(self, obj: Any) -> Any:
        return self._element_type.to_internal_type(obj)

    def from_internal_type(self, obj: Any) -> Any:
        return self._element_type.from_internal_type(obj)


class MapTypeInfo(TypeInformation):
    """The type of a dict."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        self._key_type_info = _checked(key_type_info, "MapTypeInfo")
        self._value_type_info = _checked(value_type_info, "MapTypeInfo")

    @property
    def key_type(self) -> TypeInformation:
        return self._key_type_info

    @property
    def value_type(self) -> TypeInformation:
        return self._value_type_info

    def parts(self) -> tuple[Any, ...]:
        return (self._key_type_info, self._value_type_info)

    def need_conversion(self) -> bool:
        return self._key_type_info.need_conversion() or self._value_type_info.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        key, value = self._key_type_info.to_internal_type, self._value_type_info.to_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        key = self._key_type_info.from_internal_type
        value = self._value_type_info.from_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def __str__(self) -> str:
        return f"MapTypeInfo<{self._key_type_info}, {self._value_type_info}>"


class TupleTypeInfo(TypeInformation):
    """A tuple of fixed width."""

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        self._field_types = [_checked(item, "TupleTypeInfo") for item in field_types]

    def get_field_types(self) -> list[TypeInformation]:
        return self._field_types

    def parts(self) -> tuple[Any, ...]:
        return tuple(self._field_types)

    def need_conversion(self) -> bool:
        return any(item.need_conversion() for item in self._field_types)

    def to_internal_type(self, obj: Any) -> Any:
        return None if obj is None else _each(self._field_types, obj, "to_internal_type")

    def from_internal_type(self, obj: Any) -> Any:
        return None if obj is None else _each(self._field_types, obj, "from_internal_type")

    def __str__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._field_types))})"


class RowTypeInfo(TypeInformation):
    """A Row of fixed width; fields without given names are called f0, f1, ..."""

    defaults: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        self._field_types = [_checked(item, "RowTypeInfo") for item in field_types]
        self._has_names = field_names is not None
        self._field_names = (
            list(field_names)
            if field_names is not None
            else [f"f{index}" for index in range(len(self._field_types))]
        )
        if len(self._field_names) != len(self._field_types):
            raise ValueError(
                f"a ROW type needs one name per field: got {len(self._field_types)} types and "
                f"names {self._field_names}"
            )
        if len(set(self._field_names)) != len(self._field_names):
            raise ValueError(f"field names of a ROW type must differ: got {self._field_names}")

    def with_defaults(self, **values: Any) -> RowTypeInfo:
        """Return the same type, with values for fields that are added to restored state.

        Args:
            values: by the name of the field; a field without one is None. They are no part of the
                type: two types that differ in them are equal.

        Raises:
            ValueError: there is no such field.
        """
        for name in values:
            self.get_field_index(name)
        made = copy.copy(self)
        made.defaults = {**self.defaults, **values}
        return made

    @property
    def has_names(self) -> bool:
        """Whether the names were given."""
        return self._has_names

    def get_field_names(self) -> list[str]:
        return self._field_names

    def get_field_index(self, field_name: str) -> int:
        """The position of the name. Raises: ValueError: there is no such field."""
        if field_name not in self._field_names:
            raise ValueError(f"there is no field {field_name!r}, only {self._field_names}")
        return self._field_names.index(field_name)

    def get_field_types(self) -> list[TypeInformation]:
        return self._field_types

    def parts(self) -> tuple[Any, ...]:
        return (tuple(self._field_types), tuple(self._field_names))

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        """A tuple of plain values. Takes a Row, tuple or list, or by name a dict or an object's attributes."""
        if obj is None:
            return None
        if isinstance(obj, dict):
            obj = [obj.get(name) for name in self._field_names]
        elif isinstance(obj, Row):
            obj = obj.get_fields_by_names(self._field_names)
        elif not isinstance(obj, tuple | list):
            if not hasattr(obj, "__dict__"):
                raise ValueError(
                    f"unexpected value {obj!r} for {self}: expected a Row, tuple or list"
                )
            obj = [vars(obj).get(name) for name in self._field_names]
        return _each(self._field_types, obj, "to_internal_type")

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None or isinstance(obj, Row):
            return obj
        values = _each(self._field_types, obj, "from_internal_type")
        return make_row(tuple(self._field_names), values)

    def __str__(self) -> str:
        if not self._has_names:
            return f"RowTypeInfo({', '.join(map(str, self._field_types))})"
        pairs = zip(self._field_names, self._field_types, strict=True)
        return f"RowTypeInfo({', '.join(f'{name}: {item}' for name, item in pairs)})"


class Types:
    """Creates types. TIMESTAMP_LTZ and DECIMAL(precision, scale) are additions to PyFlink.

    They have the names of Flink's SQL types. Source: PyFlink Types.
    """

    STRING = staticmethod(BasicTypeInfo.STRING_TYPE_INFO)
    BYTE = staticmethod(BasicTypeInfo.BYTE_TYPE_INFO)
    BOOLEAN = staticmethod(BasicTypeInfo.BOOLEAN_TYPE_INFO)
    SHORT = staticmethod(BasicTypeInfo.SHORT_TYPE_INFO)
    INT = staticmethod(BasicTypeInfo.INT_TYPE_INFO)
    LONG = staticmethod(BasicTypeInfo.LONG_TYPE_INFO)
    FLOAT = staticmethod(BasicTypeInfo.FLOAT_TYPE_INFO)
    DOUBLE = staticmethod(BasicTypeInfo.DOUBLE_TYPE_INFO)
    CHAR = staticmethod(BasicTypeInfo.CHAR_TYPE_INFO)
    BIG_INT = staticmethod(BasicTypeInfo.BIG_INT_TYPE_INFO)
    BIG_DEC = staticmethod(BasicTypeInfo.BIG_DEC_TYPE_INFO)
    INSTANT = staticmethod(BasicTypeInfo.INSTANT_TYPE_INFO)
    SQL_DATE = staticmethod(SqlTimeTypeInfo.DATE)
    SQL_TIME = staticmethod(SqlTimeTypeInfo.TIME)
    SQL_TIMESTAMP = staticmethod(SqlTimeTypeInfo.TIMESTAMP)
    TIMESTAMP_LTZ = staticmethod(UtcTimestampTypeInfo)
    DECIMAL = staticmethod(DecimalTypeInfo)
    PICKLED_BYTE_ARRAY = staticmethod(PickledBytesTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO)

    @staticmethod
    def ROW(field_types: list[TypeInformation]) -> RowTypeInfo:  # ruff: ignore[invalid-function-name]
        """Return the type of a Row with fields of these types."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(  # ruff: ignore[invalid-function-name]
        field_names: list[str], field_types: list[TypeInformation]
    ) -> RowTypeInfo:
        """Return the type of a Row with named fields of these types."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TupleTypeInfo:  # ruff: ignore[invalid-function-name]
        """Return the type of a tuple with fields of these types."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:  # ruff: ignore[invalid-function-name]
        """Return the type of an array of primitive values; of BYTE: a bytes object."""
        kinds = {BasicType.BOOLEAN, BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG}
        kinds |= {BasicType.FLOAT, BasicType.DOUBLE, BasicType.CHAR}
        if not isinstance(element_type, BasicTypeInfo) or element_type.basic_type not in kinds:
            raise TypeError(f"invalid element type for a primitive array: {element_type}")
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:  # ruff: ignore[invalid-function-name]
        """Return the type of an array of basic values, which may be None."""
        if not isinstance(element_type, BasicTypeInfo):
            raise TypeError(f"invalid element type for a basic array: {element_type}")
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:  # ruff: ignore[invalid-function-name]
        """Return the type of an array of elements of any type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(  # ruff: ignore[invalid-function-name]
        key_type_info: TypeInformation, value_type_info: TypeInformation
    ) -> TypeInformation:
        """Return the type of a dict."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:  # ruff: ignore[invalid-function-name]
        """Return the type of a list."""
        return ListTypeInfo(element_type_info)


def taking_tuples(type_info: TypeInformation) -> TypeInformation:
    """The same type, but functions may return tuples where a ROW is declared."""
    made = copy.copy(type_info)
    made.takes_tuples = True
    for name, part in vars(type_info).items():
        if isinstance(part, TypeInformation):
            setattr(made, name, taking_tuples(part))
        elif isinstance(part, list) and part and isinstance(part[0], TypeInformation):
            setattr(made, name, [taking_tuples(one) for one in part])
    return made


def is_pickled(type_info: TypeInformation | None) -> bool:
    """Whether the type is undeclared or declared as pickled: any Python value is passed as it is."""
    return type_info is None or isinstance(type_info, PickledBytesTypeInfo)


def _checked(item: TypeInformation, where: str) -> TypeInformation:
    if not isinstance(item, TypeInformation):
        raise TypeError(
            f"{where} takes types such as Types.INT(), got {type(item).__name__}: {item!r}"
        )
    return item


def _each(types: list[TypeInformation], values: Any, method: str) -> tuple[Any, ...]:
    return tuple(getattr(item, method)(value) for item, value in zip(types, values, strict=True))
