"""Instants stay what they are, in sessions of any zone, on databases that keep no zone with a time and on those that do."""

import datetime as dt

import pytest

from penstock.common import Row, Types
from penstock.connectors.sql_source import SqlSource
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sink import WriterContext
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.sql_tables import Db
from tests.unit.connectors.conftest import empty_database

NOON = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
EAST = dt.timezone(dt.timedelta(hours=5))
INSTANTS = Types.ROW_NAMED(["id", "at"], [Types.INT(), Types.TIMESTAMP_LTZ()])


def session_in_the_east(url):
    """Options of an engine whose sessions have this zone, where they have one."""
    zones = {
        "mariadb": {"init_command": "SET time_zone = '+05:00'"},
        "postgresql": {"options": "-c timezone=+5"},
    }
    return {"connect_args": zones.get(url.split(":")[0].split("+")[0], {})}


def table_of(url, kind="TIMESTAMP"):
    zoned = "TIMESTAMPTZ" if url.startswith("postgresql") else kind
    return Db(url, f"CREATE TABLE counts (id INTEGER, at {zoned} NULL)")


def write(db, row_type, rows, guarantee=DeliveryGuarantee.EXACTLY_ONCE):
    options = session_in_the_east(db.url)
    sink = db.sink(set_delivery_guarantee=guarantee, set_engine_options=options)
    writer = sink.create_writer(WriterContext(0, 1, 0, "job", "job", row_type))
    committer = sink.create_committer()
    writer.write(RowBatch(rows), 0)
    if committer is None:
        writer.prepare_commit()
    else:
        committer.commit(writer.prepare_checkpoint(1))
        committer.close()
    writer.close()


def read(url, row_type):
    builder = SqlSource.builder().set_url(url).set_table("counts").set_row_type(row_type)
    source = builder.set_engine_options(session_in_the_east(url)).build()
    source.validate()
    run = SourceRun(source, 1)
    run.read()
    run.close()
    return sorted(run.records, key=lambda row: row["id"])


@pytest.mark.parametrize(
    "guarantee", [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE]
)
def test_an_instant_comes_back_in_a_session_of_another_zone(url, guarantee):
    db = table_of(url)
    rows = [
        Row(id=1, at=NOON),
        Row(id=2, at=NOON.astimezone(EAST)),
        Row(id=3, at=None),
    ]
    write(db, INSTANTS, rows, guarantee)
    found = read(url, INSTANTS)
    assert [(row["id"], row["at"]) for row in found] == [
        (1, NOON), (2, NOON), (3, None),
    ]  # fmt: skip


@pytest.mark.server
def test_the_database_has_the_same_instant(request, tmp_path):
    url = empty_database(request, "mariadb", tmp_path)
    db = table_of(url)
    write(db, INSTANTS, [Row(id=1, at=NOON), Row(id=2, at=NOON.astimezone(EAST))])
    assert db.run("SELECT UNIX_TIMESTAMP(at) FROM counts") == [(NOON.timestamp(),)] * 2


@pytest.mark.server
def test_a_time_without_a_zone_is_one_in_the_zone_of_the_session(request, tmp_path):
    url = empty_database(request, "mariadb", tmp_path)
    db = table_of(url)
    shown = Types.ROW_NAMED(["id", "at"], [Types.INT(), Types.SQL_TIMESTAMP()])
    write(db, shown, [Row(id=1, at=NOON.replace(tzinfo=None))])
    east = NOON.replace(tzinfo=EAST)
    assert db.run("SELECT UNIX_TIMESTAMP(at) FROM counts") == [(east.timestamp(),)]
    assert read(url, shown)[0]["at"] == NOON.replace(tzinfo=None)


@pytest.mark.server
def test_a_datetime_shows_an_instant_in_utc(request, tmp_path):
    url = empty_database(request, "mariadb", tmp_path)
    db = table_of(url, "DATETIME")
    write(db, INSTANTS, [Row(id=1, at=NOON.astimezone(EAST))])
    assert db.run("SELECT at FROM counts") == [(NOON.replace(tzinfo=None),)]
    assert read(url, INSTANTS)[0]["at"] == NOON
