"""How the bytes of a file become batches: lines of text, lines of JSON, Parquet. Knows no
enumerator.

Source: Flink StreamFormat, TextLineInputFormat, BulkFormat; differs: formats are Python classes
that give whole batches, and say themselves how a file may be cut.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import json
import lzma
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from penstock.common.serialization import known_charset
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.common.types import Row
from penstock.datastream.connectors.file_listing import FilePiece, cut
from penstock.model.errors import UserCodeError
from penstock.runtime.elements import Batch, ColumnBatch, RowBatch

CHUNK_BYTES: Final = 256 * 1024
ROWS_PER_BATCH: Final = 4096
COLUMN_ROWS: Final = 1 << 16
DECOMPRESSORS: Final[dict[str, Callable[[str], Any]]] = {
    ".gz": gzip.open,
    ".gzip": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
# In these a newline is one byte that is part of no other character, so that bytes can be cut there.
NEWLINE_SAFE: Final = frozenset({"utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252"})


class FileFormat(ABC):
    """Picklable; used by the enumerator to cut files and by the readers to read the pieces."""

    @abstractmethod
    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        """How this file may be read in parts."""

    @abstractmethod
    def read(self, piece: FilePiece) -> Iterator[Batch]:
        """The batches of one part, each of at most about 4,096 rows or 1 MiB."""

    @property
    def produced_type(self) -> TypeInformation | None:
        return None


class BulkFormat(FileFormat):
    """Reads whole column batches."""


class StreamFormat(FileFormat):
    """Reads records one after the other."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8", *, as_columns: bool = False) -> StreamFormat:
        r"""Lines without their end, `\n` or `\r\n`. Bytes that are no text become U+FFFD. `as_columns`: a column `value` of
        strings, of which no Python object is made unless a function asks for it. Not in PyFlink.
        """
        return TextColumnFormat(charset_name) if as_columns else TextLineFormat(charset_name)

    @staticmethod
    def json_lines_format(
        type_info: TypeInformation | None = None, charset_name: str = "UTF-8"
    ) -> StreamFormat:
        """A JSON value per line; with a ROW type, Rows with the fields of that name. Not in
        PyFlink.
        """
        return JsonLinesFormat(type_info, charset_name)


class TextLineFormat(StreamFormat):
    """A line belongs to the piece in which its first byte stands."""

    def __init__(self, charset_name: str) -> None:
        self._charset = codecs.lookup(known_charset(charset_name)).name

    @property
    def produced_type(self) -> TypeInformation | None:
        return Types.STRING()

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        size = Path(path).stat().st_size
        if self._charset in NEWLINE_SAFE and Path(path).suffix not in DECOMPRESSORS:
            yield from cut(path, size, split_bytes)
        elif size:
            yield FilePiece(path, 0, None, size)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        for lines in self.lines(piece):
            for start in range(0, len(lines), ROWS_PER_BATCH):
                yield RowBatch(lines[start : start + ROWS_PER_BATCH])

    def lines(self, piece: FilePiece) -> Iterator[list[str]]:
        """Lists of lines, a chunk of the file each."""
        for text in self.texts(piece):
            yield _split_lines(
                text.decode(self._charset, "replace") if isinstance(text, bytes) else text
            )

    def texts(self, piece: FilePiece) -> Iterator[str | bytes]:
        """Whole lines, a chunk of the file each; bytes where they could be cut as such."""
        opened = DECOMPRESSORS.get(Path(piece.path).suffix)
        if opened is not None or self._charset not in NEWLINE_SAFE:
            with (opened or io.FileIO)(piece.path) as file:
                yield from _decoded_lines(file, self._charset)
            return
        with Path(piece.path).open("rb", buffering=0) as file:
            yield from _line_bytes(file, piece.start, piece.stop)


