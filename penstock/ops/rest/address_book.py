"""Which drivers of this user have a REST server on this machine: a file for each, with its address and token, that only the user reads.

Source: none in Flink, whose users give clients an address; Jupyter keeps its running servers in the same way.
"""

from __future__ import annotations

import hmac
import itertools
import json
import logging
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from penstock.engine.hosting.os.private_files import (
    check_folder,
    make_folder,
    open_checked,
    write_file,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.rest.session_place import ROWS_KEY

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownDriver:
    """A driver with a REST server. `started_s`: epoch seconds. `program`: what its process runs. `rows_key`: see `remote.rows`."""

    address: str
    token: str
    pid: int
    started_s: float
    program: str
    rows_key: str = ""

    @property
    def is_alive(self) -> bool:
        return _is_alive(self.pid)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process. Linux only."""
        return _state_of(self.pid) in {"T", "t"}


def proof_of(token: str, nonce: str, port: int) -> str:
    """Return what only who has the token can say: that its server listens at this port. `nonce`: chosen by who asks."""
    return hmac.new(token.encode(), f"penstock {port} {nonce}".encode(), "sha256").hexdigest()


def _folders() -> list[Path]:
    """Return where the files may be, the usual place first: in XDG_RUNTIME_DIR, or where temporary files are, with the user's number
    in the name. Further ones are there because another user had taken that name.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return [Path(runtime) / "penstock" / "drivers"]
    temporary, name = Path(tempfile.gettempdir()), f"penstock-{os.getuid()}"
    others = sorted(filter(_is_own, temporary.glob(f"{name}-*")))
    return [one / "drivers" for one in (temporary / name, *others)]


def _own_folder() -> Path:
    """Return a folder of `_folders` that nobody else can change; it is made. Raises: OSError, ConfigurationError."""
    usual, *others = _folders()
    try:
        return _made(usual)
    except (OSError, ConfigurationError) as error:
        if os.environ.get("XDG_RUNTIME_DIR"):
            raise
        place = (
            others[0]
            if others
            else Path(tempfile.mkdtemp(prefix=f"{usual.parent.name}-")) / usual.name
        )
        _LOG.warning("%s Drivers are entered in %s instead.", error, place)
        return _made(place)


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:  # It is gone, or is not there yet.
        return False


def _made(place: Path) -> Path:
    make_folder(str(place))
    check_folder(str(place))
    return place


def enter(address: str, token: str, program: str) -> Path:
    """Write the file of this process. Returns: its path. Raises: OSError, ConfigurationError: others could read or replace it."""
    path = _own_folder() / f"{os.getpid()}.json"
    known = KnownDriver(address, token, os.getpid(), time.time(), program, ROWS_KEY.hex())
    part = path.with_suffix(".part")  # Whoever looks meanwhile sees no file, or a whole one.
    part.unlink(missing_ok=True)
    write_file(part, json.dumps(asdict(known)).encode())
    part.replace(path)
    return path


def drivers() -> list[KnownDriver]:
    """Return the drivers of this user whose processes are alive, newest first. Files of others are removed."""
    found = []
    own = filter(_is_own, _folders())
    for path in itertools.chain.from_iterable(one.glob("*.json") for one in own):
        known = _read(path)
        if known is not None and known.is_alive:
            found.append(known)
        elif known is not None:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: one.started_s, reverse=True)


def _read(path: Path) -> KnownDriver | None:
    """None: the file is not this user's alone, is damaged, or is gone."""
    try:
        with os.fdopen(open_checked(str(path)), "rb") as file:
            return KnownDriver(**json.loads(file.read()))
    except (OSError, ValueError, TypeError, ConfigurationError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state_of(pid) not in {"Z", "X"}  # Killed, and its parent has not asked for its end yet.


def _state_of(pid: int) -> str:
    """Return the letter of a process's state; "": it is not known. Linux only."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return status.rpartition(b")")[2].split()[0].decode("ascii")
