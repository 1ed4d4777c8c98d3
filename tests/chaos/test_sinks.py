"""Every sink that is exactly once, while a TaskManager, the driver or the sink's server is killed as it writes: each number is there once.

Each job has a driver process of its own with embedded Spark. What a reader sees says when something is killed.
"""

import contextlib

import pytest
import redis
import sqlalchemy as sa

from tests.chaos.drivers import Drivers, Place, delta, iceberg, write_and_kill
from tests.tools.brokers import kafka, kafka_topics, pulsar, pulsar_topics
from tests.tools.brokers.nats_streams import Streams
from tests.tools.http_peer import ask, http_peer, url
from tests.tools.mariadb import running_mariadb
from tests.tools.output_files import files_below, lines_in
from tests.tools.postgres import running_postgres
from tests.tools.programs.killed_sink import COUNT, KEYS
from tests.tools.small_servers import nats_server, redis_server

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.server]


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
        numbers = range(COUNT - KEYS, COUNT) if "keys" in name else range(COUNT)
        write_and_kill(drivers, place, lambda: kill(victim, drivers, place), numbers)
        assert sorted(place.read()) == [*numbers], drivers.log
