"""`penstock logs`: the logs of a job's driver and TaskManagers, or of one of them, also while they are written.

Source: `kubectl logs`, `tail -F`; Flink shows logs in its dashboard only.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from penstock.ops.cli.remote.targets import (
    ENDED,
    Target,
    add_command,
    add_place,
    target,
    taskmanagers_of,
)
from penstock.ops.cli.remote.texts import complain, seconds, show, shown
from penstock.ops.remote.client import FilePart, LateAnswer, RemoteError, RestClient

# ---------------------------------------------------------------------- log reading
# One log of a process, read over REST: its last lines, and what is added to it later.
#
# A log rolls: a new file takes its name, and the former one gets a number. A TaskManager that
# dies leaves its last lines to the driver. So each look asks for the bytes that were read last,
# too: if they are not there any more, it is another file, and these bytes are looked for where
# they may be now.


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
        """Return the end of a file, with at least `count` lines, or the whole file."""
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
    """Return where in `data` ends what was read last; it may begin within it. None: `data` has nothing from there."""
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


# ---------------------------------------------------------------------- logs


_USUAL_LINES: Final = 100
_TASKMANAGER: Final = re.compile(r"(.+)-([0-9a-f]{6})")
_DRIVER: Final = "driver"
_QUIET_LOOKS: Final = 2
_MOST_LOOKS: Final = 10
"""After the end of the job: its TaskManagers hand their last lines over while they end."""


@dataclass(slots=True)
class _Source:
    """One log that a command follows.

    `name`: who writes the log. `misses`: how often in a row nothing came of a process that is not among those of the job.
    """

    name: str
    log: Log
    misses: int = 0

    @property
    def is_over(self) -> bool:
        return self.misses >= _MOST_LOOKS


def logs(options: argparse.Namespace) -> int:
    """`penstock logs`. Ctrl-C ends following, and is no error. Returns 1 if there is no log at all."""
    one, named = _whose(options)
    sources = {source.name: source for source in _sources(one, named, options)}
    found = {
        name: lines for name in sources if (lines := _first(sources[name], options)) is not None
    }
    if not found and not options.follow:
        what = "output" if options.stdout else "log"
        raise RemoteError(f"{named or f'job {one.job_id}'} has no {what} that can be read now")
    if not options.follow:
        value = [{"log": name, "lines": lines} for name, lines in found.items()]
        return shown(value, options, "\n".join(_shown_lines(found, len(sources) > 1)))
    with suppress(KeyboardInterrupt):
        for name, lines in found.items():
            _print(name, lines, options, is_named=named is None)
        _follow(one, named, sources, options)
    return 0


def _whose(options: argparse.Namespace) -> tuple[Target, str | None]:
    """Return the job, and the one process that is meant; None: all of the job."""
    if options.driver:
        return target(options), _DRIVER
    parts = _TASKMANAGER.fullmatch(options.job or "")
    if parts is not None:
        name = options.job
        with suppress(RemoteError):  # A job may have such a name.
            return target(argparse.Namespace(**{**vars(options), "job": parts[2]})), name
    return target(options), None


def _sources(one: Target, named: str | None, options: argparse.Namespace) -> Iterator[_Source]:
    """The logs that there are now. Raises RemoteError."""
    if named in {None, _DRIVER}:
        log = Log(one.client, "/jobmanager", is_stdout=options.stdout)
        yield _Source(_DRIVER, log)
    if named == _DRIVER:
        return
    for name in taskmanagers_of(one) if named is None else [named]:
        yield _Source(name, Log(one.client, f"/taskmanagers/{name}", is_stdout=options.stdout))


def _first(source: _Source, options: argparse.Namespace) -> list[str] | None:
    """Return the last lines of a log; None: it cannot be read, for example because the process writes none."""
    try:
        found = source.log.last_lines(options.lines)
    except RemoteError:
        return None
    if options.follow or not options.lines:
        return found
    return [*found, *source.log.rest()][-options.lines :]


def _follow(
    one: Target, named: str | None, sources: dict[str, _Source], options: argparse.Namespace
) -> None:
    """Print what is added to the logs until the job has ended."""
    quiet = looks = 0
    while quiet < _QUIET_LOOKS and looks < _MOST_LOOKS:
        time.sleep(options.interval)
        try:
            ended = one.client.get(f"{one.path}/status")["status"] in ENDED
        except LateAnswer as error:
            complain(str(error))
            continue
        except RemoteError:
            complain(f"the driver at {one.client.address} has ended")
            break
        is_new = _look(one, named, sources, options)
        if ended:
            looks += 1
            quiet = 0 if is_new else quiet + 1
    for source in sources.values():
        _print(source.name, source.log.rest(), options, is_named=named is None)


def _look(
    one: Target, named: str | None, sources: dict[str, _Source], options: argparse.Namespace
) -> bool:
    """Print what is new, of TaskManagers that are new too. Returns: whether there was anything."""
    is_new = False
    present = dict(sources)
    with suppress(RemoteError):
        present = {source.name: source for source in _sources(one, named, options)}
    for source in present.values():
        sources.setdefault(source.name, source)
    for source in sources.values():
        if source.is_over:
            continue
        lines: list[str] = []
        with suppress(RemoteError):  # It writes no log, or has just died.
            lines = source.log.new_lines()
        source.misses = 0 if lines or source.name in present else source.misses + 1
        is_new = is_new or bool(lines)
        _print(source.name, lines, options, is_named=named is None)
    return is_new


def _print(name: str, lines: Iterable[str], options: argparse.Namespace, *, is_named: bool) -> None:
    for line in lines:
        if options.json:
            show(json.dumps({"log": name, "line": line}, ensure_ascii=False))
        else:
            show(f"{name} | {line}" if is_named else line)


def _shown_lines(found: dict[str, list[str]], is_named: bool) -> Iterator[str]:
    for name, lines in found.items():
        yield from (f"{name} | {line}" if is_named else line for line in lines)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of lines, got {text!r}")
    return int(text)


def add_logs(commands: Any) -> None:
    """Add the command to the command line."""
    text = "show the logs of a job's driver and TaskManagers, or of one of them"
    added = add_command(commands, "logs", logs, text)
    added.add_argument(
        "job", nargs="?",
        help="id of the job, its beginning, or its name; or of a TaskManager, for example "
        "tm-1-7e7cae; needed if several jobs run",
    )  # fmt: skip
    added.add_argument("--driver", action="store_true", help="the driver's log only")
    added.add_argument(
        "-f", "--follow", action="store_true",
        help="continue with what is added, until the job ends or Ctrl-C",
    )  # fmt: skip
    added.add_argument(
        "-n", "--lines", type=_count, default=_USUAL_LINES,
        help=f"how many of the last lines of each log ({_USUAL_LINES})",
    )  # fmt: skip
    added.add_argument(
        "--stdout", action="store_true", help="what functions have printed, instead of the log"
    )
    added.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS",
        help="how often to look for more (1)",
    )  # fmt: skip
    add_place(added)
