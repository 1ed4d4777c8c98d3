"""A PostgreSQL server of the tests' own: in a temporary directory, on a Unix socket, ended with them."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator

PLACES = (
    "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin", "/usr/libexec/postgresql*",
)  # fmt: skip
# A lost machine is not what is tested, and syncs are slow.
SETTINGS = "listen_addresses='' fsync=off synchronous_commit=off full_page_writes=off"


_STARTS: dict[str, tuple[str, ...]] = {}
"""By folder: the command that has started the server."""


class PostgresMissing(AssertionError):
    """There is no PostgreSQL to test with. A failure, for a test that quietly does not run proves nothing."""


def binary(name: str) -> str:
    found = shutil.which(name)
    places = [path for place in PLACES for path in sorted(glob.glob(place), reverse=True)]
    found = found or shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise PostgresMissing(
            f"PostgreSQL's {name} is neither on PATH nor in {', '.join(PLACES)}. Run `make postgres`, or install it: "
            "`apt-get install postgresql` on Debian."
        )
    return found


def _as_user() -> dict:
    """PostgreSQL does not run as root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise PostgresMissing("running as root, and there is neither a user postgres nor nobody")


def _run(*command: str) -> None:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd="/", **_as_user()
    )
    if done.returncode:
        raise AssertionError(
            f"{command} failed with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


@contextlib.contextmanager
def postgres_server(*settings: str) -> Generator[str]:
    """URL of an empty database, for SQLAlchemy. `settings`: more of the server's.

    One that is to crash and to keep what was committed has `synchronous_commit=on`.
    """
    initdb, pg_ctl = binary("initdb"), binary("pg_ctl")
    folder = tempfile.mkdtemp(prefix="penstock-pg-")
    try:
        if user := _as_user():
            os.chown(folder, user["user"], user["group"])
        data, log = f"{folder}/data", f"{folder}/log"
        _run(initdb, "-D", data, "-U", "penstock", "--auth=trust", "-E", "UTF8", "--locale=C", "-N")
        options = " ".join(f"-c {setting}" for setting in (*SETTINGS.split(), *settings))
        options += f" -k {folder}"
        # With its output to a file, for pg_ctl would wait for a server that holds its pipe.
        start = (pg_ctl, "-D", data, "-l", log, "-w", "-t", "60", "-o", options, "start")
        _run(*start)
        _STARTS[folder] = start
        try:
            yield f"postgresql+psycopg://penstock@/postgres?host={folder}"
        finally:
            _run(pg_ctl, "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        _STARTS.pop(folder, None)
        shutil.rmtree(folder, ignore_errors=True)


def crash(url: str) -> None:
    """Ends the server of this URL at once, its connections too, without any clean-up."""
    folder = url.partition("host=")[2]
    _run(binary("pg_ctl"), "-D", f"{folder}/data", "-w", "-m", "immediate", "stop")


def start_again(url: str) -> None:
    """Starts the server of this URL, which had crashed."""
    _run(*_STARTS[url.partition("host=")[2]])
