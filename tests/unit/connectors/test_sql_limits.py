"""Databases that do not answer: each call ends at its deadline, the job restarts, and nothing is lost or doubled."""

import contextlib
import datetime as dt
import threading

import pytest
import sqlalchemy as sa

from penstock.common import Row, Types
from penstock.common.time import Duration
from penstock.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from penstock.connectors.sql_lookup import SqlLookup
from penstock.connectors.sql_sink import SqlSink
from penstock.connectors.sql_source import SqlSource
from penstock.engine.hosting.os.clock import NoAnswer
from penstock.engine.model.errors import ConfigurationError, ExternalError
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext
from tests.tools.connectors.silent_server import silent_server
from tests.tools.connectors.sql_tables import PAIRS, Db, context, put
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment

SHORT = Duration.of_millis(300)
DRIVERS = ["postgresql+psycopg", "mysql+pymysql"]


@pytest.fixture(params=DRIVERS)
def silent_url(request):
    with silent_server() as port:
        yield f"{request.param}://user:secret@127.0.0.1:{port}/shop"


# ------------------------------------------------------------------ a server that accepts and never answers


def sink_of(url):
    builder = SqlSink.builder().set_url(url).set_table("counts").set_columns(["name", "n"])
    return builder.set_timeout(SHORT).set_max_retries(1).build()


def source_of(url):
    builder = SqlSource.builder().set_url(url).set_table("counts").set_row_type(PAIRS)
    return builder.set_partition_column("n").set_timeout(SHORT).build()


def lookup_of(url):
    builder = SqlLookup.builder().set_url(url).set_table("counts").set_key_columns(["name"])
    return builder.set_timeout(SHORT).build()


def jdbc_of(url):
    options = (
        JdbcConnectionOptions
        .JdbcConnectionOptionsBuilder()
        .with_url(url)
        .with_connection_check_timeout_seconds(1)
        .build()
    )
    return JdbcSink.sink("INSERT INTO counts VALUES (?, ?)", PAIRS, options)


def stage(url):
    writer = sink_of(url).create_writer(context())
    put(writer, ("a", 1))
    writer.prepare_checkpoint(1)


def commit(url):
    committer = sink_of(url).create_committer()
    given = [("t", 1, ("name", "n"))]
    while committer.commit(given) == given:
        pass


def write_with_a_statement(url):
    writer = jdbc_of(url).create_writer(context())
    put(writer, ("a", 1))
    writer.prepare_commit()


CALLS = {
    "SqlSink on the driver: cannot look at the tables": lambda url: sink_of(url).validate(),
    "SqlSink, subtask 0 of 1: cannot drop staged rows": stage,
    "SqlSink's committer: cannot commit": commit,
    "SqlSink's committer: cannot drop": lambda url: sink_of(url).create_committer().abort("job"),
    "SqlSource's enumerator: cannot read the table 'counts'": lambda url: source_of(
        url
    ).create_enumerator(FakeEnumeratorContext()),
    "SqlLookup on the driver: cannot read the table 'counts'": lambda url: lookup_of(url).row_type,
    "JdbcSink, subtask 0 of 1: cannot write": write_with_a_statement,
}


@pytest.mark.parametrize("named", CALLS)
def test_a_call_is_left_at_its_deadline_and_the_error_names_call_server_and_seconds(
    silent_url, named
):
    with pytest.raises(ExternalError) as caught:
        CALLS[named](silent_url)
    text = str(caught.value)
    assert text.startswith(named)
    assert silent_url.replace("secret", "***") in text
    assert "no answer within " in text
    assert "timeout" in text
    assert isinstance(caught.value, NoAnswer)


def test_at_submit_a_source_without_an_answer_is_an_error_of_the_configuration(silent_url):
    with pytest.raises(ConfigurationError, match=r"no answer within 0\.3 s.* must reach"):
        source_of(silent_url).validate()


