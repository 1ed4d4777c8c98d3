"""Control wire: one length-prefixed message after another, on an authenticated connection.

Messages are the dataclasses of `model.messages`, pickled as class and field values; the decoder builds nothing
but those, ids, states and plain containers, so that a message cannot run code. `MAX_MESSAGE` bounds what a
length may ask for.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from penstock.model.errors import ExternalError, GraphError

LENGTH: Final = struct.Struct("!I")
MAX_MESSAGE: Final = 256 * 1024 * 1024
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
    """How the pickler takes our dataclasses and enums apart: class and field values, in order.

    What a frozen dataclass brings for this is Python code that looks at all its fields on both sides of
    the wire, three times as slow.
    """

    def __missing__(self, kind: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
        names = _positional_fields(kind)
        if names is None or not kind.__module__.startswith("penstock."):
            raise KeyError(kind)  # the pickler goes its usual way
        if len(names) > 1:
            values = attrgetter(*names)
            self[kind] = lambda message: (kind, values(message))
        else:
            self[kind] = lambda message: (kind, tuple(getattr(message, name) for name in names))
        return self[kind]


def _positional_fields(kind: type) -> list[str] | None:
    """What its constructor takes, in order; None where that is not all of it."""
    if issubclass(kind, Enum):
        return ["value"]
    if not is_dataclass(kind) or not all(f.init and not f.kw_only for f in fields(kind)):
        return None
    return [field.name for field in fields(kind)]


_REDUCERS: Final = _Reducers()
_CLASSES: Final[dict[tuple[str, str], type]] = {}


class _Decoder(pickle.Unpickler):
    """Builds classes of penstock.model and plain values; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        known = _CLASSES.get((module, name))
        if known is not None:
            return known
        is_ours = (
            module.startswith("penstock.model.") or module == "penstock.hosting.network.frames"
        )
        is_plain = module == "builtins" and name in _PLAIN
        found = super().find_class(module, name) if (is_ours or is_plain) else None
        # what such a module imports, or a function of its own, is not a message
        if not isinstance(found, type) or found.__module__ != module or "." in name:
            raise ExternalError(
                f"a control message names {module}.{name}, which no message may hold"
            )
        _CLASSES[module, name] = found
        return found


def encode(message: object) -> bytes:
    """Length and body."""
    frame = io.BytesIO()
    frame.write(bytes(LENGTH.size))
    pickler = pickle.Pickler(frame, protocol=5)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(message)
    size = frame.tell() - LENGTH.size
    if size > MAX_MESSAGE:
        raise GraphError(
            f"{type(message).__name__} has {size:,} bytes; a control message takes at most "
            f"{MAX_MESSAGE:,}"
        )
    frame.seek(0)
    frame.write(LENGTH.pack(size))
    return frame.getvalue()


def decode(body: bytes) -> Any:
    return _Decoder(io.BytesIO(body)).load()


class MessageBuffer:
    """Bytes in, messages out, for a reader that gets them in any pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        self._data += data
        messages = []
        at = 0
        while len(self._data) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._data, at)
            if size > MAX_MESSAGE:
                raise ExternalError(f"a control message of {size:,} bytes was announced; refused")
            if len(self._data) - at - LENGTH.size < size:
                break
            at += LENGTH.size
            with memoryview(self._data) as view:  # one copy, not two
                body = bytes(view[at : at + size])
            messages.append(decode(body))
            at += size
        del self._data[:at]
        return messages
