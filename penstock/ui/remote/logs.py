"""`penstock logs`: the logs of a job's driver and TaskManagers, or of one of them, also while they are written.

Source: `kubectl logs`, `tail -F`; Flink shows logs in its dashboard only.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from penstock.hosting.remote.client import RemoteError
from penstock.ui.remote.log_reading import Log
from penstock.ui.remote.targets import ENDED, Target, add_place, target, taskmanagers_of
from penstock.ui.remote.texts import complain, seconds, shown

_USUAL_LINES: Final = 100
_TASKMANAGER: Final = re.compile(r"(.+)-([0-9a-f]{6})")
_DRIVER: Final = "driver"
_QUIET_LOOKS: Final = 2
_MOST_LOOKS: Final = 10
"""After the end of the job: its TaskManagers hand their last lines over while they end."""


@dataclass(slots=True)
class _Source:
    """`name`: who writes the log. `misses`: how often in a row nothing came of a process that is not among those of the job."""

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
        told = [{"log": name, "lines": lines} for name, lines in found.items()]
        return shown(told, options, "\n".join(_told(found, len(sources) > 1)))
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
            print(json.dumps({"log": name, "line": line}, ensure_ascii=False), flush=True)
        else:
            print(f"{name} | {line}" if is_named else line, flush=True)


def _told(found: dict[str, list[str]], is_named: bool) -> Iterator[str]:
    for name, lines in found.items():
        yield from (f"{name} | {line}" if is_named else line for line in lines)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of lines, got {text!r}")
    return int(text)


def add_logs(commands: Any) -> None:
    """Add the command to the command line."""
    tells = commands.add_parser(
        "logs", help="show the logs of a job's driver and TaskManagers, or of one of them"
    )
    tells.add_argument(
        "job", nargs="?",
        help="id of the job, its beginning, or its name; or of a TaskManager, for example "
        "tm-1-7e7cae; needed if several jobs run",
    )  # fmt: skip
    tells.add_argument("--driver", action="store_true", help="the driver's log only")
    tells.add_argument(
        "-f", "--follow", action="store_true",
        help="go on with what is added, until the job ends or Ctrl-C",
    )  # fmt: skip
    tells.add_argument(
        "-n", "--lines", type=_count, default=_USUAL_LINES,
        help=f"how many of the last lines of each log ({_USUAL_LINES})",
    )  # fmt: skip
    tells.add_argument(
        "--stdout", action="store_true", help="what functions have printed, instead of the log"
    )
    tells.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS",
        help="how often to look for more (1)",
    )  # fmt: skip
    add_place(tells)
