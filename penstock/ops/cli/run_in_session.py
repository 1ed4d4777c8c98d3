"""`penstock run -m`: the program runs here, and its jobs in a session. Source: Flink's `flink run -m`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Final

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.program import DeploymentOptions
from penstock.engine.model.options.rest import ClientOptions, RestOptions

_PLACE: Final = re.compile(r"(https?://)?[^/]+:\d+/?")


def in_session(options: argparse.Namespace, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a run whose jobs go to the session that `-m` names.

    Raises ConfigurationError: an option is about a driver of the program's own.
    """
    for flag, value in (("--master", options.master), ("--conf", options.conf)):
        if value:
            raise ConfigurationError(
                f"{flag} is about the Spark of a program's own driver, but -m names a session, "
                "which has its own. Leave one of them out."
            )
    if options.log_file is not None:
        raise ConfigurationError(
            "--log-file is for a driver in the background. With -m the job runs in the session; "
            "leave it out."
        )
    if options.json and not options.detached:
        raise ConfigurationError("--json needs -d")
    if options.detached and options.ends_with_client:
        raise ConfigurationError(
            "-sae has Ctrl-C cancel a job whose client waits for it, but with -d no client waits. "
            "Leave one of them out."
        )
    scheme, _, place = options.jobmanager.rpartition("://")
    host, _, port = place.rstrip("/").rpartition(":")
    found = {
        **settings,
        DeploymentOptions.TARGET.key: "remote",
        DeploymentOptions.ATTACHED.key: "false" if options.detached else "true",
        RestOptions.ADDRESS.key: host.strip("[]"),
        RestOptions.PORT.key: port,
    }
    if options.ends_with_client:
        found[DeploymentOptions.ENDS_WITH_CLIENT.key] = "true"
    if scheme == "https":
        found[RestOptions.SSL.key] = "true"
    if options.token is not None:
        found[ClientOptions.TOKEN.key] = options.token
    if options.cacert is not None:
        found[ClientOptions.CERTIFICATES.key] = options.cacert
    return found


def check_without_session(options: argparse.Namespace) -> None:
    """Raises ConfigurationError: options of `-m` without it."""
    given = {
        "--token": options.token,
        "--cacert": options.cacert,
        "-sae": options.ends_with_client,
    }
    for flag, value in given.items():
        if value:
            raise ConfigurationError(
                f"{flag} is about a session, but none is named. Name it by -m HOST:PORT, or leave "
                f"{flag} out."
            )


def _place(text: str) -> str:
    """Raises ArgumentTypeError: the address of a session lacks its host or its port."""
    if _PLACE.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"takes HOST:PORT of a session, such as localhost:8081, got {text!r}. `penstock list` "
            "shows the sessions of this user."
        )
    return text


def add_session_place(runs: argparse.ArgumentParser) -> None:
    """Add the options that name a session to `penstock run`."""
    runs.add_argument(
        "-m", "--jobmanager", type=_place, metavar="HOST:PORT",
        help="run the program here and its jobs in the session there; with -d only submit them",
    )  # fmt: skip
    runs.add_argument(
        "-sae", "--shutdownOnAttachedExit", dest="ends_with_client", action="store_true",
        help="with -m: Ctrl-C cancels the job; without it the job continues in the session",
    )  # fmt: skip
    runs.add_argument("--token", help="with -m: the session's token, if it is not found by itself")
    runs.add_argument(
        "--cacert", metavar="FILE", help="with -m: certificates to trust, for an https address"
    )
