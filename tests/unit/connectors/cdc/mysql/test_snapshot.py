"""Ranges that the server lets wait: for a long sort, or for a lock."""

import contextlib

import pytest

from penstock.connectors.cdc.mysql import catalog
from penstock.connectors.cdc.mysql import source as mysql_source
from penstock.engine.model.errors import ExternalError, RefusedForGood
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.changelogs import streaming, told
from tests.tools.waiting import wait_until

WAITS = """SELECT 1 FROM information_schema.PROCESSLIST
WHERE USER = 'cdc' AND INFO LIKE 'SELECT %orders%' AND TIME_MS > 2000"""


def test_a_range_may_take_longer_than_a_look_at_the_server(database, monkeypatch):
    monkeypatch.setattr(catalog, "READ_S", 1)
    database.execute(
        "CREATE TABLE orders (id varchar(9) PRIMARY KEY)", "INSERT INTO orders VALUES ('a')"
    )
    source = database.builder().build()
    assert source.produced_type is not None
    with contextlib.closing(database.connect()) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES orders WRITE")
        with contextlib.closing(SourceRun(source, 1)) as run:

            def has_waited():
                run.look_on(1)
                return database.rows(WAITS)

            wait_until(has_waited, "the range is not asked for")
            cursor.execute("UNLOCK TABLES")
            run.read(records=1)
    assert told(run.records) == [("+I", "a")]


def test_open_transactions_that_a_lock_waits_for_are_told_of(orders, monkeypatch):
    monkeypatch.setattr(mysql_source, "_LOCK_S", 1, raising=False)
    source = orders.builder().lock_tables().build()
    with contextlib.closing(orders.connect()) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO orders VALUES (4, 'd')")
        with (
            contextlib.closing(SourceRun(source, 1)) as run,
            pytest.raises(ExternalError, match=r"lock on shop\.orders .*within 1 s.*INNODB_TRX"),
        ):
            run.read(records=1)


def test_names_with_percent_signs_are_names(database):
    table = "`part%`"
    database.execute(
        f"CREATE TABLE {table} (`id%s` varchar(9) PRIMARY KEY, `rate%` int)",
        f"INSERT INTO {table} VALUES ('a', 1)",
    )
    try:
        with streaming(database.builder("part%").build(), 1) as run:
            database.execute(f"INSERT INTO {table} VALUES ('b', 2)")
            run.read(records=2)
    finally:
        database.execute(f"DROP TABLE {table}")
    assert told(run.records) == [("+I", "a", 1), ("+I", "b", 2)]


@pytest.mark.parametrize("kind", ["date", "datetime(3)", "timestamp"])
@pytest.mark.parametrize("is_snapshot", [True, False])
def test_a_key_with_a_date_of_zeros_is_refused_and_named(database, kind, is_snapshot):
    insert = "INSERT INTO orders VALUES ('0000-00-00')"
    database.execute(f"CREATE TABLE orders (day {kind} PRIMARY KEY)")
    expected = r"key column 'day' of shop\.orders has a date with zeros"
    if is_snapshot:
        database.execute("SET sql_mode = ''", insert)
        with (
            contextlib.closing(SourceRun(database.builder().build(), 1)) as run,
            pytest.raises(RefusedForGood, match=expected),
        ):
            run.read(records=1)
        return
    database.execute("INSERT INTO orders VALUES ('2024-02-29')")
    with streaming(database.builder().build(), 1) as run:
        database.execute("SET sql_mode = ''", insert)
        with pytest.raises(RefusedForGood, match=expected):
            run.read(records=2)
