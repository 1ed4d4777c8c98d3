"""PostgresSource on a real server: restarts at every place, writers meanwhile, a server that is killed, the slot."""

import contextlib
import itertools
import threading

import pytest
from psycopg.errors import DeadlockDetected, UniqueViolation

from penstock.common import Row
from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc import ChangelogMode, StartupOptions
from penstock.connectors.cdc.postgres import snapshot
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ExternalError
from penstock.testing import check_source
from penstock.testing.conformance import source_run
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.changelogs import Replayed, Restarting, Writers, streaming, told
from tests.tools.waiting import wait_until


class _Context:
    def takes_checkpoints(self):
        return True

    def subtask(self):
        return 0

    def parallelism(self):
        return 1


def known(source):
    """The source when it has been asked for its type, as each job does."""
    assert source.produced_type is not None
    return source


def test_every_restart_of_the_stream_gives_each_change_once(database):
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, name text)")
    expected = [Row(id=number, name=f"n{number}") for number in range(40)]

    def make():
        source = database.builder().startup_options(StartupOptions.never())
        source = known(source.changelog_mode(ChangelogMode.UPSERT).build())
        database.clear_slots()
        database.execute("TRUNCATE orders")
        enumerator = source.create_enumerator(_Context())
        enumerator.start()  # the slot is there before the changes
        enumerator.close()
        database.execute(
            *(f"INSERT INTO orders VALUES ({one.id}, '{one.name}')" for one in expected[:10]),
            "INSERT INTO orders SELECT n, 'n' || n FROM generate_series(10, 39) n",
        )
        return source

    report = check_source(make, expected, parallelisms=(2,), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


def test_every_restart_and_rescale_of_the_snapshot_gives_each_row_once(orders, monkeypatch):
    monkeypatch.setattr(snapshot, "_ROWS", 10)
    orders.execute("INSERT INTO orders SELECT n, 'n' FROM generate_series(4, 60) n")
    expected = [Row(id=one, name=name) for one, name in orders.rows("SELECT * FROM orders")]

    def make():
        made = orders.builder().split_size(25)
        orders.clear_slots()
        return known(made.build())

    report = check_source(make, expected, parallelisms=(2,), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bigint", "n * 100000000000"),
        ("text", "'k' || n"),
        ("numeric(6,1)", "n"),
        ("char(3)", "chr(97 + n % 26) || n / 26"),
    ],
)
def test_rows_with_keys_of_any_type_come_once_through_restarts(database, monkeypatch, key, value):
    monkeypatch.setattr(snapshot, "_ROWS", 5)
    database.execute(
        f"CREATE TABLE orders (id {key}, part text, name text, PRIMARY KEY (id, part))",
        f"INSERT INTO orders SELECT {value}, p, 'n' || n FROM generate_series(1, 40) n, "
        "unnest(ARRAY['x', 'Y']) p",
    )
    source = database.builder().changelog_mode(ChangelogMode.UPSERT).split_size(25).build()
    restarting = Restarting(source, parallelisms=(1, 2), seed=5)
    restarting.read_until(lambda records: len(records) >= 80)
    found = sorted((str(one).rstrip(), part, name) for one, part, name in restarting.records)
    assert found == sorted(database.rows("SELECT id::text, part, name FROM orders"))
    assert restarting.restarts > 1


UPSERT = "INSERT INTO orders VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET n = orders.n + 1"
MOVE = """UPDATE orders SET id = %s WHERE id = %s
AND NOT EXISTS (SELECT FROM orders WHERE id = %s)"""


