"""The small part of protocol buffers that message ids and one command need: fields by number. Does not know messages."""

from __future__ import annotations

from collections.abc import Mapping

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode(fields: Mapping[int, int | str | bytes]) -> bytes:
    """In the order given."""
    out = bytearray()
    for number, value in fields.items():
        if isinstance(value, int):
            out += _varint(number << 3 | _VARINT) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | _BYTES) + _varint(len(data)) + data
    return bytes(out)


def decode(data: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a message. Raises: ValueError: the bytes are not a message."""
    found: dict[int, list[int | bytes]] = {}
    place = 0
    while place < len(data):
        key, place = _take_varint(data, place)
        value: int | bytes
        match key & 7:
            case 0:
                value, place = _take_varint(data, place)
            case 1 | 2 | 5:
                size = {_FIXED64: 8, _FIXED32: 4}.get(key & 7)
                if size is None:
                    size, place = _take_varint(data, place)
                value, place = data[place : place + size], place + size
                if len(value) < size:
                    raise ValueError("a field is cut off")
            case wire:
                raise ValueError(f"a field has the wire type {wire}")
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _take_varint(data: bytes, place: int) -> tuple[int, int]:
    """A number, as signed with 64 bits."""
    found = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            found &= (1 << 64) - 1
            return found - (1 << 64) if found >= 1 << 63 else found, place
    raise ValueError("a number is cut off")
