"""JSON data as bytes, in pieces between which other threads run: a job's control loop must not wait for a large answer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

from penstock.ops.jobs.views.rows import Rows

_VALUES_AT_A_TIME: Final = 1000
"""They take well below a millisecond."""
_ROWS_AT_A_TIME: Final = 20
_BLOCK_BYTES: Final = 1 << 16
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def pieces_of(body: Any) -> Iterator[bytes]:
    """Write JSON data in pieces, none of which takes long, however lists and objects are nested."""
    if _count(body) <= _VALUES_AT_A_TIME or not body:
        yield encoded(body)
    elif isinstance(body, list | tuple | Rows):
        yield b"["
        for number, part in enumerate(_parts(body)):
            yield b", " if number else b""
            yield from (encoded(part)[1:-1],) if len(part) > 1 else pieces_of(part[0])
        yield b"]"
    elif isinstance(body, dict):
        yield b"{"
        for number, keys in enumerate(_parts(body.items())):
            yield b", " if number else b""
            if len(keys) > 1:
                yield encoded(dict(keys))[1:-1]
            else:
                ((key, value),) = keys
                yield encoded({key: 0})[1:-2]
                yield from pieces_of(value)
        yield b"}"
    else:
        yield encoded(body)


def pieces_of_archive(entries: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """Write the archive of a job in pieces, none of which takes long: a list of paths and answers. An answer is JSON, written as a text.

    Source: Flink FsJsonArchivist, ArchivedJson.
    """
    before = b'{"archive": ['
    for path, answer in entries:
        yield before + b'{"path": ' + encoded(path) + b', "json": "'
        for piece in pieces_of(answer):
            yield json.dumps(piece.decode())[1:-1].encode()
        yield b'"}'
        before = b", "
    yield b"]}"


def blocks_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join neighbours to blocks, for who pays for each: an answer that another thread makes crosses to the server's for each block."""
    block = bytearray()
    for piece in pieces:
        block += piece
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _parts(elements: Iterable[Any]) -> Iterator[list[Any]]:
    """Put neighbours together. What is too large for one piece is alone."""
    part: list[Any] = []
    total = 0
    for element in elements:
        count = _count(element)
        if part and total + count > _VALUES_AT_A_TIME:
            yield part
            part, total = [], 0
        part.append(element)
        total += count
    if part:
        yield part


def _count(value: Any) -> int:
    """How many values it has, its lists and objects included; more than a piece takes are not counted on."""
    total, waiting = 1, [value]
    while waiting and total <= _VALUES_AT_A_TIME:
        one = waiting.pop()
        kind = type(
            one
        )  # An abstract base class such as Sequence makes isinstance slow for each that is none.
        if kind is Rows and len(one) > _ROWS_AT_A_TIME:
            return _VALUES_AT_A_TIME + 1
        if isinstance(one, dict):
            one = one.values()
        elif kind is not Rows and not isinstance(one, list | tuple):
            continue
        total += len(one)
        waiting += [inner for inner in one if type(inner) not in _PLAIN]
    return total


def encoded(value: Any) -> bytes:
    """Return JSON data as bytes, at once. It may have `Rows`. What is no finite number is a text, as in Flink: JSON has no word for it."""
    try:
        return _dumped(value)
    except ValueError:  # It has a number that is not finite.
        return _dumped(_with_texts(value))


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_listed).encode()


def _with_texts(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _with_texts(one) for key, one in value.items()}
    if isinstance(value, list | tuple | Rows):
        return [_with_texts(one) for one in value]
    return value


def _listed(value: object) -> list[Any]:
    if isinstance(value, Rows):
        return list(value)
    raise TypeError(f"an answer has a {type(value).__name__}, which is no JSON")
