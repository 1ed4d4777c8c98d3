"""Which driver and which job a command is about: those of this user on this machine, or the one that `-m` names."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.ops.remote.client import RemoteError, RestClient
from penstock.ops.rest.address_book import drivers

ENDED: Final = ("FINISHED", "CANCELED", "FAILED", "SUSPENDED")
"""The statuses of a job that has ended."""
_PORT: Final = re.compile(r":\d+/?$")


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
        metavar="HOST:PORT",
        help="the driver's REST address; without it, the drivers of this user on this machine",
    )
    command.add_argument("--token", help="the driver's token, if it is not found by itself")
    command.add_argument(
        "--cacert", metavar="FILE", help="certificates to trust, in PEM, for an https address"
    )
    command.add_argument("--json", action="store_true", help="answer with JSON")


def add_job(command: argparse.ArgumentParser) -> None:
    """Add the job, which may be left out if there is only one."""
    command.add_argument(
        "job", nargs="?", help="id of the job, its beginning, or its name; needed if several run"
    )
    add_place(command)


def clients(options: argparse.Namespace) -> list[RestClient]:
    """Return the clients of all drivers that the command may be about. Raises RemoteError: there is none."""
    known = drivers()
    if options.jobmanager is not None:
        address = options.jobmanager
        if "://" not in address:
            if not _PORT.search(address):
                raise RemoteError(f"-m takes HOST:PORT, such as localhost:8081, got {address!r}")
            address = f"http://{address}"
        tokens = {one.address: one.token for one in known}
        return [RestClient(address, options.token or tokens.get(address), options.cacert)]
    if not known:
        raise RemoteError(
            "no driver of this user has a REST server on this machine. Name one with -m HOST:PORT."
        )
    return [RestClient(one.address, options.token or one.token, options.cacert) for one in known]


def is_session(client: RestClient) -> bool:
    """Whether a session answers there."""
    try:
        return bool(client.get("/session")["session"])
    except RemoteError:
        return False


def targets(options: argparse.Namespace) -> list[Target]:
    """Return all jobs of these drivers."""
    return [
        Target(client, job)
        for client in clients(options)
        for job in client.get("/jobs/overview")["jobs"]
    ]


def target(options: argparse.Namespace) -> Target:
    """Return the one job that is meant. Raises RemoteError: there is none, or more than one."""
    found = targets(options)
    wanted = options.job
    if wanted is None:
        meant = [one for one in found if one.overview["end-time"] < 0] or found
        what = "job"
    else:
        meant = [one for one in found if one.job_id.startswith(wanted.lower())]
        meant = meant or [one for one in found if one.overview["name"] == wanted]
        what = f"job {wanted!r}"
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(f"{one.job_id} '{one.overview['name']}'" for one in meant or found) or "none"
    if not meant:
        raise RemoteError(f"there is no {what}. Jobs: {names}")
    raise RemoteError(f"{len(meant)} jobs are meant by {what}: {names}. Name one.")


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
