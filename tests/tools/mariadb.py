"""A MariaDB server of the tests' own: in a temporary directory, on a Unix socket, ended with them."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import sqlalchemy as sa

from tests.tools.waiting import wait_until

PLACES = (
    "/usr/sbin",
    "/usr/libexec",
    "/opt/homebrew/opt/mariadb/bin",
    "/usr/local/opt/mariadb/bin",
)
# A lost machine is not what is tested, and syncs are slow.
SETTINGS = (
    "--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync",
    "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--skip-log-bin",
)  # fmt: skip


class MariaDbMissing(AssertionError):
    """There is no MariaDB to test with. A failure, for a test that quietly does not run proves nothing."""


def binary(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(PLACES))
    if found is None:
        raise MariaDbMissing(
            f"MariaDB's {name} is neither on PATH nor in {', '.join(PLACES)}. Run `make mariadb`, "
            "or install it: "
            "`apt-get install mariadb-server` on Debian."
        )
    return found


@contextlib.contextmanager
def mariadb_server() -> Generator[str]:
    """URL of an empty database of the user penstock, whose password is `secret`, for SQLAlchemy."""
    install, server = binary("mariadb-install-db"), binary("mariadbd")
    folder = tempfile.mkdtemp(prefix="penstock-maria-")
    as_root = ("--user=root",) if os.getuid() == 0 else ()
    data, socket = f"{folder}/data", f"{folder}/socket"
    try:
        subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", "--skip-test-db", *as_root,
             "--auth-root-authentication-method=normal"],
            check=True, capture_output=True, cwd="/",
        )  # fmt: skip
        command = [
            server, "--no-defaults", f"--datadir={data}", f"--socket={socket}",
            f"--pid-file={folder}/pid",
            *SETTINGS, *as_root,
        ]  # fmt: skip
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        try:
            _make_user(process, socket, f"{folder}/log")
            yield f"mariadb+pymysql://penstock:secret@localhost/shop?unix_socket={socket}"
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_user(process: subprocess.Popen, socket: str, log: str) -> None:
    def is_up() -> bool:
        """Nobody dials before: PyMySQL leaves a socket behind where the server is not ready."""
        told = Path(log).read_text(errors="replace")
        if process.poll() is not None:
            raise AssertionError(f"MariaDB has ended:\n{told}")
        return "ready for connections" in told

    wait_until(is_up, "MariaDB does not answer")
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