@pytest.mark.parametrize("make", [SqlSink.builder, SqlSource.builder, SqlLookup.builder])
def test_a_timeout_has_a_unit_and_is_above_nothing(make):
    make().set_timeout(dt.timedelta(seconds=3))
    with pytest.raises(TypeError, match="Duration"):
        make().set_timeout(3)
    with pytest.raises(ConfigurationError, match="set_timeout"):
        make().set_timeout(Duration.of_millis(0))


# ------------------------------------------------------------------ a database that stops in the middle


@contextlib.contextmanager
def held(url, lock=None):
    """While another connection has the table, and whoever asks for it waits."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    lock = lock or {
        "sqlite": "BEGIN IMMEDIATE",
        "postgresql": "LOCK TABLE counts IN ACCESS EXCLUSIVE MODE",
    }.get(engine.dialect.name, "LOCK TABLES counts WRITE")
    with engine.connect() as connection:
        connection.exec_driver_sql(lock)
        yield


def wait_for_calls():
    """Until calls that were left have ended, which they do once the database answers."""
    for thread in threading.enumerate():
        if thread.name == "penstock-client-call":
            thread.join()


def test_a_commit_that_was_left_changes_nothing_later_and_is_done_once(url):
    db = Db(url)
    sink = db.sink()
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("b", 2))
    prepared = writer.prepare_checkpoint(1)
    committer = db.sink(set_timeout=SHORT, set_max_retries=1).create_committer()
    with held(url):
        assert committer.commit(prepared) == prepared
        with pytest.raises(NoAnswer, match="cannot commit"):
            committer.commit(prepared)
    wait_for_calls()
    assert db.rows() == []
    assert sink.create_committer().commit(prepared) is None
    assert db.rows() == [("a", 1), ("b", 2)]


def test_rows_that_are_written_at_once_are_not_written_later_by_a_call_that_was_left(url):
    db = Db(url)
    sink = jdbc_of(url)
    writer = sink.create_writer(context())
    with held(url), pytest.raises(NoAnswer, match="cannot write"):
        put(writer, ("a", 1))
        writer.prepare_commit()
    wait_for_calls()
    assert db.rows() == []


def test_a_statement_that_gets_answers_may_take_longer_than_the_deadline(tmp_path, monkeypatch):
    """Each of many pieces has the whole time: how long all of them take is nobody's limit."""
    answers = []
    monkeypatch.setattr("penstock.connectors.sql.engine.progress", lambda: answers.append(1))
    db = Db(f"sqlite:///{tmp_path}/test.db")
    sink = db.sink(set_batch_size=1)
    writer = sink.create_writer(context())
    put(writer, *((str(number), number) for number in range(50)))
    prepared = writer.prepare_checkpoint(1)
    answers.clear()
    sink.create_committer().commit(prepared)
    assert len(answers) >= 50
    assert len(db.rows()) == 50


HELD = {}
NUMBERS = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])


def hold_once(value):
    """The first record of the first attempt finds the table free, and takes it."""
    if "url" in HELD:
        HELD["lock"] = held(HELD.pop("url"))
        HELD["lock"].__enter__()
    return Row(name=str(value), n=value)


class Releaser(Watcher):
    def on_reset_subtasks(self, reset):
        if "lock" in HELD:
            HELD.pop("lock").__exit__(None, None, None)
        super().on_reset_subtasks(reset)


def test_a_job_restarts_and_writes_each_row_once(standard_url):
    db = Db(standard_url)
    HELD["url"] = standard_url
    watcher = Releaser()
    env = restarting_environment(watcher, parallelism=1)
    env.enable_checkpointing(100)
    numbers = env.from_collection(list(range(20)), Types.INT()).map(hold_once, NUMBERS)
    numbers.sink_to(db.sink(set_timeout=Duration.of_seconds(2), set_max_retries=0))
    env.execute("numbers")
    assert watcher.restored
    assert db.rows() == sorted((str(number), number) for number in range(20))
