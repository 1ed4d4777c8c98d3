"""A PostgreSQL server of the tests' own: in a temporary directory, on a Unix socket, ended with them."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator

import psutil

from tests.tools.small_servers import ServerMissing, program

PLACES = (
    "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin", "/usr/libexec/postgresql*",
)  # fmt: skip
# A lost machine is not what is tested, and syncs are slow.
SETTINGS = "listen_addresses='' fsync=off synchronous_commit=off full_page_writes=off"


def binary(name: str) -> str:
    found = [path for place in PLACES for path in sorted(glob.glob(place), reverse=True)]
    return program(name, target="postgres", places=(os.environ.get("PATH", ""), *found))


def _as_user() -> dict:
    """PostgreSQL does not run as root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ServerMissing("running as root, and there is neither a user postgres nor nobody")


def _run(*command: str) -> None:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd="/", **_as_user()
    )
    if done.returncode:
        raise AssertionError(
            f"{command} failed with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


class PostgresServer:
    """`kill`, then `start`: it is there again, with what it had committed. `folder`: where its socket is."""

    def __init__(self, folder: str, *settings: str) -> None:
        """`settings`: such as wal_level=logical."""
        self.folder = folder
        self._data = f"{folder}/data"
        chosen = (*SETTINGS.split(), *settings)
        self._options = " ".join(f"-c {setting}" for setting in chosen) + f" -k {folder}"
        as_made = ("-U", "penstock", "--auth=trust", "-E", "UTF8", "--locale=C", "-N")
        _run(binary("initdb"), "-D", self._data, *as_made)

    @property
    def url(self) -> str:
        """Of an empty database, for SQLAlchemy."""
        return f"postgresql+psycopg://penstock@/postgres?host={self.folder}"

    def start(self) -> None:
        # With its output to a file, for pg_ctl would wait for a server that holds its pipe.
        _run(
            binary("pg_ctl"), "-D", self._data, "-l", f"{self.folder}/log", "-w", "-t", "60",
            "-o", self._options, "start",
        )  # fmt: skip

    def secure(self, certificate: str, key: str, ca: str, rules: str) -> None:
        """Before the start: TLS, with copies of these files, and who may log in how: lines of pg_hba.conf."""
        copied = {"server.pem": certificate, "server.key": key, "ca.pem": ca}
        for name, path in copied.items():
            own = shutil.copy(path, f"{self._data}/{name}")
            os.chmod(own, 0o600)
            if user := _as_user():
                os.chown(own, user["user"], user["group"])
        with open(f"{self._data}/pg_hba.conf", "w") as file:
            file.write(rules)
        with open(f"{self._data}/postgresql.conf", "a") as file:
            file.write("\nssl = on\nssl_cert_file = 'server.pem'\nssl_ca_file = 'ca.pem'\n")

    def stop(self, mode: str = "immediate") -> None:
        _run(binary("pg_ctl"), "-D", self._data, "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """As `kill -9`, of the server and of each of its processes."""
        with open(f"{self._data}/postmaster.pid") as file:
            postmaster = psutil.Process(int(file.readline()))
        processes = [postmaster, *postmaster.children()]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, 30)


@contextlib.contextmanager
def running_postgres(
    *settings: str, prepare: Callable[[PostgresServer], None] = lambda _: None
) -> Generator[PostgresServer]:
    """A server with these settings. `prepare`: is called before it starts. One that is to crash and to keep what was committed has `synchronous_commit=on`."""
    binary("initdb")
    folder = tempfile.mkdtemp(prefix="penstock-pg-")
    try:
        if user := _as_user():
            os.chown(folder, user["user"], user["group"])
        server = PostgresServer(folder, *settings)
        prepare(server)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def postgres_server() -> Generator[str]:
    """URL of an empty database, for SQLAlchemy."""
    with running_postgres() as server:
        yield server.url
