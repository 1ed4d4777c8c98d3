"""Reads many JSON objects, a line each, as Python objects that have some fields as attributes, or as columns of these. Needs msgspec.

msgspec accepts less than Python's JSON in the declared types: no NaN, no text for a number, no lone surrogate. It also accepts more:
objects that have no line of their own, which are found out here. Source: msgspec.
"""

from __future__ import annotations

import contextlib
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from types import ModuleType
from typing import Any, Final

import numpy as np
import pyarrow as pa

_REFUSED: Final = 8
"""A text that msgspec refuses is read twice. None is tried while more than one in so many of the last ones were refused."""
_LAST: Final = 64
"""So many texts count; earlier ones count half."""
_REFUSED_IN_NAMES: Final = re.compile(r'["\\\x00-\x1f]')
_LINE_END, _OPENS, _CLOSES = b"\n{}"
_MOST_SCHEMAS: Final = 64


@cache
def msgspec_module() -> ModuleType | None:
    """msgspec, if it is installed here."""
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec


class RecordDecoder:
    """Decodes objects with these fields; a field that is missing or null is None.

    `attributes`: of the records, in the order of the fields. `make`: makes a record of its values. `decode`: decodes one object. Raises
    what msgspec raises.
    """

    def __init__(self, msgspec: ModuleType, schema: pa.Schema, types: Sequence[Any]) -> None:
        self.schema = schema
        self.attributes = [_attribute(name, place) for place, name in enumerate(schema.names)]
        fields = [
            (attribute, kind | None, msgspec.field(default=None, name=name))
            for attribute, kind, name in zip(self.attributes, types, schema.names, strict=True)
        ]
        # Their values refer to nothing that could refer back, so the garbage collector need not look at them.
        self.make = msgspec.defstruct("Fields", fields, frozen=True, gc=False)
        decoder = msgspec.json.Decoder(self.make)
        self.decode: Callable[[bytes], Any] = decoder.decode
        self._decode_lines: Callable[[bytes], list[Any]] = decoder.decode_lines
        self._columns = [
            (attrgetter(attribute), field.type)
            for attribute, field in zip(self.attributes, schema, strict=True)
        ]
        self._texts = self._refused = 0

    def lines(self, text: bytes, objects: int | None = None) -> list[Any] | None:
        """One record for each line of a valid UTF-8 text, whose last line needs no end.

        None: a line has no object to itself, or one that msgspec refuses, or too many texts were refused. `objects`: there have to be so
        many.
        """
        if self._texts >= _LAST:
            self._texts, self._refused = self._texts // 2, self._refused // 2
        self._texts += 1
        lines = lines_with_objects(text)
        is_tried = self._refused * _REFUSED < self._texts
        if lines is None or not is_tried or lines != (objects or lines):
            return None
        try:
            records = self._decode_lines(text)
        except Exception:  # Whatever msgspec raises: another parser tells what is wrong.
            records = []
        if len(records) != lines:
            self._refused += 1
            return None
        return records

    def columns(self, text: bytes) -> pa.RecordBatch | None:
        """The lines as columns of the schema. None: see `lines`."""
        records = self.lines(text)
        if records is None:
            return None
        arrays = [_array(values, records, kind) for values, kind in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def record_decoder(schema: pa.Schema) -> RecordDecoder | None:
    """The decoder of a schema's fields. None: msgspec is not there, or a field has no type that it reads as Python's JSON does."""
    msgspec = msgspec_module()
    return None if msgspec is None else _decoder(msgspec, schema)


@lru_cache(_MOST_SCHEMAS)
def _decoder(msgspec: ModuleType, schema: pa.Schema) -> RecordDecoder | None:
    if any(_REFUSED_IN_NAMES.search(name) for name in schema.names):
        return None
    types = [_type(msgspec, field.type) for field in schema]
    return None if None in types else RecordDecoder(msgspec, schema, types)


def lines_with_objects(text: bytes) -> int | None:
    """How many lines a text has; None: an object may be on two of them.

    Within an object, and so within a text that is JSON, no line ends between a `}` and a `{`. So if all of them end there, and there
    are as many objects as lines, each line has one.
    """
    if not text.startswith(b"{"):
        return None
    signs = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(signs == _LINE_END)
    if text.endswith(b"\n"):
        ends = ends[:-1]
    if not (signs[ends - 1] == _CLOSES).all() or not (signs[ends + 1] == _OPENS).all():
        return None
    return len(ends) + 1


def _attribute(name: str, place: int) -> str:
    """The attribute of a field: its name, where that can be one."""
    is_plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    return name if is_plain and not name.startswith("_") else f"_{place}"


def _type(msgspec: Any, kind: pa.DataType) -> Any:
    """The type for msgspec; None: another parser reads it."""
    if pa.types.is_signed_integer(kind):
        from typing import Annotated

        half = 1 << (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    return _PLAIN.get(kind)


_PLAIN: Final[Mapping[pa.DataType, type]] = {
    pa.float64(): float,
    pa.bool_(): bool,
    pa.string(): str,
}


def _array(values: Callable[[Any], Any], records: list[Any], kind: pa.DataType) -> pa.Array:
    is_float = pa.types.is_float64(kind)
    if is_float or pa.types.is_signed_integer(kind):
        # A list of all numbers would cost half as much again.
        with contextlib.suppress(TypeError):  # An integer is None.
            taken = np.fromiter(map(values, records), kind.to_pandas_dtype(), len(records))
            if not (is_float and np.isnan(taken).any()):  # JSON has no NaN, so one is None.
                return pa.array(taken)
    return pa.array(list(map(values, records)), kind)
