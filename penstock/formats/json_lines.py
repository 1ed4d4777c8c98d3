"""Files with a JSON value on each line. Does not know the enumerator.

With a declared ROW of plain types, whole blocks become columns. A block that cannot become columns is tried in parts. A part that
cannot is read line by line, as JSON messages are (`penstock.datastream.formats.json`); an error then names the line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.model.texts.bounded_text import bounded_repr, bounded_str
from penstock.engine.runtime.elements import NO_TIMESTAMP, Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows, decoded
from penstock.formats.file_access import shown
from penstock.formats.file_format import FileFormat, FilePiece, FoundFile
from penstock.formats.json import MOST_LEVELS, JsonRowDeserializationSchema, check_levels
from penstock.formats.json_columns import FieldsReader, fields_in_order, json_schema_of, read_lines
from penstock.formats.text_lines import ROWS_PER_BATCH, TextLineFormat, in_parts

_BLOCK_BYTES: Final = 4 << 20
"""Columns of fewer lines take longer, for each step of numpy and Arrow has a cost of its own."""
_PARTS: Final = 8
"""A block that has no columns is tried in this number of parts: one odd line should not make Python
read very many others.
"""
_LEAST_PARTED: Final = 1 << 18
_SAMPLE: Final = 1 << 16
"""Bytes in the middle of a text that show how long its lines are."""


class JsonLinesFormat(FileFormat):
    """Reads each line that is not blank as one value.

    `timestamps`: the LONG field with the records' timestamps in epoch ms.
    """

    def __init__(
        self, type_info: TypeInformation | None, charset_name: str, timestamps: str | None
    ) -> None:
        self._text = TextLineFormat(charset_name, _BLOCK_BYTES)
        self._type = type_info
        self._timestamps = timestamps
        self._schema = json_schema_of(type_info)
        self._fields: FieldsReader | None = None
        self._parse: Callable[[str | bytes], Any] = _OfText(self._text.charset, _loads)
        if isinstance(type_info, RowTypeInfo):
            self._of_rows(JsonRowDeserializationSchema(type_info))
        if timestamps is not None and not _is_long(self._schema, timestamps):
            raise ConfigurationError(
                f"json_lines_format: timestamps={timestamps!r} must name a LONG field of a ROW of plain types, but the type is "
                f"{type_info}. Declare the field, or assign timestamps with a WatermarkStrategy."
            )

    def _of_rows(self, schema: JsonRowDeserializationSchema) -> None:
        self._parse = _OfText(self._text.charset, _RowParser(schema))

    def reading(self, names: Sequence[str]) -> JsonLinesFormat:
        if not isinstance(self._type, RowTypeInfo) or self._schema is None:
            return self
        made = JsonLinesFormat(self._type, self._text.charset, self._timestamps)
        read = fields_in_order(self._type, names, self._timestamps)
        schema = JsonRowDeserializationSchema(self._type).reading(read)
        made._of_rows(schema)
        made._fields = schema.fields()
        made.max_record_bytes = self.max_record_bytes
        return made

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        return self._text.pieces(path, split_bytes)

    def pieces_of(self, file: FoundFile, split_bytes: int) -> Iterator[FilePiece]:
        return self._text.pieces_of(file, split_bytes)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        for text in self._text.limited_to(self.max_record_bytes).texts(piece):
            if isinstance(text, Malformed):
                yield MarkedRows([text])
                continue
            for block in self._blocks(text):
                yield from self._batches(block, shown(piece.path))

    def _blocks(self, text: str | bytes) -> Iterable[str | bytes]:
        """Parts of whole lines, from each of which a batch is to be made."""
        if self._fields is None or not self._fields.makes_objects or isinstance(text, str):
            return (text,)
        half = len(text) // 2
        middle = text[half : half + _SAMPLE]
        line_bytes = len(middle) / (middle.count(b"\n") or 1)
        at_once = line_bytes * self._fields.objects_at_once
        return in_parts(text, max(1, round(len(text) / at_once)))

    def _batches(self, block: str | bytes, path: str, parts: int = _PARTS) -> Iterator[Batch]:
        """`parts`: in how many a large block is tried that has no columns; 1: it is a part."""
        columns = self._columns(block)
        if columns is not None:
            yield columns
        elif parts > 1 and isinstance(block, bytes) and len(block) >= _LEAST_PARTED:
            for part in in_parts(block, parts):
                yield from self._batches(part, path, 1)
        else:
            yield from self._rows(block, path)

    def _columns(self, text: str | bytes) -> ColumnBatch | None:
        """The block as columns; None: read it line by line."""
        schema = self._schema
        if schema is None:
            return None
        if isinstance(text, bytes) and not self._text.is_exact(text):
            return None
        block = self._text.as_utf8(text)
        if self._fields is not None:
            made = self._fields.batch(block, stamps_of=self._timestamps)
            if made is not None:
                return made
        data = read_lines(block, schema)
        if data is None:
            return None
        if self._timestamps is None:
            return ColumnBatch(data, None)
        stamps = data.column(self._timestamps)
        return None if stamps.null_count else ColumnBatch(data, stamps.to_numpy())

    def _rows(self, text: str | bytes, path: str) -> Iterator[Batch]:
        lines = [line for line in self._text.exact_lines(text) if not _is_blank(line)]
        for start in range(0, len(lines), ROWS_PER_BATCH):
            stamp_of = None if self._timestamps is None else self._stamp_of
            yield _parsed(lines[start : start + ROWS_PER_BATCH], self._parse, stamp_of, path)

    def _stamp_of(self, row: Any) -> int:
        stamp: int = row[self._timestamps]
        if type(stamp) is not int:
            raise ValueError(
                f"the field {self._timestamps!r} of a line is not a timestamp: "
                f"{bounded_repr(row)}. Leave timestamps out and assign "
                "them with a WatermarkStrategy, if that is right"
            )
        return stamp


def _is_long(schema: pa.Schema | None, name: str) -> bool:
    if schema is None or name not in schema.names:
        return False
    return bool(pa.types.is_int64(schema.field(name).type))


def _is_blank(line: str | bytes) -> bool:
    return not line or line.isspace()


def _parsed(
    lines: Sequence[str | bytes],
    parse: Callable[[str | bytes], Any],
    stamp_of: Callable[[Any], int] | None,
    path: str,
) -> RowBatch:
    """The values of the lines; a `Malformed` for each line that cannot be read. `stamp_of`:
    gives the timestamp of a value."""

    def failure(number: int, error: Exception) -> UserCodeError:
        return UserCodeError(
            f"{path}: a line cannot be read as JSON: {bounded_str(error, 2000)}. The line: "
            f"{lines[number][:200]!r}. Correct "
            'the file, or skip such lines: give the source .on_error("skip").'
        )

    if stamp_of is None:
        values, has_marks = decoded(lines, parse, failure)
        return MarkedRows(values) if has_marks else RowBatch(values)

    def parse_stamped(line: str | bytes) -> tuple[Any, int]:
        value = parse(line)
        return value, stamp_of(value)

    pairs, has_marks = decoded(lines, parse_stamped, failure)
    values = [one if isinstance(one, Malformed) else one[0] for one in pairs]
    found = (NO_TIMESTAMP if isinstance(one, Malformed) else one[1] for one in pairs)
    stamps = np.fromiter(found, np.int64, len(pairs))
    return (MarkedRows if has_marks else RowBatch)(values, stamps)


def _loads(text: str) -> Any:
    found = json.loads(text, parse_constant=_refuse_word)
    if text.count("[") + text.count("{") > MOST_LEVELS:
        check_levels(found)
    return found


def _refuse_word(word: str) -> Any:
    raise ValueError(f"{word} without quotes is no JSON")


@dataclass(frozen=True, slots=True)
class _OfText:
    """Parses a line. Raises: UnicodeDecodeError: it is still bytes, because they are not of the file's charset."""

    charset: str
    parse: Callable[[str], Any]

    def __call__(self, line: str | bytes) -> Any:
        return self.parse(line if isinstance(line, str) else line.decode(self.charset))


@dataclass(frozen=True, slots=True)
class _RowParser:
    """Parses lines as JSON messages are parsed."""

    schema: JsonRowDeserializationSchema

    def __call__(self, line: str) -> Any:
        return self.schema.deserialize(line.encode())
