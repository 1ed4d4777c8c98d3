"""Errors of three real databases: one line with table, constraint and row, and whether another try may succeed."""

import logging
from contextlib import suppress

import pytest
import sqlalchemy as sa

from penstock.common import Types
from penstock.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from penstock.connectors.sql.engine import driver_text, may_pass
from penstock.connectors.sql_sink import SqlSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import JobExecutionError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import MiniCluster
from tests.tools.connectors.sql_tables import PAIRS, Db, context, put
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment

UNIQUE = "CREATE TABLE counts (name VARCHAR(80) UNIQUE, n INTEGER NOT NULL)"


def error_at(url, *statements):
    """What the database raises for the last statement."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        for statement in statements[:-1]:
            connection.execute(sa.text(statement))
        with pytest.raises(sa.exc.DBAPIError) as caught:
            connection.execute(sa.text(statements[-1]))
    return caught.value


def test_the_row_that_breaks_a_constraint_is_named_in_one_line(url):
    db = Db(url, UNIQUE)
    sink = db.sink(set_batch_size=50)
    writer = sink.create_writer(context())
    put(writer, *[(f"name {n}", n) for n in range(130)], ("name 77", -1), ("last", 0))
    prepared = writer.prepare_checkpoint(1)
    with pytest.raises(RefusedForGood) as caught:
        sink.create_committer().commit(prepared)
    text = str(caught.value)
    assert "cannot commit for the table 'counts'" in text
    assert "{'name': 'name 77', 'n': -1}" in text
    assert "name" in text
    assert "Background on this error" not in text
    assert "\n" not in text
    assert db.rows() == []


def test_a_row_that_is_written_directly_is_named_too(url):
    db = Db(url, UNIQUE)
    sink = db.sink(set_delivery_guarantee=DeliveryGuarantee.AT_LEAST_ONCE)
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("b", None))
    with pytest.raises(RefusedForGood, match=r"\{'name': 'b', 'n': None\}"):
        writer.prepare_commit()
    assert db.rows() == []


def test_a_jdbc_sink_names_the_row_too(url):
    db = Db(url, UNIQUE)
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()
    sink = JdbcSink.sink("INSERT INTO counts (name, n) VALUES (?, ?)", PAIRS, options)
    writer = sink.create_writer(context())
    writer.write(RowBatch([("a", 1), ("b", 2), ("a", 3)]), 0)
    with pytest.raises(RefusedForGood, match=r"The row: \['a', 3\]"):
        writer.prepare_commit()
    assert db.rows() == []


@pytest.mark.parametrize(
    "guarantee", [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE]
)
def test_a_value_that_the_driver_cannot_send_ends_the_job_and_names_the_row(url, guarantee):
    """The driver raises no error of the database's here, and the job would restart for ever."""
    db = Db(url)
    sink = db.sink(set_delivery_guarantee=guarantee)
    writer = sink.create_writer(context())
    put(writer, ("fine", 1), ("half \ud83e", 2))
    with pytest.raises(RefusedForGood) as caught:
        if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            sink.create_committer().commit(writer.prepare_checkpoint(1))
        writer.prepare_commit()
    text = str(caught.value)
    assert "{'name': 'half \\ud83e', 'n': 2}: UnicodeEncodeError: 'utf-8' codec can't" in text
    assert text.isprintable()
    assert db.rows() == []


def test_an_integer_that_is_too_long_for_sqlite_is_named(tmp_path):
    db = Db(f"sqlite:///{tmp_path}/test.db")
    writer = db.sink().create_writer(context())
    put(writer, ("fine", 1), ("long", 2**64))
    with pytest.raises(RefusedForGood, match=r"'long', 'n': 18446744073709551616}: OverflowError"):
        db.sink().create_committer().commit(writer.prepare_checkpoint(1))


def test_a_jdbc_sink_names_a_row_that_the_driver_cannot_send(url):
    Db(url)
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()
    sink = JdbcSink.sink("INSERT INTO counts (name, n) VALUES (?, ?)", PAIRS, options)
    writer = sink.create_writer(context())
    writer.write(RowBatch([("a", 1), ("\ud83e", 2)]), 0)
    with pytest.raises(RefusedForGood, match=r"UnicodeEncodeError.*The row: \['\\ud83e', 2\]"):
        writer.prepare_commit()


def test_the_drivers_commit_tells_the_error_in_a_line(url):
    """Without checkpoints the driver commits, at the end of the job."""
    db = Db(url, UNIQUE)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.use_executor(MiniCluster().executor())
    env.from_collection([("a", 1), ("a", 3)], PAIRS).sink_to(db.sink())
    with pytest.raises(JobExecutionError) as caught:
        env.execute("refused")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("RefusedForGood: SqlSink's committer: cannot commit")
    assert "'name': 'a'" in lines[0]
    assert not [line for line in lines if "Traceback" in line or "Background" in line]


