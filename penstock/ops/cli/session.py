"""`penstock session`: a driver without a program, which takes jobs of other processes until it is stopped; `session stop` ends one.

Source: Flink's start-cluster.sh and `stop-session`; differs: one process, whose TaskManagers are tasks of its Spark application.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from collections.abc import Generator, Mapping
from typing import Any, Final

from penstock.engine.hosting.program import spark_host
from penstock.engine.hosting.program.settings import HOST_DEFAULTS
from penstock.engine.hosting.reporting.say import say
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.cli.detached import in_background, new_log, say_end
from penstock.ops.cli.remote.targets import ENDED, answers, clients, overviews
from penstock.ops.cli.remote.texts import complain, shown
from penstock.ops.remote.client import LateAnswer, RemoteError, RestClient
from penstock.ops.rest.address_book import drivers
from penstock.ops.rest.server import current_server
from penstock.ops.session.session import Session, session_settings

_POLL_S: Final = 0.1
_END_WAIT_S: Final = 60.0


def session(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C, SIGTERM or `penstock session stop`. Returns: 0; 1 if it had to end by itself."""
    if options.action == "stop":
        return stop_session(options)
    if options.detached:
        return _session_detached(options)
    if options.log_file is not None or options.json:
        raise ConfigurationError("--log-file and --json need -d")
    host = spark_host.SparkHost()
    settings = session_settings(host, HOST_DEFAULTS)
    spark_host.start_for_session(settings)
    served = Session(host, settings, say)
    with _signals(served):
        trouble = served.run()
        server = current_server()
        if server is not None:
            server.stop()  # Whoever has asked for the end gets an answer.
    if trouble is not None:
        complain(f"the session has ended: {trouble}")
        return 1
    say("the session has ended")
    return 0


def _session_detached(options: argparse.Namespace) -> int:
    """`penstock session -d`: returns when the session answers. Raises ConfigurationError."""
    log = new_log(options.log_file, "penstock-session")
    complaint = "the session does not answer yet"
    child, found = in_background(_attached(options), log, _answer, complaint)
    if found is None:
        return say_end("the session", child, log)
    address, session = found
    state = "takes jobs" if session["ready"] else "stands by, because another session leads"
    value = {"address": address, "pid": child.pid, "log": str(log), "ready": session["ready"]}
    text = f"session in process {child.pid} {state}\nREST: {address}\nlog:  {log}"
    return shown(value, options, text)


def stop_session(options: argparse.Namespace) -> int:
    """`penstock session stop`. Raises RemoteError: there is none, or it is a driver of a program."""
    if options.jobmanager is None:
        asked, silent = answers(options, lambda one: bool(one.get("/session")["session"]))
        found = [client for client, is_one in asked if is_one]
    else:
        found, silent = clients(options), []
    if len(found) != 1 or silent:
        places = ", ".join(one.address for one in found) or "none"
        sentence = f"sessions of this user: {places}. Name one with -m HOST:PORT."
        raise RemoteError("\n".join([sentence, *silent]))
    (client,) = found
    about: dict[str, Any] = {}
    running: list[dict[str, Any]] = []
    with contextlib.suppress(RemoteError):  # One that stands by has no jobs.
        about = client.get("/session")
        running = [one for one in overviews(client) if one["state"] not in ENDED]
    client.change("DELETE", "/cluster")
    deadline = time.monotonic() + _END_WAIT_S
    while _serves(client):
        if time.monotonic() > deadline:
            raise RemoteError(f"the session at {client.address} is still ending")
        time.sleep(_POLL_S)
    names = [f"{one['jid']} '{one['name']}'" for one in running]
    what = "stopped" + (f"; it has ended {', '.join(names)}" if names else "")
    if names and about.get("cluster-id") is not None:
        what += f". The next session of '{about['cluster-id']}' continues those of type STREAMING"
    value = {"address": client.address, "jobs": [one["jid"] for one in running]}
    return shown(value, options, f"session at {client.address}: {what}")


def _serves(client: RestClient) -> bool:
    """Raises LateAnswer: it is not known."""
    try:
        return bool(client.get("/session")["session"])
    except LateAnswer:
        raise
    except RemoteError:
        return False


@contextlib.contextmanager
def _signals(served: Session) -> Generator[None]:
    """Ctrl-C and SIGTERM end the session; a second one ends the process at once."""

    def stop(number: int, _frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        served.stop()

    former = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


def _attached(options: argparse.Namespace) -> list[str]:
    """Return the command line of the same session without `-d`."""
    found = ["session"] + ([] if options.master is None else [f"--master={options.master}"])
    found += [f"--conf={pair}" for pair in options.conf]
    return found + [f"-D{pair}" for pair in options.define]


def _answer(pid: int) -> tuple[str, Mapping[str, Any]] | None:
    """Return the address of the session, and its answer, if it takes jobs or stands by."""
    for one in drivers():
        if one.pid == pid:
            with contextlib.suppress(RemoteError):
                answer = RestClient(one.address, one.token).get("/session")
                if answer["session"] and (answer["ready"] or answer["stands-by"]):
                    return one.address, answer
    return None
