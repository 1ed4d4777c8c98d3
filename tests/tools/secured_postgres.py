"""A PostgreSQL server with TLS, on a loopback port: one role logs in with a password, another with a certificate."""

import contextlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import psycopg

from tests.tools.postgres import PostgresServer, running_postgres
from tests.tools.small_servers import free_pair
from tests.tools.tls_cases import Tls

RULES = """
local all all trust
hostssl all,replication keeper 127.0.0.1/32 scram-sha-256
hostssl all,replication job 127.0.0.1/32 cert
"""


class SecuredPostgres(NamedTuple):
    """`keeper` has the password "it's secret"; `job` has the certificate `tls.client`. `folder`: of the socket."""

    folder: str
    port: int
    tls: Tls
    key: str

    def parameters(self, **changed: str) -> dict[str, str]:
        """libpq's, with which `job` logs in. None: without that one."""
        usual = {
            "sslmode": "verify-full",
            "sslrootcert": self.tls.ca,
            "sslcert": self.tls.client[0],
            "sslkey": self.key,
        }
        return {key: value for key, value in {**usual, **changed}.items() if value is not None}

    def url(self, user: str = "job", host: str = "127.0.0.1", **changed: str) -> str:
        query = urlencode(self.parameters(**changed))
        return f"postgresql+psycopg://{user}@{host}:{self.port}/postgres?{query}"


@contextlib.contextmanager
def secured_postgres(tls: Tls, folder: Path, *settings: str) -> Generator[SecuredPostgres]:
    """`folder`: for the client's key, which nobody else may read."""
    port = free_pair()
    key = shutil.copy(tls.client[1], folder / "job-key.pem")
    os.chmod(key, 0o600)

    def prepare(server: PostgresServer) -> None:
        server.secure(*tls.server, tls.ca, RULES)

    with running_postgres(
        *settings, "listen_addresses=127.0.0.1", f"port={port}", prepare=prepare
    ) as server:
        with psycopg.connect(
            host=server.folder, port=port, user="penstock", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute("CREATE ROLE keeper LOGIN REPLICATION PASSWORD 'it''s secret'")
            connection.execute("CREATE ROLE job LOGIN SUPERUSER")
        yield SecuredPostgres(server.folder, port, tls, str(key))
