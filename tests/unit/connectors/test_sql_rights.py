"""Rights that are missing are told at submit, where the job would fail after its first checkpoint."""

import pytest
import sqlalchemy as sa

from penstock.common import Types
from penstock.connectors.sql_sink import SqlSink
from penstock.engine.model.errors import ConfigurationError
from tests.tools.connectors.sql_tables import PAIRS, Db

KEYED = "CREATE TABLE counts (name VARCHAR(80) PRIMARY KEY, n INTEGER)"


def refusal(url, table="counts", row_type=PAIRS, **settings):
    builder = SqlSink.builder().set_url(url).set_table(table)
    for name, value in settings.items():
        getattr(builder, name)(value)
    sink = builder.build()
    sink.validate()
    with pytest.raises(ConfigurationError) as caught:
        sink.validate_input(row_type)
    return str(caught.value)


@pytest.fixture
def poor(postgres_url):
    """Makes a user of PostgreSQL with these rights only: on each table in `public`, by name."""
    db = Db(postgres_url, "DROP SCHEMA public CASCADE")
    for text in (
        "CREATE SCHEMA public",
        KEYED,
        "CREATE USER poor",
        "GRANT ALL ON SCHEMA public TO poor",
    ):
        db.run(text)
    db.sink()  # makes the sink's own tables, as its owner

    def make(**rights):
        for table, allowed in rights.items():
            db.run(f"GRANT {allowed} ON {table} TO poor")
        return postgres_url.replace("penstock@", "poor@")

    yield make
    db.run("DROP OWNED BY poor")
    db.run("DROP USER poor")


OWN = {"penstock_staged": "ALL", "penstock_commits": "ALL"}


def test_the_sinks_own_tables(poor):
    text = refusal(poor(counts="ALL", penstock_staged="SELECT, INSERT"))
    assert "cannot write 'penstock_staged': InsufficientPrivilege: permission denied" in text
    assert "needs INSERT on 'counts'" in text
    assert "set_own_tables" in text


def test_the_users_table(poor):
    assert "cannot write 'counts': Insuff" in refusal(poor(counts="SELECT", **OWN))


def test_replacing_by_key_needs_more(poor):
    url = poor(counts="INSERT, SELECT", **OWN)
    assert "cannot write 'counts'" in refusal(url, set_key_columns=["name"])
    SqlSink.builder().set_url(url).set_table("counts").build().validate_input(PAIRS)


def test_rights_on_the_written_columns_are_enough(poor):
    url = poor(counts="INSERT (name)", **OWN)
    names = Types.ROW_NAMED(["name"], [Types.STRING()])
    SqlSink.builder().set_url(url).set_table("counts").build().validate_input(names)
    assert "cannot write 'counts'" in refusal(url)


def test_mariadb_has_rights_too(mariadb_url):
    admin = sa.make_url(mariadb_url)
    db = Db(mariadb_url, "DROP TABLE IF EXISTS counts")
    db.run(KEYED)
    db.sink(set_key_columns=["name"]).validate_input(PAIRS)
    db.run("CREATE OR REPLACE VIEW sums AS SELECT name, n + 1 AS n FROM counts")
    assert "cannot write 'sums'" in refusal(admin.render_as_string(hide_password=False), "sums")
    db.run("DROP VIEW sums")


def test_a_view_that_takes_no_rows(postgres_url):
    db = Db(postgres_url, "DROP TABLE IF EXISTS counts CASCADE")
    db.run(KEYED)
    db.run("CREATE VIEW sums AS SELECT name, n + 1 AS n FROM counts")
    assert "cannot write 'sums'" in refusal(postgres_url, "sums")
    db.run("DROP VIEW sums")


def test_nothing_is_changed(url):
    db = Db(url, KEYED)
    db.run("INSERT INTO counts VALUES ('a', 1)")
    db.sink(set_key_columns=["name"]).validate_input(PAIRS)
    assert db.rows() == [("a", 1)]
    assert db.staged() == []
