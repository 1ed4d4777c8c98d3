"""Operations that take their time: a request starts one and gets an id, and later requests ask how it went.

Each waits on a thread of its own. Results are kept for `rest.async.store-duration` after their end. Source: Flink
CompletedOperationCache, AsynchronousOperationResult.
"""

from __future__ import annotations

import base64
import re
import struct
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.model.errors import PenstockError
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.rest.answers import RestError

# ---------------------------------------------------------------------- java throwable
# An error as Flink's Java client reads it: a serialized
# org.apache.flink.util.SerializedThrowable.
#
# The client prints the text of the error, and fails without it. The bytes follow the Java Object
# Serialization Stream Protocol; names, fields and serial numbers are those of Flink 2.3 and of
# Java's own classes.


_MAGIC: Final = b"\xac\xed\x00\x05"
_OBJECT, _CLASS, _STRING, _ARRAY, _REFERENCE = b"s", b"r", b"t", b"u", b"q"
_NULL, _END = b"p", b"x"
_MOST_BYTES: Final = 65_535
_STRING_TYPE: Final = b"q\x00\x7e\x00\x01"
"""A reference to the first string of the stream: the type name `Ljava/lang/String;`."""
_PLAIN, _WITH_DATA = b"\x02", b"\x03"
"""A class is serializable; it writes data of its own after its fields."""


def serialized_throwable(text: str, kind: str = "org.apache.flink.util.FlinkException") -> str:
    """Return an error with this text, in base64. `kind`: the name of the class that it stands for."""
    stream = (
        _MAGIC
        + _OBJECT
        + _class("org.apache.flink.util.SerializedThrowable", 0x65169DF51FA713F3, _PLAIN, 3)
        + _field(b"L", "fullStringifiedStackTrace", _string("Ljava/lang/String;"))
        + _field(b"L", "originalErrorClassName", _STRING_TYPE)
        + _field(b"[", "serializedException", _string("[B"))
        + _END
        + _class("java.lang.Exception", 0xD0FD1F3E1A3B1CC4, _PLAIN, 0)
        + _END
        + _class("java.lang.Throwable", 0xD5C635273977B8CB, _WITH_DATA, 4)
        + _field(b"L", "cause", _string("Ljava/lang/Throwable;"))
        + _field(b"L", "detailMessage", _STRING_TYPE)
        + _field(b"[", "stackTrace", _string("[Ljava/lang/StackTraceElement;"))
        + _field(b"L", "suppressedExceptions", _string("Ljava/util/List;"))
        + _END
        + _NULL  # Throwable has no super class that is serializable.
        + _NULL  # cause
        + _string(text)
        + _ARRAY
        + _class("[Ljava.lang.StackTraceElement;", 0x02462A3C3CFD2239, _PLAIN, 0)
        + _END
        + _NULL
        + struct.pack(">i", 0)
        + _OBJECT
        + _class("java.util.Collections$EmptyList", 0x7AB817B43CA79EDE, _PLAIN, 0)
        + _END
        + _NULL
        + _END  # of Throwable's own data
        + _string(text)
        + _string(kind)
        + _NULL  # serializedException: there is no Java object
    )
    return base64.b64encode(stream).decode("ascii")


def _class(name: str, serial: int, flags: bytes, fields: int) -> bytes:
    return _CLASS + _utf(name) + struct.pack(">Q", serial) + flags + struct.pack(">h", fields)


def _field(kind: bytes, name: str, type_name: bytes) -> bytes:
    return kind + _utf(name) + type_name


def _string(text: str) -> bytes:
    return _STRING + _utf(text)


def _utf(text: str) -> bytes:
    """Return Java's modified UTF-8 with its length before it, cut to what two bytes can count."""
    units = text.encode("utf-16-be", "surrogatepass")
    written = bytearray()
    for (unit,) in struct.iter_unpack(">H", units):
        if 0 < unit < 0x80:
            one = bytes([unit])
        elif unit < 0x800:
            one = bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
        else:
            one = bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])
        if len(written) + len(one) > _MOST_BYTES:
            break
        written += one
    return struct.pack(">H", len(written)) + written