class TextColumnFormat(TextLineFormat):
    """The same lines as a column, cut without making any of them."""

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        for text in self.texts(piece):
            lines = _column_of(self._as_utf8(text))
            data = pa.RecordBatch.from_arrays([lines], names=["value"])
            for start in range(0, data.num_rows, COLUMN_ROWS):
                yield ColumnBatch(data.slice(start, COLUMN_ROWS), None)

    def _as_utf8(self, text: str | bytes) -> bytes:
        """With line ends of one kind."""
        if isinstance(text, bytes) and self._charset == "utf-8":
            with contextlib.suppress(UnicodeDecodeError):
                text.decode()  # which is quick, and tells whether it is text
                return text if b"\r" not in text else text.replace(b"\r\n", b"\n")
        decoded = text if isinstance(text, str) else text.decode(self._charset, "replace")
        return decoded.replace("\r\n", "\n").encode()


def _column_of(text: bytes) -> pa.Array:
    """Lines of UTF-8 as strings."""
    newlines = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    ends = newlines - np.arange(len(newlines))  # as it is without them
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text) - len(newlines))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [pa.py_buffer(offsets), pa.py_buffer(text.replace(b"\n", b""))]
    return pa.StringArray.from_buffers(len(ends), *buffers)


class JsonLinesFormat(StreamFormat):
    """Each line that is not blank is one value."""

    def __init__(self, type_info: TypeInformation | None, charset_name: str) -> None:
        self._text = TextLineFormat(charset_name)
        self._type = type_info

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        return self._text.pieces(path, split_bytes)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        for batch in self._text.read(piece):
            assert isinstance(batch, RowBatch)
            values = _parsed(batch.values, piece.path)
            if isinstance(self._type, RowTypeInfo):
                values = _rows(values, self._type.get_field_names())
            if values:
                yield RowBatch(values)


def _line_bytes(file: BinaryIO, start: int, stop: int | None) -> Iterator[bytes]:
    """Whole lines whose first byte lies in [start, stop), as blocks of bytes."""
    position = _first_line(file, start)
    carry = b""
    while stop is None or position < stop:
        chunk = file.read(CHUNK_BYTES)
        data = carry + chunk
        if not chunk:
            if data:
                yield data
            return
        if stop is not None and position + len(data) >= stop:
            end = data.find(b"\n", stop - 1 - position)
            if end >= 0:
                yield data[: end + 1]
                return
        whole = data.rfind(b"\n") + 1
        if whole:
            yield data[:whole]
        carry = data[whole:]
        position += whole


def _first_line(file: BinaryIO, start: int) -> int:
    """Go to the first line that starts at or behind `start`; its position."""
    if start == 0:
        return 0
    position = start - 1
    file.seek(position)
    while chunk := file.read(CHUNK_BYTES):
        newline = chunk.find(b"\n")
        if newline >= 0:
            file.seek(position + newline + 1)
            return position + newline + 1
        position += len(chunk)
    return position


def _decoded_lines(file: Any, charset: str) -> Iterator[str]:
    """Whole lines of a stream that cannot be cut, decoded as it comes."""
    decoder = codecs.getincrementaldecoder(charset)("replace")
    rest = ""
    while data := file.read(CHUNK_BYTES):
        text = rest + decoder.decode(data)
        end = text.rfind("\n") + 1
        if end:
            yield text[:end]
        rest = text[end:]
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


def _split_lines(text: str) -> list[str]:
    r"""Lines without their ends; only `\n` and `\r\n` end a line."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _parsed(lines: Sequence[str], path: str) -> list[Any]:
    loads = json.loads
    try:
        return [loads(line) for line in lines if line and not line.isspace()]
    except ValueError:
        for line in lines:
            if line and not line.isspace():
                _check_json(line, path)
        raise


def _check_json(line: str, path: str) -> None:
    try:
        json.loads(line)
    except ValueError as error:
        raise UserCodeError(
            f"{path}: a line is not JSON: {error}. The line: {line[:200]!r}. Correct the file, or "
            "read it with text_line_format and parse it in a flat_map that skips such lines."
        ) from error


def _rows(values: list[Any], names: list[str]) -> list[Any]:
    """Objects as Rows with these fields, missing ones None; arrays by position."""
    make = Row(*names)
    return [
        make(*map(value.get, names)) if isinstance(value, dict) else make(*value)
        for value in values
    ]
