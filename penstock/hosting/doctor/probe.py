"""What one Spark task finds out where it runs: versions, folders, the way to the driver and to other tasks.

Runs in Spark's Python worker, imported from the shipped archive only, and leaves nothing behind. Needs nothing but the standard
library: what is missing is what it looks for.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import shutil
import socket
import tempfile
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.hosting.doctor.lines import Lines, accepted, dial
from penstock.hosting.wire.addresses import DATA_PORT, Addresses, data_endpoint, listen
from penstock.hosting.wire.handshake import Credentials
from penstock.model.errors import ExternalError, PenstockError

_DIAL_S: Final = 5.0


def probe(order: dict[str, Any], task: int) -> dict[str, Any]:
    """`order`: as `examine` makes it. Returns: facts, as `ExecutorFacts` has them. Raises nothing that the task can find."""
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "process": os.getppid(),  # the daemon that all workers of an executor come from
        "python": platform.python_version(),
        "modules": {name: _version(name) for name in order["modules"]},
        "folder_errors": _folder_errors(order["folders"], order["mark"]),
        "tmp_error": _write_error(None),
        "free_mb": shutil.disk_usage(tempfile.gettempdir()).free >> 20,
    }
    credentials = Credentials(bytes.fromhex(order["secret"]), order["token"], order["token"])
    driver = (order["host"], order["port"])
    try:
        lines = dial(driver, credentials, _DIAL_S)
    except (OSError, ExternalError) as error:
        return facts | {"control_error": str(error)}
    with lines.sock:
        lines.sock.settimeout(order["wait_s"])
        return facts | _meet_others(order, task, lines, credentials)


def _meet_others(
    order: dict[str, Any], task: int, lines: Lines, credentials: Credentials
) -> dict[str, Any]:
    addresses = Addresses(**order["addresses"])
    try:
        endpoint = data_endpoint(
            (order["host"], order["port"]), addresses, bind_host=order["bind_host"]
        )
        server = listen(endpoint, DATA_PORT)
    except (OSError, PenstockError) as error:
        return {"data_error": str(error)}
    port = endpoint.port or server.getsockname()[1]
    with server, _answering(server, credentials, task):
        place = f"{socket.gethostname()}/{os.getppid()}"
        lines.send({"task": task, "place": place, "data": [endpoint.dialled_host, port]})
        found: dict[str, Any] = {"data": f"{endpoint.dialled_host}:{port}", "peer_errors": {}}
        try:
            peers = lines.receive() or []
            for peer, host, peer_port in peers:
                why = _dialled(peer, (host, peer_port), credentials)
                if why is not None:
                    found["peer_errors"][f"{host}:{peer_port}"] = why
            found["peers"] = len(peers)
            lines.send({"done": True})
            lines.receive()  # the others may still dial
        except OSError as error:
            found["control_error"] = f"the connection broke: {error}"
        return found


def _dialled(peer: int, address: tuple[str, int], credentials: Credentials) -> str | None:
    """Why that task was not reached there."""
    try:
        lines = dial(address, credentials, _DIAL_S)
        with lines.sock:
            lines.sock.settimeout(_DIAL_S)
            answer = lines.receive()
    except (OSError, ExternalError) as error:
        return str(error)
    return None if answer == peer else f"task {answer} was there instead of task {peer}"


@contextlib.contextmanager
def _answering(
    server: socket.socket, credentials: Credentials, task: int
) -> Generator[None, None, None]:
    """Who dials is told the task's number."""
    is_over = threading.Event()

    def answer() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError, ExternalError):
                sock, _ = server.accept()
                with sock:
                    accepted(sock, credentials).send(task)

    server.settimeout(0.1)
    thread = threading.Thread(target=answer, name="penstock-probe", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _version(name: str) -> str | None:
    """None: it is not there, or cannot be imported."""
    try:
        module = importlib.import_module(name)
    except Exception:  # what a broken installation raises is anybody's guess
        return None
    return str(getattr(module, "__version__", "unknown"))


def _folder_errors(folders: Sequence[str], mark: str) -> dict[str, str]:
    """Of folders that should be the driver's, in which it has left `mark`."""
    found = {}
    for folder in folders:
        if not (Path(folder) / mark).exists():
            found[folder] = (
                "it is not the driver's folder: a file that the driver has written there is missing"
            )
        else:
            error = _write_error(folder)
            if error is not None:
                found[folder] = error
    return found


def _write_error(folder: str | None) -> str | None:
    """None as folder: where temporary files go."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".penstock-probe-"):
            return None
    except OSError as error:
        return str(error)