# ---------------------------------------------------------------------- operations


MOST_AT_ONCE: Final = 100
_TRIGGER: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class _Operation:
    """An operation that takes its time.

    `subject`: of which only requests with the same subject may ask. `ended_s` None: it runs. `is_read`: its result was asked for.
    """

    subject: str
    is_read: bool = False
    result: dict[str, Any] | None = None
    ended_s: float | None = None


class Operations:
    """All operations of a driver. Any thread."""

    def __init__(self, keeps_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keeps_s = keeps_s
        self._clock = clock
        self._lock = threading.Condition()
        self._known: dict[str, _Operation] = {}

    def start(
        self,
        subject: str,
        work: Callable[[], dict[str, Any]],
        trigger_id: str | None = None,
        failure_key: str = "failure-cause",
    ) -> str:
        """Start `work` on a thread, and return the id of the operation.

        `work` returns the fields of the result; if it raises, the result is the error under `failure_key`. An id that is known
        already starts nothing: the client has asked a second time. Raises RestError: the id is no id, or too many run.
        """
        key = (trigger_id or uuid.uuid4().hex).lower()
        if _TRIGGER.fullmatch(key) is None:
            raise RestError(400, f"triggerId is {trigger_id!r}, expected 32 hexadecimal digits.")
        with self._lock:
            self._expire()
            if key in self._known:
                return key
            if sum(one.ended_s is None for one in self._known.values()) >= MOST_AT_ONCE:
                raise RestError(503, f"{MOST_AT_ONCE} operations are running. Ask again later.")
            operation = self._known[key] = _Operation(subject)
        threading.Thread(
            target=self._run,
            args=(operation, work, failure_key),
            name=f"penstock-rest-{key[:6]}",
            daemon=True,
        ).start()
        return key

    def status(self, subject: str, trigger_id: str) -> dict[str, Any]:
        """Return the status in Flink's form. Raises RestError: there is no such operation."""
        with self._lock:
            self._expire()
            operation = self._known.get(trigger_id)
            if operation is None or operation.subject != subject:
                raise RestError(404, f"Operation not found under key: {trigger_id}")
            if operation.result is None:
                return {"status": {"id": "IN_PROGRESS"}, "operation": None}
            operation.is_read = True
            self._lock.notify_all()
            return {"status": {"id": "COMPLETED"}, "operation": operation.result}

    @property
    def is_any_known(self) -> bool:
        """Whether a result is kept, or an operation runs."""
        return bool(self._known)

    def wait_until_read(self, timeout_s: float) -> bool:
        """Wait until somebody has asked for every result. Returns whether that is so.

        A program that is stopped by a request ends at once; the client that asked for it still waits for its answer.
        """
        with self._lock:
            return self._lock.wait_for(self._are_all_read, timeout_s)

    def _are_all_read(self) -> bool:
        return all(one.is_read for one in self._known.values())

    def _run(
        self, operation: _Operation, work: Callable[[], dict[str, Any]], failure_key: str
    ) -> None:
        try:
            result = work()
        except Exception as error:  # It is the operation's result.
            result = {failure_key: throwable_of(error)}
        with self._lock:
            operation.result = result
            operation.ended_s = self._clock()

    def _expire(self) -> None:
        oldest_s = self._clock() - self._keeps_s
        for key, one in list(self._known.items()):
            if one.ended_s is not None and one.ended_s < oldest_s:
                del self._known[key]


def throwable_of(error: BaseException) -> dict[str, str]:
    """Return an error in the form that Flink's client needs."""
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    is_ours = isinstance(error, PenstockError)  # Its text says all; its module means nothing.
    text = str(error) if is_ours else "".join(traceback.format_exception_only(error)).strip()
    return throwable(name, text)


def throwable(name: str, text: str) -> dict[str, str]:
    """Return an error of this class name and text in the form that Flink's client needs. Credentials in addresses are hidden."""
    shown = without_credentials(text)
    return {
        "class": name,
        "stack-trace": shown,
        "serialized-throwable": serialized_throwable(shown),
    }
