"""Texts of what users made, for messages: bounded in size, and made without trust in the user's
code.

A `__str__` or `__repr__` may raise, may return hundreds of megabytes, and may never end. None of
this may hide the error that is to be reported. Does not know who reports it. A call that never
leaves C code cannot be stopped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import islice
from types import FrameType
from typing import Any, Final

from penstock.engine.model.errors import CancelSignal
from penstock.engine.model.row import Row, make_row

MOST_OF_RECORD: Final = 500
"""Characters of a record in an error text."""
MOST_OF_ERROR: Final = 16 * 1024
"""Characters of the own text of one exception."""
MOST_OF_MESSAGE: Final = 64 * 1024
"""Characters of a failure that is sent, logged or kept."""
MOST_OF_LINE: Final = 256 * 1024
"""Characters of a line that is printed."""
_STEERS: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)
"""Control characters; separators of lines and the overrides of Unicode's bidirectional algorithm; half characters."""
_MOST_STEPS: Final = 2_000_000
_DEPTH: Final = 6
_CONTAINERS: Final = frozenset({Row, tuple, list, dict, set, frozenset})


class _DoesNotEnd(BaseException):
    """Stops a text that takes too many steps. Not an Exception, so that the user's code does not catch it."""


class _Shown:
    """Stands in for a long value in a repr."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and how much is missing. Half characters that UTF-8 does not have become escapes.

    Args: limit: characters that are kept.
    """
    if len(text) <= limit:
        return _encodable(text)
    return f"{_encodable(text[:limit])}{_cut_note(len(text) - limit)}"


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning and an ellipsis, with at most `limit` characters: for a place in one line."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def cut_lines(text: str, limit: int) -> str:
    """The text, or its beginning and its end, with a line between them that says how much is missing.

    The beginning of a traceback has the first cause, the end has the error itself. What is not `printable` becomes escapes.
    """
    if len(text) <= limit:
        return printable(text)
    head, tail = limit // 4, limit - limit // 4
    parts = text[:head], _cut_note(len(text) - limit).strip(), text[-tail:]
    return printable("\n".join(parts))


def printable(text: str) -> str:
    """The text without what steers a terminal or reorders what it shows: escapes stand for such characters, in JSON's form.

    Whoever may send a record, or name a job, would write to the user's terminal otherwise. Ends of lines and tabs stay. Half
    characters, which no file or connection takes, become escapes too.
    """
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _encodable(text: str) -> str:
    """The text as any file, log and connection takes it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def bounded_repr(value: Any, limit: int = MOST_OF_RECORD) -> str:
    """The repr of a value, cut to `limit` characters. If repr raises or does not end, a substitute is returned."""
    return _made(lambda: repr(_shrunk(value, limit, _DEPTH)), value, "repr", limit)


def bounded_str(value: Any, limit: int = MOST_OF_ERROR) -> str:
    """The str of a value, cut to `limit` characters. If str raises or does not end, a substitute is returned."""
    return _made(lambda: str(value), value, "str", limit)


def ends(value: Any) -> bool:
    """Whether the str of a value can be made, and is not large."""
    try:
        return len(_in_bounded_steps(lambda: str(value))) <= MOST_OF_ERROR
    except CancelSignal:
        raise
    except _DoesNotEnd:
        return False
    except BaseException:
        return True


def _made(make: Callable[[], str], value: Any, what: str, limit: int) -> str:
    try:
        text = _in_bounded_steps(make)
    except CancelSignal:
        raise
    except _DoesNotEnd:
        text = f"<{_kind(value)} whose {what} took too long>"
    except BaseException as error:
        text = f"<{_kind(value)} whose {what} raised {type(error).__name__}>"
    return cut(text, limit)


def _cut_note(characters: int) -> str:
    amount = f"{characters / 1e6:,.0f} million" if characters >= 10_000_000 else f"{characters:,}"
    return f" … cut: {amount} characters"


def _kind(value: Any) -> str:
    return cut(type(value).__qualname__, 200)


def _shrunk(value: Any, limit: int, depth: int) -> Any:
    """A value whose repr begins as that of the given one, but is not much longer than the limit where Python's own containers
    make it long.
    """
    kind = type(value)
    if kind in {str, bytes, bytearray} and len(value) > limit:
        return _Shown(f"{value[:limit]!r}{_cut_note(len(value) - limit)}")
    if depth == 0 or kind not in _CONTAINERS:
        return value
    if kind is dict:
        return {
            _shrunk(key, limit, 0): _shrunk(item, limit, depth - 1)
            for key, item in islice(value.items(), limit)
        }
    if kind in {set, frozenset}:
        return kind(islice(value, limit)) if len(value) > limit else value
    parts = [_shrunk(one, limit, depth - 1) for one in islice(value, limit)]
    return make_row(value._fields, parts, value.get_row_kind()) if kind is Row else kind(parts)


def _in_bounded_steps(make: Callable[[], str]) -> str:
    """What this returns. It is stopped after very many instructions.

    No context manager of a generator: Python would trace the generator too, up to the call that ends tracing. Python 3.12 crashes at
    that when two threads do it.
    """
    left = _MOST_STEPS

    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True  # A loop of one line has no other events.
        left -= 1
        if left < 0:
            raise _DoesNotEnd
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        return make()
    finally:
        sys.settrace(former)