def writer(database, keys):
    """Transactions of the usual kinds on a table (id, part, n)."""

    @contextlib.contextmanager
    def connected():
        with database.connect() as connection:
            yield lambda chance: write(connection, chance)

    def write(connection, chance):
        with contextlib.suppress(DeadlockDetected), connection.transaction():
            for _ in range(chance.randrange(1, 5)):
                one, two = str(chance.randrange(keys)), str(chance.randrange(keys))
                statement, values = chance.choice([
                    (
                        UPSERT,
                        (one, chance.randrange(100)),
                    ),
                    ("DELETE FROM orders WHERE id = %s", (one,)),
                    ("UPDATE orders SET n = n + 1 WHERE id = %s", (one,)),
                    (
                        MOVE,
                        (two, one, two),
                    ),
                ])
                with contextlib.suppress(UniqueViolation), connection.transaction():
                    connection.execute(statement, values)

    return connected


@pytest.mark.parametrize("key", ["int", "text"])
def test_snapshot_and_changes_under_writers_and_restarts_give_the_table(database, monkeypatch, key):
    monkeypatch.setattr(snapshot, "_ROWS", 40)
    database.execute(
        f"CREATE TABLE orders (id {key} PRIMARY KEY, n int)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders SELECT n, 0 FROM generate_series(0, 1999) n",
    )
    source = database.builder().split_size(150).build()
    restarting = Restarting(source, parallelisms=(1, 2, 3), seed=7)
    with Writers(writer(database, 2000)):
        restarting.read_until(lambda records: len(records) > 4000)
    content = sorted(database.rows("SELECT id, n FROM orders"))
    restarting.read_until(lambda records: Replayed().apply(records).content == content)
    assert restarting.restarts > 3


def test_a_restart_inside_of_a_large_transaction_goes_on_behind_the_row_it_was_at(orders):
    source = orders.builder().build()
    with streaming(source, 3) as run:
        orders.execute(
            "INSERT INTO orders SELECT n, 'n' FROM generate_series(10, 5009) n",
            "INSERT INTO orders VALUES (6000, 'last')",
        )
        run.read(batches=2)
        kept = run.checkpoint(2)
        before = run.records
        run.complete(2)
        assert 3 < len(before) < 5003
        run.read(batches=1)
    with contextlib.closing(SourceRun(source, 1, kept)) as other:
        other.read(records=5004 - len(before))
        other.look_on()
    assert [row.id for row in before + other.records][3:] == [*range(10, 5010), 6000]


def moved(database, lsn):
    return lambda: database.confirmed() >= lsn


def checkpoints_until(run, is_so):
    """Checkpoints complete until it is so. One alone may cover a change and not the end of its transaction."""
    checkpoints = itertools.count(10)

    def is_so_now():
        run.look_on(1)
        checkpoint = next(checkpoints)
        run.checkpoint(checkpoint)
        run.complete(checkpoint)
        return is_so()

    wait_until(is_so_now, "the slot keeps WAL that nobody needs")


def test_the_slot_moves_only_behind_complete_checkpoints_and_also_without_changes_of_ours(orders):
    source = orders.builder().build()
    with streaming(source, 3) as run:
        run.look_on()
        begin = orders.confirmed()
        orders.execute("INSERT INTO orders VALUES (4, 'd')")
        run.read(records=4)
        run.look_on()
        run.checkpoint(2)
        run.look_on()
        assert orders.confirmed() == begin
        run.complete(2)
        orders.execute("CREATE TABLE other (id int PRIMARY KEY)")
        orders.execute("INSERT INTO other SELECT generate_series(1, 1000)")
        checkpoints_until(run, moved(orders, orders.end()))
    assert len(run.records) == 4


def test_a_server_that_is_killed_is_waited_for_and_no_change_is_lost_or_doubled(own_postgres):
    database = own_postgres
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name text)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, NULL)",
    )
    with streaming(database.builder().build(), 3) as run:
        database.execute("INSERT INTO orders SELECT n, 'n' FROM generate_series(10, 3009) n")
        run.read(batches=1)
        assert len(run.records) < 3003
        database.server.kill()
        run.read(batches=1)
        database.server.start()
        database.execute("DELETE FROM orders WHERE id = 1")
        run.read(records=3004)
        run.look_on()
    content = sorted(database.rows("SELECT id, coalesce(name, '') FROM orders"))
    found = Replayed().apply(run.records).rows.values()
    assert sorted((one, name or "") for one, name in found) == content


