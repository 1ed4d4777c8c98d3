"""Reads many JSON objects at once as columns, without a Python object for each. Does not know any
connector.

It reads only input that it reads exactly as the objects would be read one by one; otherwise it
returns None. msgspec reads them where it is installed, else pyarrow, which takes longer. With
msgspec, objects of one line each become Python objects that have fields as attributes, or columns
of these.

msgspec accepts less than Python's JSON in the declared types: no NaN, no text for a number, no lone
surrogate. It also accepts more: objects that have no line of their own, which are found out here.

It can read only some fields of the objects: those that the functions after a source read. With
msgspec, each object becomes a Python object with these fields as attributes; without it pyarrow
makes columns of them. What msgspec refuses, the usual parser reads, so a message gives the same
values either way, or the same error. Source: msgspec, pyarrow.json.
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

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model import types as t
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar, to_columns, to_rows
from penstock.engine.runtime.elements import ColumnBatch, Int64s, RowBatch
from penstock.engine.runtime.partial_columns import DecodedColumns, ParsedColumns, PartialColumns

_REFUSED: Final = 8
"""A text that msgspec refuses is read twice. msgspec is not tried while more than one in this
number of the last texts was refused.
"""
_LAST: Final = 64
"""This number of texts count; earlier ones count half."""
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
        except Exception:  # Whatever msgspec raises: another parser reports what is wrong.
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


# Words that Python's JSON accepts and standard JSON does not. pyarrow takes them for numbers.
_STRANGE: Final = re.compile(rb"[:\[,]\s*-?(?:NaN|Inf)")
# An integer for Python, and so 0.0 as a DOUBLE. For pyarrow it is -0.0.
_NEGATIVE_ZERO: Final = re.compile(rb"-0\s*[,}\]]")
_MOST_SPACE: Final = 1024
"""After the last object. Where there is more, lines are read one by one."""
_BOUNDARY: Final = re.compile(rb"}[ \t\r]*\n[ \t\r]*{")


def json_schema_of(type_info: TypeInformation | None) -> pa.Schema | None:
    """The columns, if both ways read all field types alike; None: read the objects one by one."""
    is_row = isinstance(type_info, RowTypeInfo) and is_columnar(type_info)
    if type_info is None or not is_row or _has_char(type_info):
        return None
    schema = arrow_schema(type_info)
    return schema if len(schema) and all(_is_read_alike(field.type) for field in schema) else None


def _has_char(kind: TypeInformation) -> bool:
    """Whether a text may have one character only, which a column does not check."""
    if isinstance(kind, t.ElementTypeInfo):
        return _has_char(kind.elem_type)
    if isinstance(kind, RowTypeInfo | t.TupleTypeInfo):
        return any(map(_has_char, kind.get_field_types()))
    return isinstance(kind, t.BasicTypeInfo) and kind.basic_type is t.BasicType.CHAR


def _is_read_alike(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_read_alike(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_read_alike(kind.value_type)
    is_number = pa.types.is_signed_integer(kind) or pa.types.is_float64(kind)
    return bool(is_number or pa.types.is_boolean(kind) or pa.types.is_string(kind))


def read_messages(messages: Sequence[bytes | None], schema: pa.Schema) -> pa.RecordBatch | None:
    """One row for each message. None: a message is not a plain object of these columns."""
    if not all(messages):
        return None
    block = b"\n".join(messages)  # type: ignore[arg-type] # none of them is None
    return read_lines(block, schema) if block.count(b"\n") == len(messages) - 1 else None


def read_lines(block: bytes, schema: pa.Schema) -> pa.RecordBatch | None:
    """One row for each line; the last line needs no end. None: a line is not a plain object of these columns."""
    # A block that begins with `null` crashes pyarrow.
    if not block.startswith(b"{") or not is_text(block):
        return None
    return _decoded(block, schema) or _parsed(block, schema)


def _decoded(block: bytes, schema: pa.Schema) -> pa.RecordBatch | None:
    decoder = record_decoder(schema)
    return None if decoder is None else decoder.columns(block)


def _parsed(block: bytes, schema: pa.Schema) -> pa.RecordBatch | None:
    """`read_lines` of any valid UTF-8, by pyarrow."""
    if _may_be_strange(block, schema):
        return None
    from pyarrow import (
        json,
    )  # here, because it is slow to load and rarely needed

    try:
        table = json.read_json(
            pa.BufferReader(block),
            read_options=json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if not _has_object_on_each_line(block, table.num_rows):
        return None
    batch: pa.RecordBatch = table.select(schema.names).combine_chunks().to_batches()[0]
    if any(map(_has_infinite, batch.columns)):
        return None
    return batch if batch.schema.equals(schema) else None


def _has_infinite(array: pa.Array) -> bool:
    """Whether it has an integer of hundreds of digits, which pyarrow takes for infinity and Python refuses."""
    kind = array.type
    if pa.types.is_nested(kind):
        parts = array.flatten()
        return any(map(_has_infinite, [parts] if isinstance(parts, pa.Array) else parts))
    if not pa.types.is_floating(kind):
        return False
    return bool(np.isinf(array.to_numpy(zero_copy_only=False)).any())


def _has_object_on_each_line(block: bytes, objects: int) -> bool:
    """Whether the block has one object on each line. pyarrow takes an object on two lines, two on
    one line, and `null`, too.
    """
    if not block[-_MOST_SPACE:].rstrip().endswith(b"}"):
        return False
    if lines_with_objects(block) == objects:
        return True
    ends = block.count(b"\n") - block.endswith(b"\n")
    return ends == objects - 1 == len(_BOUNDARY.findall(block))


def _may_be_strange(block: bytes, schema: pa.Schema) -> bool:
    """Whether a line may have such a word. Without a DOUBLE field, pyarrow refuses these words itself."""
    if not any(_has_doubles(field.type) for field in schema):
        return False
    is_likely = b"NaN" in block or b"Inf" in block  # a quick check that is mostly enough
    if is_likely and _STRANGE.search(block) is not None:
        return True
    return b"-0" in block and _NEGATIVE_ZERO.search(block) is not None


def _has_doubles(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_doubles(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def is_text(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


_LEAST_SEEN: Final = 4096
_TOLERATED: Final = 8
"""msgspec is not used any more if more than one record in this number had to be read again."""
_FIRST: Final = 16
"""The largest number of odd records at the beginning of a batch."""
_WORTH_COLUMNS: Final = 64
_VALUES_AT_ONCE: Final = 10_240
"""Together with their records these take half a megabyte: they are still in a core's cache when the last function reads them."""
ParseOne = Callable[[bytes], Any]


