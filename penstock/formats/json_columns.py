"""Reads many JSON objects at once as columns, without a Python object for each. Does not know any connector.

It reads only input that it reads exactly as the objects would be read one by one; otherwise it returns None. msgspec reads them where it
is installed, else pyarrow, which takes longer. Source: pyarrow.json.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model import types as t
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.formats.json_records import lines_with_objects, record_decoder

# Words that Python's JSON accepts and standard JSON does not. pyarrow takes them for numbers.
_STRANGE: Final = re.compile(rb"[:\[,]\s*-?(?:NaN|Inf)")
# An integer for Python, and so 0.0 as a DOUBLE. For pyarrow it is -0.0.
_NEGATIVE_ZERO: Final = re.compile(rb"-0\s*[,}\]]")
_MOST_SPACE: Final = 1024
"""Behind the last object. Where there is more, lines are read one by one."""
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
    """Whether so many objects are one on each line. pyarrow takes an object on two lines, two on one line, and `null`, too."""
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
