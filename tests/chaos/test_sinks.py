"""Every sink that is exactly once, while a TaskManager, the driver or the sink's server is killed as it writes: each number is there once.

Each job has a driver process of its own with embedded Spark. What a reader sees says when something is killed.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import psutil
import pytest
import redis
import sqlalchemy as sa

from penstock.engine.hosting.taskmanager.child import PROCESS_NAME
from tests.spark.processes import command_of
from tests.tools.brokers import kafka, kafka_topics, pulsar, pulsar_topics
from tests.tools.brokers.nats_streams import Streams
from tests.tools.connectors.iceberg_tables import Lake
from tests.tools.http_peer import ask, http_peer, url
from tests.tools.mariadb import running_mariadb
from tests.tools.output_files import files_below, lines_in
from tests.tools.postgres import running_postgres
from tests.tools.programs.killed_sink import COUNT, KEYS
from tests.tools.small_servers import nats_server, redis_server
from tests.tools.terminal import ROOT
from tests.tools.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.server]
PATIENCE_S = 120
MORE_CHECKPOINTS = 5
PROGRAM = "tests.tools.programs.killed_sink"


@dataclass
class Place:
    """`where`: for the program. `read`: the numbers that are there. `server`: what may be killed and started again."""

    where: str
    read: Callable[[], list[int]]
    server: Any = None


# ------------------------------------------------------------------ places


@contextlib.contextmanager
def database(server):
    engine = sa.create_engine(server.url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE numbers (id BIGINT, n BIGINT)"))

    def read():
        with engine.begin() as connection:
            return [n for (n,) in connection.execute(sa.text("SELECT n FROM numbers"))]

    yield engine, Place(server.url, read, server)


@contextlib.contextmanager
def postgres():
    with running_postgres("synchronous_commit=on") as server, database(server) as (_, place):
        yield place


@contextlib.contextmanager
def mariadb_with_keys():
    # What it has said to be committed stays when only its process is killed.
    settings = ("--skip-log-bin", "--innodb-flush-log-at-trx-commit=2")
    with running_mariadb(*settings) as server, database(server) as (engine, place):
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE numbers ADD PRIMARY KEY (id)"))
        yield place


@contextlib.contextmanager
def postgres_with_keys():
    with running_postgres("synchronous_commit=on") as server, database(server) as (engine, place):
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE numbers ADD PRIMARY KEY (id)"))
        yield place


@contextlib.contextmanager
def kafka_topic():
    with kafka.running_broker() as broker:
        broker.create("out", 2)
        yield Place(
            broker.servers,
            lambda: [int(text) for text in kafka_topics.texts(broker.servers, "out", range(2))],
        )


@contextlib.contextmanager
def pulsar_topic():
    with pulsar.running_broker() as broker:
        broker.create("out", 2)
        yield Place(
            broker.url, lambda: [int(text) for text in pulsar_topics.texts(broker, "out", range(2))]
        )


@contextlib.contextmanager
def redis_stream():
    with redis_server() as server:
        where = f"redis://127.0.0.1:{server.port}/0"

        def read():
            with redis.Redis.from_url(where) as client:
                return [int(fields[b"value"]) for _, fields in client.xrange("out")]

        yield Place(where, read, server)


@contextlib.contextmanager
def jetstream():
    with nats_server() as server, Streams(server) as streams:
        streams.add("out")
        yield Place(streams.url, lambda: [int(text) for text in streams.texts("out")], server)


@contextlib.contextmanager
def http_server():
    with http_peer() as peer:

        def read():
            bodies = [body for path, _, body in ask(peer, "/taken") if path == "/ingest"]
            return [int(line) for body in bodies for line in body.splitlines()]

        yield Place(url(peer, "/ingest"), read, peer)


@contextlib.contextmanager
def files(folder):
    out = folder / "out"

    def read():
        visible = [one for one in files_below(out) if not one.name.startswith(".")]
        return [int(line) for line in lines_in(visible)]

    yield Place(str(out), read)


@contextlib.contextmanager
def delta(folder):
    path = f"{folder}/out"

    def read():
        if not deltalake.DeltaTable.is_deltatable(path):
            return []
        return deltalake.DeltaTable(path).to_pyarrow_table().column("n").to_pylist()

    yield Place(path, read)


@contextlib.contextmanager
def iceberg(folder):
    lake = Lake(folder / "lake")

    def read():
        with lake.catalog() as catalog:
            if not catalog.table_exists("shop.out"):
                return []
        return lake.table("shop.out").scan().to_arrow().column("n").to_pylist()

    yield Place(json.dumps(lake.properties), read)


PLACES = {
    "table": postgres,
    "table with keys": postgres_with_keys,
    "table with keys in MariaDB": mariadb_with_keys,
    "kafka": kafka_topic,
    "pulsar": pulsar_topic,
    "redis": redis_stream,
    "nats": jetstream,
    "http": http_server,
    "files": files,
    "delta": delta,
    "iceberg": iceberg,
}
OF_FOLDERS = {"files", "delta", "iceberg"}
WITHOUT_SERVER = {*OF_FOLDERS, "kafka", "pulsar"}
"""Or one that lives in this process."""


# ------------------------------------------------------------------ killing


class Drivers:
    """One driver process after the other, for one job."""

    def __init__(self, folder: Path, kind: str, place: Place) -> None:
        self._command = [sys.executable, "-m", PROGRAM, str(folder), kind, place.where]
        self._folder = folder
        self.processes: list[subprocess.Popen] = []
        self.begin()

    def begin(self) -> None:
        with (self._folder / "driver.log").open("a") as log:
            self.processes.append(
                subprocess.Popen(
                    self._command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
                )
            )

    @property
    def log(self) -> str:
        return (self._folder / "driver.log").read_text()

    @property
    def has_ended(self) -> bool:
        return self.processes[-1].poll() is not None

    def checkpoints(self) -> int:
        """The number of the last one that is complete."""
        found = (self._folder / "checkpoints").glob("*/chk-*/_metadata")
        return max((int(one.parent.name.removeprefix("chk-")) for one in found), default=0)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.processes[-1].pid).children(recursive=True)

    def kill_taskmanager(self) -> None:
        running = [one for one in self.family() if PROCESS_NAME in command_of(one)]
        running[0].kill()

    def kill(self) -> None:
        self.processes[-1].kill()
        self.processes[-1].wait()
        self.begin()

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for member in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        member.kill()
            process.kill()
            process.wait()


def kill(victim: str, drivers: Drivers, place: Place) -> None:
    if victim == "taskmanager":
        drivers.kill_taskmanager()
    elif victim == "driver":
        drivers.kill()
    else:
        place.server.kill()
        place.server.start()


def cases():
    for name in PLACES:
        for victim in ("taskmanager", "driver", "server"):
            if victim != "server" or name not in WITHOUT_SERVER:
                yield pytest.param(name, victim, id=f"{name}-{victim}")


@pytest.mark.parametrize(("name", "victim"), list(cases()))
def test_each_number_is_there_once_whatever_is_killed(tmp_path, name, victim):
    kind = name.removesuffix(" in MariaDB")
    make = PLACES[name]
    with make(tmp_path) if name in OF_FOLDERS else make() as place:
        drivers = Drivers(tmp_path, kind, place)
        try:
            for part in (COUNT // 5, COUNT // 2):
                wait_until(
                    lambda part=part: max(place.read(), default=0) >= part or drivers.has_ended,
                    f"nothing is written\n{drivers.log}",
                    PATIENCE_S,
                )
                assert not drivers.has_ended, drivers.log
                kill(victim, drivers, place)
            numbers = range(COUNT - KEYS, COUNT) if "keys" in name else range(COUNT)
            wait_until(
                lambda: drivers.has_ended or set(numbers) <= set(place.read()),
                f"numbers are missing\n{drivers.log}",
                PATIENCE_S,
            )
            # Nothing comes twice later.
            last = drivers.checkpoints() + MORE_CHECKPOINTS
            wait_until(
                lambda: drivers.has_ended or drivers.checkpoints() >= last,
                f"there are no more checkpoints\n{drivers.log}",
                PATIENCE_S,
            )
            assert not drivers.has_ended, drivers.log
        finally:
            drivers.end()
        assert sorted(place.read()) == [*numbers], drivers.log
