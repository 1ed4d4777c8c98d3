"""A MariaDB server of the tests' own: in a temporary directory, on a Unix socket, ended with them."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import sqlalchemy as sa

from tests.tools.small_servers import program
from tests.tools.waiting import wait_until

PLACES = (
    os.environ.get("PATH", ""),
    "/usr/sbin",
    "/usr/libexec",
    "/opt/homebrew/opt/mariadb/bin",
    "/usr/local/opt/mariadb/bin",
)
# A lost machine is not what is tested, and syncs are slow.
SETTINGS = (
    "--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync",
    "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M",
)  # fmt: skip


def binary(name: str) -> str:
    return program(name, target="mariadb", places=PLACES)


class MariaDbServer:
    """`kill`, then `start`: it is there again, with what it had committed. `socket`: the path of its Unix socket."""

    def __init__(self, folder: str, *settings: str) -> None:
        """`settings`: more of its command line."""
        install, server = binary("mariadb-install-db"), binary("mariadbd")
        as_root = ("--user=root",) if os.getuid() == 0 else ()
        data = f"{folder}/data"
        self.socket = f"{folder}/socket"
        self._log = f"{folder}/log"
        self._process: subprocess.Popen | None = None
        subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", "--skip-test-db", *as_root,
             "--auth-root-authentication-method=normal"],
            check=True, capture_output=True, cwd="/",
        )  # fmt: skip
        self._command = [
            server, "--no-defaults", f"--datadir={data}", f"--socket={self.socket}",
            f"--pid-file={folder}/pid",
            *SETTINGS, *(settings or ("--skip-log-bin",)), *as_root,
        ]  # fmt: skip

    @property
    def url(self) -> str:
        """Of an empty database of the user penstock, whose password is `secret`, for SQLAlchemy."""
        return f"mariadb+pymysql://penstock:secret@localhost/shop?unix_socket={self.socket}"

    def start(self) -> None:
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd="/")
        wait_until(self._is_up, "MariaDB does not answer")

    def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _is_up(self) -> bool:
        """Nobody dials before: PyMySQL leaves a socket behind where the server is not ready."""
        told = Path(self._log).read_text(errors="replace")
        if self._process.poll() is not None:
            raise AssertionError(f"MariaDB has ended:\n{told}")
        return "ready for connections" in told


@contextlib.contextmanager
def running_mariadb(*settings: str) -> Generator[MariaDbServer]:
    """A server with these settings, and a database `shop` of the user penstock."""
    binary("mariadbd")
    folder = tempfile.mkdtemp(prefix="penstock-maria-")
    try:
        server = MariaDbServer(folder, *settings)
        try:
            server.start()
            _make_user(server.socket)
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def mariadb_server() -> Generator[str]:
    """URL of an empty database of the user penstock, whose password is `secret`, for SQLAlchemy."""
    with running_mariadb() as server:
        yield server.url


def _make_user(socket: str) -> None:
    engine = sa.create_engine(
        f"mariadb+pymysql://root@localhost/mysql?unix_socket={socket}", poolclass=sa.NullPool
    )
    with engine.begin() as connection:
        for statement in (
            "CREATE DATABASE shop",
            "CREATE USER penstock@localhost IDENTIFIED BY 'secret'",
            "GRANT ALL ON shop.* TO penstock@localhost",
        ):
            connection.execute(sa.text(statement))
