"""A PostgreSQL server that does not answer: each call ends at its deadline, and the job begins again."""

import logging
import os
import signal

import pytest

from penstock.common.time import Duration
from penstock.connectors.cdc import PostgresSource
from penstock.connectors.cdc.postgres import source as postgres_source
from penstock.engine.hosting.os.clock import NoAnswer
from penstock.engine.model.errors import ConfigurationError
from tests.tools.connectors.changelogs import Replayed, streaming
from tests.tools.connectors.silent_server import silent_server

SHORT = Duration.of_millis(300)


def test_a_server_that_accepts_and_never_answers_is_told_at_submit():
    with silent_server() as port:
        source = (
            PostgresSource
            .builder()
            .hostname("127.0.0.1")
            .port(port)
            .database("shop")
            .username("jobs")
            .table_list("public.orders")
            .timeout(SHORT)
            .build()
        )
        expected = rf"127\.0\.0\.1:{port}/shop, reading the catalog: no answer within 0\.3 s"
        with pytest.raises(ConfigurationError, match=expected):
            source.validate()


def test_a_table_that_cannot_be_read_ends_the_reading_at_the_deadline(orders):
    orders.execute("CREATE TABLE named (name text PRIMARY KEY)")
    source = orders.builder("public.named").timeout(Duration.of_seconds(1)).build()
    assert source.produced_type is not None
    expected = r"reading public\.named:0: no answer within 1 s.*timeout\(\.\.\.\)"
    with orders.connect() as connection, connection.transaction():

        def lock():
            connection.execute("LOCK TABLE named IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(NoAnswer, match=expected), streaming(source, 3, before=lock):
            pass


def test_a_beginning_that_is_not_answered_ends_at_the_deadline_with_its_connection(orders):
    source = orders.builder().timeout(Duration.of_seconds(1)).build()
    assert source.produced_type is not None
    with orders.connect() as connection, connection.transaction():
        connection.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        expected = r"looking where the stream begins: no answer within 1 s"
        with pytest.raises(NoAnswer, match=expected), streaming(source, 3):
            pass


class Waker(logging.Handler):
    """Has the stopped process go on as soon as the reader has given it up."""

    def __init__(self):
        super().__init__()
        self.stopped = None

    def emit(self, record):
        if "no answer within 1 s" in record.getMessage() and self.stopped is not None:
            os.kill(self.stopped, signal.SIGCONT)
            self.stopped = None


def test_a_stream_whose_server_is_stopped_is_given_up_and_no_change_is_lost(own_postgres):
    database, waker = own_postgres, Waker()
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name text)",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    source = database.builder().timeout(Duration.of_seconds(1)).build()
    log = logging.getLogger(postgres_source.__name__)
    log.addHandler(waker)
    try:
        with streaming(source, 3) as run:
            database.execute("INSERT INTO orders VALUES (4, 'd')")
            run.read(records=4)
            ((sender,),) = database.rows("SELECT pid FROM pg_stat_replication")
            waker.stopped = sender
            os.kill(sender, signal.SIGSTOP)
            database.execute("INSERT INTO orders VALUES (5, 'e')")
            run.read(records=5)
            run.look_on()
    finally:
        log.removeHandler(waker)
    assert waker.stopped is None
    assert sorted(Replayed().apply(run.records).content) == [
        (n, "abcde"[n - 1]) for n in range(1, 6)
    ]
