"""What a SqlSink takes and refuses: records, values, settings."""

import datetime as dt
import sys
from decimal import Decimal

import pytest
import sqlalchemy as sa

from penstock.common import Row, Types
from penstock.connectors.sql_sink import SqlSink
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.sql_tables import Db, context

# ------------------------------------------------------------------ records and values


@pytest.mark.parametrize(
    "record",
    [
        Row(name="a", n=1),
        Row(n=1, name="a"),
        Row("a", 1),
        ("a", 1),
        ["a", 1],
        {"n": 1, "name": "a", "x": 0},
    ],
)
def test_records_of_many_kinds_are_rows(url, record):
    db = Db(url)
    sink = db.sink(set_columns=["name", "n"])
    writer = sink.create_writer(context(input_type=None))
    writer.write(RowBatch([record]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert db.rows() == [("a", 1)]


def test_a_scalar_is_the_only_column(url):
    db = Db(url)
    sink = db.sink(set_columns=["n"])
    writer = sink.create_writer(context(input_type=None))
    writer.write(RowBatch([7]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert db.rows() == [(None, 7)]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (("a",), "has 1 fields, expected 2"),
        ({"name": "a"}, "lacks a field for one of the columns"),
        (Row(name="a", m=1), "lacks a field for one of the columns"),
        (5, "has 1 fields, expected 2"),
    ],
)
def test_a_record_that_does_not_fit_is_named(url, record, text):
    writer = Db(url).sink().create_writer(context())
    with pytest.raises(TypeError, match=text):
        writer.write(RowBatch([record]), 0)


def test_values_come_back_as_they_were(standard_url):
    db = Db(
        standard_url,
        "CREATE TABLE kinds (i BIGINT, f DOUBLE PRECISION, s TEXT, d NUMERIC(20, 4), day DATE, at TIMESTAMP, ok BOOLEAN)",
    )
    columns = ["i", "f", "s", "d", "day", "at", "ok"]
    sink = db.sink("kinds", set_columns=columns)
    writer = sink.create_writer(context(input_type=None))
    at = dt.datetime.fromisoformat("2024-02-03T04:05:06.000789")
    values = (2**62, 0.1, "é'\"%s", Decimal("12.3456"), dt.date(2024, 2, 3), at, True)
    writer.write(RowBatch([values, (None,) * 7]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    table = sa.Table("kinds", sa.MetaData(), autoload_with=db.engine)
    with db.engine.connect() as connection:
        found = [
            tuple(row) for row in connection.execute(sa.select(table).order_by(table.c.i.is_(None)))
        ]
    assert found == [values, (None,) * 7]


# ------------------------------------------------------------------ what can be known at submit


def test_validate_says_what_is_wrong(url):
    db = Db(url)
    with pytest.raises(ConfigurationError, match="there is no table 'absent' in"):
        db.sink("absent")
    with pytest.raises(ConfigurationError, match=r"no column 'm'; it has \['n', 'name'\]"):
        db.sink(set_columns=["name", "m"])
    with pytest.raises(ConfigurationError, match="no column 'key'"):
        db.sink(set_key_columns=["key"])
    db.sink()
    db.sink()


def test_a_password_is_not_shown():
    sink = (
        SqlSink
        .builder()
        .set_url("postgresql+psycopg://me:secret@127.0.0.1:1/db")
        .set_table("t")
        .build()
    )
    with pytest.raises(ConfigurationError, match=r"cannot use .*me:\*\*\*@127.0.0.1") as caught:
        sink.validate()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ("sqlite://", "belongs to one process"),
        ("sqlite:///:memory:", "belongs to one process"),
        ("nonsense", "cannot make a connection from this URL"),
        ("strangedb://host/x", "cannot make a connection from this URL"),
        ("mysql+mysqldb://host/x", "driver 'MySQLdb' is not installed"),
    ],
)
def test_an_url_that_cannot_work_is_refused(bad, text):
    with pytest.raises(ConfigurationError, match=text):
        SqlSink.builder().set_url(bad).set_table("t").build().validate()


def test_the_builder_refuses_what_cannot_work():
    builder = SqlSink.builder
    with pytest.raises(ConfigurationError, match="set_url is missing"):
        builder().set_table("t").build()
    with pytest.raises(ConfigurationError, match="set_table is missing"):
        builder().set_url("sqlite:////x.db").build()
    with pytest.raises(ConfigurationError, match=r"key columns \['k'\] are not among"):
        builder().set_url("sqlite:////x.db").set_table("t").set_columns(["a"]).set_key_columns([
            "k"
        ]).build()
    for setter, value in [
        ("set_columns", "name"), ("set_columns", []), ("set_key_columns", ["a", "a"]), ("set_batch_size", 0),
        ("set_batch_interval_ms", 0), ("set_max_retries", -1), ("set_commit_retention", dt.timedelta(0)),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=setter):
            getattr(builder(), setter)(value)


def test_columns_are_needed_where_the_type_does_not_tell(url):
    sink = Db(url).sink()
    with pytest.raises(ConfigurationError, match=r"its columns are not known.*set_columns"):
        sink.create_writer(context(input_type=Types.INT()))
    sink = Db(url, "CREATE TABLE other (k INTEGER PRIMARY KEY)").sink(
        "other", set_key_columns=["k"]
    )
    with pytest.raises(ConfigurationError, match="not among the stream's fields"):
        sink.create_writer(context())


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    sink = SqlSink.builder().set_url("sqlite:////x.db").set_table("t").build()
    text = r"SqlSink.* needs the package 'sqlalchemy', but .* does not have.*pip install 'penstock\[sql\]'"
    with pytest.raises(ConfigurationError, match=text):
        sink.validate()
    with pytest.raises(ConfigurationError, match="subtask 0 of 1 needs the package"):
        sink.create_writer(context())
