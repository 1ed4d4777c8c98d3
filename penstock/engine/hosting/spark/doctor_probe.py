"""What one Spark task checks where it runs: versions, folders, and connections to the driver and to
other tasks.

Runs in Spark's Python worker, imported from the shipped archive only, and removes what it made.
Uses the standard library only, because it must report which packages are missing.

JSON lines over an authenticated socket, between probes and the driver. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import secrets
import shutil
import socket
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.engine.hosting.network.wire import dialling
from penstock.engine.hosting.network.wire.acceptor import Acceptor
from penstock.engine.hosting.network.wire.addresses import (
    DATA_PORT,
    Addresses,
    data_endpoint,
    listen,
)
from penstock.engine.hosting.network.wire.dialling import Proven, Ticket, register
from penstock.engine.hosting.network.wire.handshake import ROLE_PROBE, Credentials
from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.file_systems import is_uri, open_files
from penstock.engine.model.errors import AuthenticationError, ExternalError, PenstockError
from penstock.engine.model.plain import from_plain

_MOST: Final = 1 << 20


class Lines:
    """One connection. `receive` waits as long as the socket's time-out allows."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._received = b""

    def send(self, data: Any) -> None:
        self.sock.sendall(json.dumps(data).encode() + b"\n")

    def receive(self) -> Any:
        """Return the next line; None: the other side has closed.

        Raises: OSError; AuthenticationError: not a line that the other side has sent.
        """
        while b"\n" not in self._received:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._received += data
            if len(self._received) > _MOST:
                raise AuthenticationError("a line is longer than a line of a probe can be")
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)


def dial(address: tuple[str, int], credentials: Credentials, timeout_s: float) -> Lines:
    """Connect. Raises: OSError; AuthenticationError: another program listens there."""
    return Lines(dialling.dial(address, credentials, ROLE_PROBE, timeout_s))


_DIAL_S: Final = 5.0


def probe(order: dict[str, Any], task: int) -> dict[str, Any]:
    """Probe this place. `order`: made by `examine`. Returns: the fields of `ExecutorFacts`. Failed
    checks are facts, not errors.
    """
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "process": os.getppid(),  # The daemon from which all workers of an executor are forked.
        "python": platform.python_version(),
        "modules": {name: _version(name) for name in order["modules"]},
        "folder_errors": folder_errors(order["folders"], order["mark"]),
        "tmp_error": _write_error(None),
        "free_mb": shutil.disk_usage(tempfile.gettempdir()).free >> 20,
    }
    driver = (order["host"], order["port"])
    try:
        credentials = register(driver, Ticket.from_plain(order["ticket"]), _DIAL_S)
        lines = dial(driver, credentials, _DIAL_S)
    except (OSError, ExternalError) as error:
        return facts | {"control_error": str(error)}
    with lines.sock:
        lines.sock.settimeout(order["wait_s"])
        return facts | _meet_others(order, task, lines, credentials)


def _meet_others(
    order: dict[str, Any], task: int, lines: Lines, credentials: Credentials
) -> dict[str, Any]:
    addresses = from_plain(Addresses, order["addresses"])
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
            lines.receive()  # Other tasks may still dial this one.
        except OSError as error:
            found["control_error"] = f"the connection broke: {error}"
        return found


def _dialled(peer: int, address: tuple[str, int], credentials: Credentials) -> str | None:
    """Return why that task could not be reached at the address; None: it was reached."""
    try:
        lines = dial(address, credentials, _DIAL_S)
        with lines.sock:
            lines.sock.settimeout(_DIAL_S)
            answer = lines.receive()
    except (OSError, ExternalError) as error:
        return str(error)
    return None if answer == peer else f"task {answer} answered instead of task {peer}"


@contextlib.contextmanager
def _answering(
    server: socket.socket, credentials: Credentials, task: int
) -> Generator[None, None, None]:
    """Send this task's number to whoever dials."""

    def answer(proven: Proven) -> None:
        with proven.sock:
            Lines(proven.sock).send(task)

    acceptor = Acceptor([server], credentials, ROLE_PROBE, answer).start()
    try:
        yield
    finally:
        acceptor.close()


def _version(name: str) -> str | None:
    """Return the version; None: the module is missing, or cannot be imported."""
    try:
        module = importlib.import_module(name)
    except Exception:  # A broken installation may raise anything.
        return None
    return str(getattr(module, "__version__", "unknown"))


def folder_errors(folders: Sequence[str], mark: str) -> dict[str, str]:
    """Return errors of folders that the driver shares; it has put the file `mark` into those of mounted file systems."""
    found = {}
    for folder in folders:
        if is_uri(folder):
            error = store_error(folder)
            if error is not None:
                found[folder] = error
        elif not (Path(folder) / mark).exists():
            found[folder] = (
                "it is not the driver's folder: a file that the driver has written into its "
                "folder is missing here"
            )
        else:
            error = _private_error(folder) or _write_error(folder)
            if error is not None:
                found[folder] = error
    return found


def store_error(uri: str) -> str | None:
    """Write, read and remove a small file. Returns: why that cannot be done here; None: it can."""
    try:
        files, folder = open_files(uri)
        path = f"{folder.rstrip('/')}/.penstock-probe-{secrets.token_hex(8)}"
        files.put_new(path, b"penstock")
        files.read(path)
        files.remove(path)
    except Exception as error:  # Clients raise errors of many kinds, and may be missing.
        return str(error)
    return None


def _private_error(folder: str) -> str | None:
    """Return why nothing could be restored from there; None: nothing forbids it."""
    try:
        private_files.check_folder(folder)
    except (OSError, private_files.NotPrivate) as error:
        return str(error)
    return None


def _write_error(folder: str | None) -> str | None:
    """Try to write a file. `folder` None: the directory for temporary files."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".penstock-probe-"):
            return None
    except OSError as error:
        return str(error)
