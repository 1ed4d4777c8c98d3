"""Files with a record on each line, as strings or as one column of strings.

Does not know the enumerator. Source: Flink TextLineInputFormat.
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa

from penstock.common.serialization import known_charset
from penstock.common.typeinfo import TypeInformation, Types
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows
from penstock.formats.file_access import compression_of, is_remote, open_unpacked, size_of
from penstock.formats.file_format import FileFormat, FilePiece, FoundFile, cut

CHUNK_BYTES: Final = 256 * 1024
ROWS_PER_BATCH: Final = 4096
COLUMN_ROWS: Final = 1 << 16
# In these encodings the byte of a newline is never part of another character, so that a file can be
# cut at it.
NEWLINE_SAFE: Final = frozenset({"utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252"})


class TextLineFormat(FileFormat):
    """Reads lines. A line belongs to the piece in which its first byte lies."""

    def __init__(self, charset_name: str, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._charset = codecs.lookup(known_charset(charset_name)).name

    @property
    def charset(self) -> str:
        """The charset's name in Python."""
        return self._charset

    @property
    def produced_type(self) -> TypeInformation | None:
        return Types.STRING()

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        return self.pieces_of(FoundFile(path, size_of(path)), split_bytes)

    def pieces_of(self, file: FoundFile, split_bytes: int) -> Iterator[FilePiece]:
        path, size = file.path, file.size
        if not size:
            return
        if size <= split_bytes and is_remote(path):
            # It is one piece, packed or not. A server is not asked for its first bytes.
            yield FilePiece(path, 0, None, size)
            return
        if self._charset in NEWLINE_SAFE and compression_of(path) is None:
            yield from cut(path, size, split_bytes)
        else:
            yield FilePiece(path, 0, None, size)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        for text in self.texts(piece):
            if isinstance(text, Malformed):
                yield MarkedRows([text])
                continue
            lines = split_lines(self.decoded(text))
            for start in range(0, len(lines), ROWS_PER_BATCH):
                yield RowBatch(lines[start : start + ROWS_PER_BATCH])

    def texts(self, piece: FilePiece) -> Iterator[str | bytes | Malformed]:
        """Yields whole lines, a chunk of the file each: as bytes if bytes can be cut at newlines, else as text. A line that is too long
        is a `Malformed`.
        """
        with open_unpacked(piece.path) as file:
            texts: Iterator[str | bytes | Malformed]
            if self._charset in NEWLINE_SAFE:
                texts = self._line_bytes(file, piece)
            else:
                texts = self._decoded_lines(file, piece.path)
            if piece.start == 0 and (first := self._without_mark(next(texts, b""))):
                yield first
            yield from texts

    def _line_bytes(self, file: BinaryIO, piece: FilePiece) -> Iterator[bytes | Malformed]:
        """Yields whole lines whose first byte lies in the piece, as blocks of bytes."""
        most, stop = self.max_record_bytes, piece.stop
        chunk_bytes = min(self._chunk_bytes, most)
        position = _first_line(file, piece.start)
        while stop is None or position < stop:
            block = file.read(chunk_bytes if stop is None else min(chunk_bytes, stop - position))
            if not block:
                return
            begin = block.rfind(b"\n") + 1
            room = most - (len(block) - begin)
            rest = file.readline(room + 1) if begin < len(block) else b""
            if len(rest) <= room:
                position += len(block) + len(rest)
                yield block + rest
                continue
            if begin:
                yield block[:begin]
            yield self.too_long(piece.path, f"that begins at byte {position + begin}")
            position += len(block) + len(rest)
            while not rest.endswith(b"\n") and (rest := file.readline(CHUNK_BYTES)):
                position += len(rest)

    def _decoded_lines(self, file: BinaryIO, path: str) -> Iterator[str | Malformed]:
        """Yields whole lines of a file that cannot be cut, decoded while it is read."""
        decoder = codecs.getincrementaldecoder(self._charset)("replace")
        chunk_bytes = min(self._chunk_bytes, self.max_record_bytes)
        rest = ""
        position = 0
        is_skipping = False
        while data := file.read(chunk_bytes):
            position += len(data)
            text = rest + decoder.decode(data)
            end = text.rfind("\n") + 1
            begin = text.find("\n") + 1 if is_skipping else 0
            if end > begin:
                yield text[begin:end]
            is_skipping = is_skipping and not end
            rest = "" if is_skipping else text[end:]
            if len(rest) > self.max_record_bytes:
                yield self.too_long(path, f"that is at byte {position}")
                rest, is_skipping = "", True
        rest += decoder.decode(b"", final=True)
        if rest and not is_skipping:
            yield rest

    def _without_mark(self, text: str | bytes | Malformed) -> str | bytes | Malformed:
        """The beginning of a file without the byte order mark that some editors write."""
        if isinstance(text, Malformed):
            return text
        if isinstance(text, str):
            return text.removeprefix("\ufeff")
        return text.removeprefix(codecs.BOM_UTF8) if self._charset == "utf-8" else text

    def decoded(self, text: str | bytes) -> str:
        """One result of `texts`, as text."""
        return text.decode(self._charset, "replace") if isinstance(text, bytes) else text

    def is_exact(self, text: bytes) -> bool:
        """Whether all of it is of the charset."""
        if text.isascii():
            return True
        with contextlib.suppress(UnicodeDecodeError):
            return bool(text.decode(self._charset)) or not text
        return False

    def exact_lines(self, text: str | bytes) -> list[str | bytes]:
        """The lines of one result of `texts`. A line that is not of the charset stays bytes: no character is replaced."""
        if not isinstance(text, bytes):
            return [*split_lines(text)]
        with contextlib.suppress(UnicodeDecodeError):
            return [*split_lines(text.decode(self._charset))]
        lines = text.replace(b"\r\n", b"\n").split(b"\n")
        return [_exact(line, self._charset) for line in (lines if lines[-1] else lines[:-1])]

    def as_utf8(self, text: str | bytes) -> bytes:
        r"""One result of `texts` as UTF-8, with `\n` as the only line end."""
        if isinstance(text, bytes) and self._charset == "utf-8":
            with contextlib.suppress(UnicodeDecodeError):
                if not text.isascii():
                    text.decode()  # quick; raises if the bytes are not UTF-8
                return text if b"\r" not in text else text.replace(b"\r\n", b"\n")
        return self.decoded(text).replace("\r\n", "\n").encode()


