"""Whole jobs of a MiniCluster that copy a table of a real server: snapshot, changes, failures, a savepoint at another parallelism."""

import contextlib
import random
import threading

import pytest
import sqlalchemy as sa

from penstock.common import WatermarkStrategy
from penstock.connectors.sql_sink import SqlSink
from tests.tools.connectors import cdc_mariadb, cdc_postgres
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.server

ROWS = 600
PLANTED = {}


@pytest.fixture
def name(request):
    """What the test and the tasks of its job, in one process, know the planted failures by."""
    PLANTED[request.node.name] = threading.Semaphore(0)
    return request.node.name


class Fails:
    """Each time somebody has allowed it."""

    def __init__(self, name):
        self.name = name

    def __call__(self, row):
        if PLANTED[self.name].acquire(blocking=False):
            raise RuntimeError("planted")
        return row


@pytest.fixture(scope="module")
def postgres():
    with cdc_postgres.running_postgres(*cdc_postgres.LOGICAL) as server:
        database = cdc_postgres.Database(server)
        database.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, n int)",
            "ALTER TABLE orders REPLICA IDENTITY FULL",
            f"INSERT INTO orders SELECT n, 0 FROM generate_series(1, {ROWS}) n",
        )
        yield database


@pytest.fixture(scope="module")
def mariadb():
    with cdc_mariadb.running_mariadb(*cdc_mariadb.BINLOG) as server:
        database = cdc_mariadb.Database(server).prepare()
        database.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, n int)",
            f"INSERT INTO orders SELECT seq, 0 FROM seq_1_to_{ROWS}",
        )
        yield database


def copying(source, name, copy, tmp_path, parallelism, **more):
    env = restarting_environment(
        Watcher(),
        parallelism,
        **{
            "execution__checkpointing__interval": "50 ms",
            "execution__checkpointing__dir": str(tmp_path / "checkpoints"),
        }
        | more,
    )
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").uid("in")
    rows.set_parallelism(parallelism)
    kept = rows.map(Fails(name), source.produced_type).uid("fails")
    sink = SqlSink.builder().set_url(copy).set_table("copied").set_key_columns(["id"]).build()
    kept.key_by(lambda row: row.id).map(lambda row: row, source.produced_type).uid("keyed").sink_to(
        sink
    ).uid("out")
    return env.execute_async("copy")


def change(database, chance, count):
    statements = []
    for _ in range(count):
        one = chance.randrange(1, ROWS + 100)
        statements += chance.choices([
            f"DELETE FROM orders WHERE id = {one}",
            f"UPDATE orders SET n = n + 1 WHERE id = {one}",
            f"UPDATE orders SET n = n + 1 WHERE id BETWEEN {one} AND {one + 50}",
        ])
    database.execute(*statements)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_table_is_copied_through_failures_and_a_savepoint_at_another_parallelism(
    request, tmp_path, name, kind
):
    database = request.getfixturevalue(kind)
    copy = f"sqlite:///{tmp_path}/copy.db"
    engine = sa.create_engine(copy, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE copied (id INTEGER PRIMARY KEY, n INTEGER)"))

    def copied():
        with engine.connect() as connection:
            return sorted(map(tuple, connection.execute(sa.text("SELECT id, n FROM copied"))))

    def content():
        return sorted(map(tuple, database.rows("SELECT id, n FROM orders")))

    chance = random.Random(3)
    source = database.builder().split_size(100).build()
    PLANTED[name].release()  # in the snapshot
    client = copying(source, name, copy, tmp_path, 2)
    with contextlib.ExitStack() as ended:
        ended.callback(lambda: client.cancel().result())
        change(database, chance, 30)
        wait_until(lambda: copied() == content(), "the snapshot and its changes are not copied")
        PLANTED[name].release()  # in the stream
        change(database, chance, 30)
        wait_until(lambda: copied() == content(), "the changes are not copied")
        folder = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
        client.get_job_execution_result().result()
        ended.pop_all()
    change(database, chance, 30)
    more = {"execution__state_recovery__path": folder}
    client = copying(source, name, copy, tmp_path, 1, **more)
    change(database, chance, 30)
    try:
        wait_until(lambda: copied() == content(), "what came after the savepoint is not copied")
    finally:
        client.cancel().result()
    assert len(copied()) > ROWS // 2
