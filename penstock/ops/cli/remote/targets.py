"""Which driver and which job a command is about: those of this user on this machine, or the one that `-m` names."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.ops.cli.remote.texts import complain
from penstock.ops.remote.client import RemoteError, RestClient
from penstock.ops.rest.address_book import KnownDriver, drivers

T = TypeVar("T")
ENDED: Final = ("FINISHED", "CANCELED", "FAILED", "SUSPENDED")
"""The statuses of a job that has ended."""
_PORT: Final = re.compile(r":\d+/?$")
_LOOK_S: Final = 2.0
"""How long a driver of this machine is waited for while one is looked for."""
_NO_DRIVER: Final = (
    "no driver of this user has a REST server on this machine. Name one with -m HOST:PORT."
)


@dataclass(frozen=True, slots=True)
class Target:
    """A job and the client of its driver. `overview`: its entry in the list of jobs."""

    client: RestClient
    overview: dict[str, Any]

    @property
    def job_id(self) -> str:
        return str(self.overview["jid"])

    @property
    def path(self) -> str:
        return f"/jobs/{self.job_id}"

    @property
    def is_running(self) -> bool:
        return self.overview["state"] not in ENDED

    def __str__(self) -> str:
        return f"{self.job_id} '{self.overview['name']}' {self.overview['state']}"


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    """Add a command that only asks drivers. `text`: its help."""
    added: argparse.ArgumentParser = commands.add_parser(name, help=text)
    added.set_defaults(asks=run)
    return added


def add_place(command: argparse.ArgumentParser) -> None:
    """Add the options that say where to ask, and how to answer."""
    command.add_argument(
        "-m",
        "--jobmanager",
        type=place,
        metavar="HOST:PORT",
        help="the driver's REST address; without it, the drivers of this user on this machine",
    )
    command.add_argument("--token", help="the driver's token, if it is not found by itself")
    command.add_argument(
        "--cacert", metavar="FILE", help="certificates to trust, in PEM, for an https address"
    )
    command.add_argument("--json", action="store_true", help="answer with JSON")


def place(text: str) -> str:
    """Return an address of the command line. Raises ArgumentTypeError: it has no port."""
    if "://" not in text and not _PORT.search(text):
        raise argparse.ArgumentTypeError(f"takes HOST:PORT, such as localhost:8081, got {text!r}")
    return text


def add_job(command: argparse.ArgumentParser) -> None:
    """Add the job, which may be left out if there is only one."""
    command.add_argument(
        "job", nargs="?", help="id of the job, its beginning, or its name; needed if several run"
    )
    add_place(command)


def clients(options: argparse.Namespace) -> list[RestClient]:
    """Return the clients of all drivers that the command may be about. Raises RemoteError: there is none."""
    return [client for client, _ in _places(options)]


def _places(options: argparse.Namespace) -> list[tuple[RestClient, KnownDriver | None]]:
    """Return the clients, each with its driver if that is one of this user on this machine. Raises RemoteError: there is none."""
    known = drivers()
    if options.jobmanager is not None:
        address = options.jobmanager
        if "://" not in address:
            address = f"http://{address}"
        there = next((one for one in known if one.address == address), None)
        token = options.token or (None if there is None else there.token)
        return [(RestClient(address, token, options.cacert), there)]
    if not known:
        raise RemoteError(_NO_DRIVER)
    return [
        (RestClient(one.address, options.token or one.token, options.cacert), one) for one in known
    ]


def answers(
    options: argparse.Namespace, ask: Callable[[RestClient], T]
) -> tuple[list[tuple[RestClient, T]], list[str]]:
    """Ask all drivers at once. Returns what they answer, and a sentence for each that does not answer within 2 s.

    Raises RemoteError: nobody answers. `ask`: raises RemoteError; its client waits no longer than that.
    """

    def look(client: RestClient, known: KnownDriver | None) -> T | RemoteError:
        if known is not None and known.is_stopped:
            return RemoteError("it is stopped")
        try:
            return ask(client if known is None else client.waiting(_LOOK_S))
        except RemoteError as error:
            return error

    places = _places(options)
    with ThreadPoolExecutor(len(places)) as pool:
        asked = [pool.submit(look, *place) for place in places]
    found, silent = [], []
    for (client, known), future in zip(places, asked, strict=True):
        answer = future.result()
        if not isinstance(answer, RemoteError):
            found.append((client, answer))
        elif known is None:
            raise answer
        elif known.is_alive:
            silent.append(_silence(known, answer))
    if not found:
        raise RemoteError("\n".join(silent) or _NO_DRIVER)
    return found, silent


def _silence(known: KnownDriver, error: RemoteError) -> str:
    who = f"the driver at {known.address} (process {known.pid}, {known.program})"
    if error.status:
        return f"{who} refuses: {error}"
    if known.is_stopped:
        return f"{who} does not answer: it is stopped. `kill -CONT {known.pid}` lets it continue."
    return (
        f"{who} does not answer within {_LOOK_S:.0f} s. It may be busy or ending: ask again. "
        f"`kill {known.pid}` ends it."
    )


def is_session(client: RestClient) -> bool:
    """Whether a session answers there."""
    try:
        return bool(client.get("/session")["session"])
    except RemoteError:
        return False


def overviews(client: RestClient) -> list[dict[str, Any]]:
    """Return a driver's jobs. Raises RemoteError."""
    found: list[dict[str, Any]] = client.get("/jobs/overview")["jobs"]
    return found


def target(options: argparse.Namespace) -> Target:
    """Return the one job that is meant. Raises RemoteError: there is none, or more than one, or it may be a silent driver's."""
    answered, silent = answers(options, overviews)
    found = [Target(client, job) for client, jobs in answered for job in jobs]
    wanted = options.job
    meant = _meant(found, wanted)
    what = "job" if wanted is None else f"job {wanted!r}"
    names = ", ".join(map(str, meant or found)) or "none"
    if not meant:
        raise RemoteError("\n".join([f"there is no {what}. Jobs: {names}", *silent]))
    if len(meant) > 1:
        raise RemoteError(f"{len(meant)} jobs are meant by {what}: {names}. Name one by its id.")
    if wanted is None and silent:
        raise RemoteError("\n".join([*silent, f"Jobs of the others: {names}. Name one."]))
    for sentence in silent:
        complain(sentence)
    return meant[0]


def _meant(found: Sequence[Target], wanted: str | None) -> list[Target]:
    """`wanted` None: the only one that runs. A name means those that run, if any does."""
    if wanted is None:
        return [one for one in found if one.is_running] or list(found)
    by_id = [one for one in found if one.job_id.startswith(wanted.lower())]
    named = [one for one in found if one.overview["name"] == wanted and one not in by_id]
    return by_id + ([one for one in named if one.is_running] or named)


def taskmanagers_of(one: Target) -> list[str]:
    """Return the ids of the job's TaskManagers; of a job that has ended, of those where its tasks ran last. Raises RemoteError."""
    ending = f"-{one.job_id[:6]}"
    there = [str(known["id"]) for known in one.client.get("/taskmanagers")["taskmanagers"]]
    found = {name for name in there if name.endswith(ending)} or {
        str(place["taskmanager-id"])
        for vertex in one.client.get(one.path)["vertices"]
        for place in one.client.get(f"{one.path}/vertices/{vertex['id']}/taskmanagers")[
            "taskmanagers"
        ]
    }
    return sorted(found - {"(unassigned)"}, key=_with_numbers)


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """A key by which tm-2 comes before tm-10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
