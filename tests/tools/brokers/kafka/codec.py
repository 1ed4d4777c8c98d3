"""Kafka's primitive types, big-endian; compact ones as far as lengths are below 127."""

import struct


class Reader:
    def __init__(self, data):
        self.data = data
        self.place = 0

    def take(self, form):
        found = struct.unpack_from(">" + form, self.data, self.place)
        self.place += struct.calcsize(">" + form)
        return found if len(found) > 1 else found[0]

    def text(self):
        size = self.take("h")
        return None if size < 0 else self._bytes(size).decode()

    def blob(self):
        size = self.take("i")
        return None if size < 0 else self._bytes(size)

    def array(self, item):
        count = self.take("i")
        return None if count < 0 else [item() for _ in range(count)]

    def compact_text(self):
        return self._bytes(self.take("B") - 1).decode()

    def compact_array(self, item):
        return [item() for _ in range(self.take("B") - 1)]

    def _bytes(self, size):
        found = self.data[self.place : self.place + size]
        self.place += size
        return bytes(found)


def pack(form, *values):
    return struct.pack(">" + form, *values)


def text(value):
    if value is None:
        return pack("h", -1)
    data = value.encode()
    return pack("h", len(data)) + data


def blob(value):
    return pack("i", -1) if value is None else pack("i", len(value)) + value


def array(items):
    items = list(items)
    return pack("i", len(items)) + b"".join(items)


def compact_text(value):
    data = value.encode()
    return pack("B", len(data) + 1) + data


def compact_array(items):
    items = list(items)
    return pack("B", len(items) + 1) + b"".join(items)