def test_postgresql_names_constraint_and_key(postgres_url):
    error = error_at(
        postgres_url,
        "CREATE TABLE named (name TEXT, CONSTRAINT only_once UNIQUE (name))",
        "INSERT INTO named VALUES ('a')",
        "INSERT INTO named VALUES ('a')",
    )
    assert driver_text(error) == (
        'UniqueViolation: duplicate key value violates unique constraint "only_once". '
        "Key (name)=(a) already exists "
        "(constraint 'only_once', table 'named')"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO counts (name, n) VALUES ('a', NULL)",
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO counts (nothing) VALUES (1)",
        "INSERT INTO counts VALUES (",
    ],
)
def test_what_cannot_succeed_by_repeating_does_not_pass(url, statement):
    Db(url, UNIQUE)
    assert not may_pass(error_at(url, statement))


@pytest.mark.server
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_value_out_of_range_does_not_pass(kind, request):
    url = request.getfixturevalue("postgres_url" if kind == "postgresql" else "mariadb_url")
    make = "CREATE TEMPORARY TABLE small (n SMALLINT)"
    assert not may_pass(error_at(url, make, "INSERT INTO small VALUES (70000)"))


def test_rights_that_are_missing_do_not_pass(postgres_url, mariadb_url):
    make = ("CREATE TABLE secrets (n INTEGER)", "CREATE ROLE nobody", "SET ROLE nobody")
    assert not may_pass(error_at(postgres_url, *make, "INSERT INTO secrets VALUES (1)"))
    assert not may_pass(error_at(mariadb_url, "INSERT INTO mysql.proc VALUES (1)"))


def connecting(url):
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with pytest.raises(sa.exc.DBAPIError) as caught, suppress(AssertionError):
        engine.connect()
    return caught.value


def test_a_wrong_password_and_a_missing_database_do_not_pass(mariadb_url, postgres_url):
    wrong = connecting(mariadb_url.replace(":secret@", ":wrong@"))
    assert not may_pass(wrong)
    assert "Access denied for user 'penstock'@'localhost'" in driver_text(wrong)
    assert not may_pass(connecting(mariadb_url.replace("/shop?", "/none?")))
    assert not may_pass(connecting(postgres_url.replace("/postgres?", "/none?")))
    assert not may_pass(connecting(postgres_url.replace("penstock@", "stranger@")))


def test_a_server_that_is_not_there_may_come_back():
    for driver in ("postgresql+psycopg", "mariadb+pymysql"):
        assert may_pass(connecting(f"{driver}://u:p@127.0.0.1:1/x"))


def test_locks_of_others_pass(url, tmp_path):
    """A deadlock and a lock that is held too long."""
    db = Db(url)
    db.run("INSERT INTO counts VALUES ('a', 1)")
    kind = url.partition(":")[0].partition("+")[0]
    waits = {
        "sqlite": "PRAGMA busy_timeout = 0",
        "postgresql": "SET lock_timeout = '1ms'",
        "mariadb": "SET innodb_lock_wait_timeout = 1",
    }
    with db.engine.begin() as holder:
        holder.execute(sa.text("UPDATE counts SET n = 2"))
        assert may_pass(error_at(url, waits[kind], "UPDATE counts SET n = 3"))


def test_a_view_that_takes_no_rows_does_not_pass_and_an_object_in_use_does(postgres_url):
    make = (
        "CREATE TEMPORARY TABLE t (n INTEGER)",
        "CREATE TEMPORARY VIEW v AS SELECT n + 1 m FROM t",
    )
    assert not may_pass(error_at(postgres_url, *make, "INSERT INTO v VALUES (1)"))
    engine = sa.create_engine(postgres_url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError) as caught:
        connection.execute(sa.text("DROP DATABASE postgres"))
    assert may_pass(caught.value)


def test_a_failed_transaction_logs_no_frames(url, caplog):
    db = Db(url, UNIQUE)
    sink = db.sink()
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("a", 2))
    prepared = writer.prepare_checkpoint(1)
    committer = sink.create_committer()
    with caplog.at_level(logging.WARNING), pytest.raises(RefusedForGood):
        committer.commit(prepared)
    assert caplog.records == []


def test_a_job_ends_instead_of_restarting_for_ever(url):
    """Its restart strategy would restart it without limit."""
    db = Db(url, UNIQUE)
    watcher = Watcher()
    env = restarting_environment(watcher, parallelism=1)
    env.from_collection([("a", 1), ("b", 2), ("a", 3)], PAIRS).sink_to(db.sink())
    with pytest.raises(JobExecutionError, match="'name': 'a'"):
        env.execute("refused")
    assert db.rows() == []
    assert watcher.restored == []


def test_a_wrong_password_is_told_at_submit(mariadb_url):
    env = StreamExecutionEnvironment.get_execution_environment()
    wrong = mariadb_url.replace(":secret@", ":wrong@")
    stream = env.from_collection([("a", 1)], Types.ROW_NAMED(["a", "b"], [Types.STRING()] * 2))
    stream.sink_to(SqlSink.builder().set_url(wrong).set_table("counts").build())
    with pytest.raises(ValueError, match="Access denied for user 'penstock'"):
        env.execute("wrong")