class TextColumnFormat(TextLineFormat):
    """Reads lines as a column of strings, without making a Python object for any of them."""

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        for text in self.texts(piece):
            if isinstance(text, Malformed):
                yield MarkedRows([text])
                continue
            lines = _column_of(self.as_utf8(text))
            data = pa.RecordBatch.from_arrays([lines], names=["value"])
            for start in range(0, data.num_rows, COLUMN_ROWS):
                yield ColumnBatch(data.slice(start, COLUMN_ROWS), None)


def _column_of(text: bytes) -> pa.Array:
    """A column of the lines of a text in UTF-8."""
    newlines = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    ends = newlines - np.arange(len(newlines))  # positions in the text without newlines
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text) - len(newlines))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [pa.py_buffer(offsets), pa.py_buffer(text.replace(b"\n", b""))]
    return pa.StringArray.from_buffers(len(ends), *buffers)


def in_parts(text: bytes, parts: int) -> Iterator[bytes]:
    """Cut whole lines into parts of whole lines, of about equal size: at most `parts`."""
    size, start = len(text) // parts, 0
    while start < len(text):
        end = text.find(b"\n", start + size) + 1 or len(text)
        yield text[start:end]
        start = end


def _first_line(file: BinaryIO, start: int) -> int:
    """Moves to the first line that starts at or after `start`. Returns its position."""
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


def _exact(line: bytes, charset: str) -> str | bytes:
    with contextlib.suppress(UnicodeDecodeError):
        return line.decode(charset)
    return line


def split_lines(text: str) -> list[str]:
    r"""Lines without their ends; only `\n` and `\r\n` end a line."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines
