"""Protocol buffers, as much as Pulsar's commands need: a message is a dict, its form a dict of `Field`s by name."""

from dataclasses import dataclass

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Field:
    """`kind`: int (64 bits, negative ones too), bytes, str, or the form of a message."""

    number: int
    kind: object
    is_repeated: bool = False


def encode(form, message):
    out = bytearray()
    for name, value in message.items():
        field = form[name]
        for one in value if field.is_repeated else [value]:
            if field.kind is int:
                out += varint(field.number << 3 | VARINT) + varint(one)
                continue
            data = one.encode() if field.kind is str else one
            if isinstance(field.kind, dict):
                data = encode(field.kind, one)
            out += varint(field.number << 3 | BYTES) + varint(len(data)) + data
    return bytes(out)


def decode(form, data):
    """What `form` does not have is passed over."""
    names = {field.number: name for name, field in form.items()}
    found, place = {}, 0
    while place < len(data):
        key, place = take_varint(data, place)
        value, place = _take(key & 7, data, place)
        name = names.get(key >> 3)
        if name is None:
            continue
        field = form[name]
        value = _as_kind(field.kind, value)
        if field.is_repeated:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def take_varint(data, place):
    found = shift = 0
    while True:
        byte = data[place]
        place += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (found - (1 << 64) if found >= 1 << 63 else found), place


def _take(wire, data, place):
    if wire == VARINT:
        return take_varint(data, place)
    size = {FIXED64: 8, FIXED32: 4}.get(wire)
    if size is None:
        assert wire == BYTES, f"wire type {wire}"
        size, place = take_varint(data, place)
    return bytes(data[place : place + size]), place + size


def _as_kind(kind, value):
    if kind is str:
        return value.decode()
    return decode(kind, value) if isinstance(kind, dict) else value
