"""One log of a process, read over REST: its last lines, and what is added to it later.

A log rolls: a new file takes its name, and the former one gets a number. A TaskManager that dies leaves its last lines to the
driver. So each look asks for the bytes that were read last, too: if they are not there any more, it is another file, and
these bytes are looked for where they may be now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.hosting.remote.client import FilePart, RemoteError, RestClient

_FIRST_LOOK: Final = 1 << 16
_KEPT: Final = 512
"""How many of the bytes read last are compared."""
_MOST_ROLLED: Final = 100
GAP: Final = "(lines are missing here: the log has been rolled away)"


class Log:
    """One log. `path`: of the process. Raises RemoteError everywhere: it cannot be read now."""

    def __init__(self, client: RestClient, path: str, *, is_stdout: bool = False) -> None:
        self._client = client
        self._files = f"{path}/logs"
        self._current = f"{path}/stdout" if is_stdout else f"{path}/log"
        self._name = ""
        self._at = 0
        self._last = b""
        self._begun = b""

    def last_lines(self, count: int) -> list[str]:
        """Return the newest lines, those of rolled files included. What comes later is new."""
        part = self._tail(self._current, count)
        if part is None:
            return []
        self._name = part.name
        self._take(part.begin, part.data)
        data = part.data
        rolled = 1
        while part.begin == 0 and part.name and data.count(b"\n") < count:
            older = self._tail_if_there(f"{self._files}/{part.name}.{rolled}", count)
            if older is None or rolled >= _MOST_ROLLED:
                break
            data = older.data + data
            if older.begin:
                break
            rolled += 1
        whole, end, self._begun = data.rpartition(b"\n")
        lines = whole.split(b"\n") if end else []
        return [_text(line) for line in lines[max(0, len(lines) - count) :]]

    def new_lines(self) -> list[str]:
        """Return the whole lines that have been added since the last look."""
        data = self._begun + self._new()
        whole, end, self._begun = data.rpartition(b"\n")
        return [_text(line) for line in whole.split(b"\n")] if end else []

    def rest(self) -> list[str]:
        """Return the line that has begun and has no end, if there is one."""
        begun, self._begun = self._begun, b""
        return [_text(begun)] if begun else []

    # ------------------------------------------------------------------ what is new

    def _new(self) -> bytes:
        found = self._behind(self._current)
        if found is not None:
            return found
        if self._at == 0:  # Nothing has been read yet, and nothing is there.
            return b""
        return self._of_other_files()

    def _behind(self, path: str) -> bytes | None:
        """Return what follows what was read last; None: that is not in this file at its place."""
        begin = self._at - len(self._last)
        part = self._client.file(path, begin)
        if part is None or not part.data.startswith(self._last):
            return None
        if self._name and part.name and path == self._current and part.name != self._name:
            return None
        self._name = self._name or part.name
        new = part.data[len(self._last) :]
        self._take(self._at, new)
        return new

    def _of_other_files(self) -> bytes:
        """The log has rolled, or its process has ended and only its last lines are kept."""
        current = self._client.file(self._current)
        if current is not None and current.name != self._name:
            return self._of_kept_lines(current)
        rolled: list[FilePart] = []
        for number in range(1, _MOST_ROLLED):
            older = self._rolled(number)
            if older is None:
                break
            rolled.insert(0, older)
            if self._is_of(older):
                break
        found = b"".join(part.data for part in rolled)
        is_whole = bool(rolled) and self._is_of(rolled[0])
        if is_whole:
            found = found[self._at :]
        self._at, self._last = 0, b""
        if current is not None:
            self._take(0, current.data)
            found += current.data
        return found if is_whole else GAP.encode() + b"\n" + found

    def _of_kept_lines(self, current: FilePart) -> bytes:
        known = _end_of_known(current.data, self._last)
        self._name, self._at, self._last = current.name, 0, b""
        self._take(0, current.data)
        return GAP.encode() + b"\n" + current.data if known is None else current.data[known:]

    def _rolled(self, number: int) -> FilePart | None:
        return self._whole_if_there(f"{self._files}/{self._name}.{number}")

    def _is_of(self, part: FilePart) -> bool:
        """Whether this file has what was read last, at its place."""
        begin = self._at - len(self._last)
        return part.data[begin : self._at] == self._last

    def _take(self, at: int, data: bytes) -> None:
        """`data` has been read from `at` on."""
        self._at = at + len(data)
        self._last = (self._last + data)[-_KEPT:]

    # ------------------------------------------------------------------ files

    def _tail(self, path: str, count: int) -> FilePart | None:
        """Return the end of a file, with at least so many lines, or the whole file."""
        length = _FIRST_LOOK
        while True:
            part = self._client.file(path, -length)
            if part is None or part.begin == 0 or part.data.count(b"\n") > count:
                return part
            length *= 4

    def _tail_if_there(self, path: str, count: int) -> FilePart | None:
        return _unless_missing(lambda: self._tail(path, count))

    def _whole_if_there(self, path: str) -> FilePart | None:
        return _unless_missing(lambda: self._client.file(path))


def _end_of_known(data: bytes, last: bytes) -> int | None:
    """Return where in `data` ends what was read last; it may begin within it. None: nothing of it is there."""
    at = data.rfind(last)
    if at >= 0:
        return at + len(last)
    starts = (begin for begin in range(1, len(last)) if data.startswith(last[begin:]))
    begin = next(starts, None)
    return None if begin is None else len(last) - begin


def _unless_missing(read: Callable[[], FilePart | None]) -> FilePart | None:
    """Return what is read; None: the file is not there. Raises RemoteError."""
    try:
        return read()
    except RemoteError as error:
        if error.status == 404:
            return None
        raise


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").removesuffix("\r")