def test_a_slot_that_its_last_reader_still_holds_is_waited_for(orders):
    source = orders.builder().build()
    with streaming(source, 3) as run:
        run.look_on()
        kept = run.checkpoint(2)
        run.complete(2)
        other = SourceRun(source, 1, kept)
        closing = threading.Timer(1, run.close)
        closing.start()
        orders.execute("INSERT INTO orders VALUES (4, 'd')")
        other.read(records=1)
        closing.join()
        other.close()
    assert told(other.records) == [("+I", 4, "d")]


def test_a_savepoint_that_is_older_than_what_the_slot_has_confirmed_is_refused(orders):
    source = orders.builder().build()
    with streaming(source, 3) as run:
        orders.execute("INSERT INTO orders VALUES (4, 'd')")
        run.read(records=4)
        old, fourth = run.checkpoint(2), orders.end()
        orders.execute("INSERT INTO orders VALUES (5, 'e')")
        run.read(records=5)
        checkpoints_until(run, moved(orders, fourth + 1))
    run = SourceRun(source, 1, old)
    with pytest.raises(RefusedForGood, match="is confirmed up to .* Restore a newer checkpoint"):
        run.read(records=1)
    run.close()
    orders.drop_slot(orders.slot)
    run = SourceRun(source, 1, old)
    with pytest.raises(RefusedForGood, match="is gone"):
        run.read(records=1)
    run.close()


def test_a_transaction_that_stays_open_is_told_as_what_the_slot_waits_for(orders, monkeypatch):
    monkeypatch.setattr("penstock.connectors.cdc.postgres.source._CREATE_S", 1)
    source = orders.builder().build()
    with orders.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO orders VALUES (4, 'd')")
        with pytest.raises(ExternalError, match="was not created within 1 s, because transactions"):
            SourceRun(source, 1)


def test_a_change_of_a_transaction_that_was_open_before_comes_once(orders):
    """The slot is there already, so nothing else waits for it: the snapshot does."""
    source = orders.builder().build()
    orders.execute(f"SELECT pg_create_logical_replication_slot('{orders.slot}', 'pgoutput')")
    with orders.connect() as connection, contextlib.ExitStack() as left:
        with connection.transaction():
            connection.execute("INSERT INTO orders VALUES (4, 'd')")
            run = left.enter_context(contextlib.closing(SourceRun(source, 1)))
            run.look_on()
            assert run.records == []
        run.read(records=4)
        run.look_on()
    assert told(run.records)[3:] == [("+I", 4, "d")]


def test_a_job_without_checkpoints_reads_everything_again_after_a_failure(orders, monkeypatch):
    """Also when the slot has moved past where the job began."""
    monkeypatch.setattr(source_run._Reader, "takes_checkpoints", lambda _: False)
    with contextlib.closing(SourceRun(orders.builder().build(), 1)) as run:
        run.read(records=3)
        begin = orders.confirmed()
        orders.execute("INSERT INTO orders VALUES (4, 'd')", "DELETE FROM orders WHERE id = 1")
        run.read(records=5)

        def has_moved():
            run.look_on(1)
            return orders.confirmed() > begin

        wait_until(has_moved, "the slot does not move")
        assert told(run.records)[3:] == [("+I", 4, "d"), ("-D", 1, "a")]
        run.fail(0, None)
        run.read(records=3)
        orders.execute("INSERT INTO orders VALUES (5, 'e')")
        run.read(records=4)
        run.look_on()
    assert told(run.records) == [
        ("+I", 2, "b"),
        ("+I", 3, None),
        ("+I", 4, "d"),
        ("+I", 5, "e"),
    ]
