"""Control messages as bytes.

Messages are the dataclasses and named tuples of `engine.model.messages`, pickled as class and field values. The decoder
builds only those, ids, states and plain containers, so that a message cannot run code.

ControlWire: control messages as frames on an authenticated connection.

frame: length of the body (4 bytes), body
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from penstock.engine.model.errors import ExternalError, GraphError

MAX_MESSAGE: Final = 256 * 1024 * 1024
_OURS: Final = "penstock.engine.model."
_PLAIN: Final = frozenset({
    "int",
    "str",
    "bytes",
    "tuple",
    "list",
    "dict",
    "set",
    "frozenset",
    "bool",
    "float",
})


class _Reducers(dict[type, Callable[[Any], tuple[type, tuple[Any, ...]]]]):
    """How the pickler splits our dataclasses and enums: into class and field values, in order.

    The method that frozen dataclasses bring for this is Python code that visits all fields on both
    sides of the wire, three times as slow.
    """

    def __missing__(self, kind: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
        names = _positional_fields(kind)
        if names is None or not kind.__module__.startswith("penstock."):
            raise KeyError(kind)  # The pickler handles all other types as usual.
        if len(names) > 1:
            values = attrgetter(*names)
            self[kind] = lambda message: (kind, values(message))
        else:
            self[kind] = lambda message: (kind, tuple(getattr(message, name) for name in names))
        return self[kind]


def _positional_fields(kind: type) -> list[str] | None:
    """Return the fields that a constructor takes, in order; None: they are not all of the object."""
    if issubclass(kind, Enum):
        return ["value"]
    if not is_dataclass(kind) or not all(f.init and not f.kw_only for f in fields(kind)):
        return None
    return [field.name for field in fields(kind)]


_REDUCERS: Final = _Reducers()
_CLASSES: Final[dict[tuple[str, str], type]] = {}


class _Decoder(pickle.Unpickler):
    """Builds classes of penstock.engine.model and plain values; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        known = _CLASSES.get((module, name))
        if known is not None:
            return known
        is_ours = module.startswith(_OURS)
        is_plain = module == "builtins" and name in _PLAIN
        found = super().find_class(module, name) if (is_ours or is_plain) else None
        # Functions of such a module, and names that it imports, are not messages.
        if not isinstance(found, type) or found.__module__ != module or "." in name:
            raise ExternalError(
                f"a control message names {module}.{name}, which no message may hold"
            )
        _CLASSES[module, name] = found
        return found


def encode(message: object) -> bytes:
    """Encode a message. Raises GraphError if it is larger than `MAX_MESSAGE`."""
    body = io.BytesIO()
    pickler = pickle.Pickler(body, protocol=5)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(message)
    if body.tell() > MAX_MESSAGE:
        raise GraphError(
            f"{type(message).__name__} has {body.tell():,} bytes; a control message takes at most "
            f"{MAX_MESSAGE:,}"
        )
    return body.getvalue()


def decode(body: bytes) -> Any:
    """Decode a message. Raises ExternalError if it names a class that no message may hold."""
    return _Decoder(io.BytesIO(body)).load()


_LENGTH: Final = struct.Struct("!I")


def frame(message: object) -> bytes:
    """Return the message as a frame. Raises GraphError if it is larger than `MAX_MESSAGE`."""
    return frame_of(encode(message))


def frame_of(body: bytes) -> bytes:
    """Return a message that is encoded already as a frame."""
    return _LENGTH.pack(len(body)) + body


class ControlWire:
    """Reads the messages of one direction of a connection. One thread at a time may call `feed`."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the messages that are complete. They must all be taken before the next call.

        Raises: ExternalError: a frame is too long, or its body is no message. The messages before it
        were yielded. The connection must be closed then.
        """
        self._data += data
        while (end := self._end_of_first()) <= len(self._data):
            body = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            yield _message(body)

    def _end_of_first(self) -> int:
        if len(self._data) < _LENGTH.size:
            return _LENGTH.size
        size: int
        (size,) = _LENGTH.unpack_from(self._data)
        if size > MAX_MESSAGE:
            raise ExternalError(
                f"a control message of {size:,} bytes was announced, but at most "
                f"{MAX_MESSAGE:,} are allowed"
            )
        return _LENGTH.size + size


def _message(body: bytes) -> Any:
    try:
        return decode(body)
    except ExternalError:
        raise
    except Exception as error:  # Any error: pickle raises many kinds.
        raise ExternalError(f"a control message cannot be read: {error!r}") from error