class FieldsReader:
    """Reads the fields `names` of objects of a ROW type.

    `parse`: the usual parser of one object, which gives the whole Row; a field that is not among `names` is None where it cannot be
    read. The type is columnar (`json_schema_of`).
    """

    def __init__(self, row_type: RowTypeInfo, names: Sequence[str], parse: ParseOne) -> None:
        self._type = row_type
        self.schema = arrow_schema(row_type)
        known: list[str] = self.schema.names
        self._places = {known.index(name): at for at, name in enumerate(names)}
        self._parts = pa.schema([self.schema.field(name) for name in names])
        self._parse = parse
        self._decoder = record_decoder(self._parts)
        self._seen = self._again = 0

    @property
    def makes_objects(self) -> bool:
        """Whether it makes Python objects, and no columns."""
        return self._decoder is not None

    @property
    def objects_at_once(self) -> int:
        """How many objects a batch should have."""
        return max(1, _VALUES_AT_ONCE // len(self._places))

    def batch(
        self, text: bytes, objects: Sequence[bytes] = (), stamps_of: str | None = None
    ) -> PartialColumns | None:
        """A batch of the fields; None: an object cannot be read, or is no record, or there is nothing to gain.

        Args: text: one object on each line, without blank lines; the last line needs no end. objects: the same, one by one; empty: the
            lines, which are known to be UTF-8. stamps_of: the LONG field with timestamps, among the fields.
        """
        decoder = self._decoder
        if decoder is None:
            return self._columns(text, objects, stamps_of)
        if objects and not is_text(text):
            return None
        records = decoder.lines(text, len(objects) or None)
        if records is None:
            objects = objects or _lines_of(text)
            records = self._one_by_one(objects, decoder)
        else:
            self._seen += len(records)
        if records is None:
            return None
        attributes = dict(zip(self._places, decoder.attributes, strict=True))
        stamps = None
        if stamps_of is not None:
            stamps = _stamps(records, attributes[self.schema.names.index(stamps_of)])
            if stamps is None:
                return None
        whole = _Objects(self, objects, text)
        return DecodedColumns(whole, range(len(records)), self.schema, records, attributes, stamps)

    def _columns(
        self, text: bytes, objects: Sequence[bytes], stamps_of: str | None
    ) -> PartialColumns | None:
        if len(self._places) == len(self.schema):
            return None
        data = read_lines(text, self._parts)
        if data is None or (objects and data.num_rows != len(objects)):
            return None
        stamps = None
        if stamps_of is not None:
            column = data.column(stamps_of)
            if column.null_count:
                return None
            stamps = column.to_numpy()
        whole = _Objects(self, objects, text)
        picked = range(data.num_rows)
        return ParsedColumns(whole, picked, self.schema, data, self._places, stamps)

    def _one_by_one(self, objects: Sequence[bytes], decoder: RecordDecoder) -> list[Any] | None:
        """One decoded record for each object; None: too many are refused, or one cannot be read."""
        records: list[Any] = []
        most = len(objects) // _TOLERATED + _FIRST
        found = map(decoder.decode, objects)
        again = 0
        while True:
            try:
                records.extend(found)
                break
            # What the decoder raises is not the message's error: that comes from the usual parser.
            except Exception:
                again += 1
                is_common = again > most or (again > _FIRST and again * 2 > len(records))
                one = None if is_common else self._read_again(objects[len(records)], decoder)
                if one is None:
                    self.note_again(len(objects))
                    return None
                records.append(one)
        self._seen += len(objects)
        self.note_again(again)
        return records

    def _read_again(self, one: bytes, decoder: RecordDecoder) -> Any:
        """The record of an object that the decoder refuses, by the usual parser; None: it has none, or cannot be read."""
        try:
            row = self._parse(one)
        except Exception:  # The caller reads it once more, where its error is reported.
            return None
        return None if row is None else decoder.make(*[row[place] for place in self._places])

    def note_again(self, records: int) -> None:
        """`records` records had to be read once more."""
        self._again += records
        if self._seen + self._again >= _LEAST_SEEN and self._again * _TOLERATED > self._seen:
            self._decoder = None

    def rows(self, objects: Sequence[bytes]) -> list[Any]:
        """The whole records."""
        if len(objects) >= _WORTH_COLUMNS:
            self.note_again(len(objects))
            data = read_messages(objects, self.schema)
            if data is not None:
                return to_rows(ColumnBatch(data), self._type).values
        return list(map(self._parse, objects))

    def columns(self, objects: Sequence[bytes]) -> pa.RecordBatch:
        data = read_messages(objects, self.schema) if objects else None
        if data is None:
            data = to_columns(RowBatch(list(map(self._parse, objects))), self._type).data
        return data


class _Objects:
    """What a batch was made of: see `Unparsed`."""

    __slots__ = ("_objects", "_reader", "_text")

    def __init__(self, reader: FieldsReader, objects: Sequence[bytes], text: bytes = b"") -> None:
        """`objects`: empty: the lines of the text."""
        self._reader = reader
        self._objects = objects
        self._text = text

    def rows(self, picked: Sequence[int]) -> list[Any]:
        return self._reader.rows(self._at(picked))

    def columns(self, picked: Sequence[int]) -> pa.RecordBatch:
        return self._reader.columns(self._at(picked))

    def _at(self, picked: Sequence[int]) -> list[bytes]:
        self._objects = self._objects or _lines_of(self._text)
        return list(map(self._objects.__getitem__, picked))


def _lines_of(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _stamps(records: list[Any], attribute: str) -> Int64s | None:
    """The timestamps of records; None: one has none."""
    try:
        return np.fromiter(map(attrgetter(attribute), records), np.int64, len(records))
    except TypeError:
        return None


def fields_in_order(
    row_type: RowTypeInfo, read: Sequence[str], *further: str | None
) -> tuple[str, ...]:
    """The fields that are read and `further` ones, in the order of the type; one, if it is none."""
    wanted = {*read, *further}
    names = row_type.get_field_names()
    return tuple(name for name in names if name in wanted) or tuple(names[:1])
