"""A server of MySQL or MariaDB that does not answer: each call ends at its deadline, and the job begins again."""

import contextlib

import pytest

from penstock.common.time import Duration
from penstock.connectors.cdc.mysql.source import MySqlSource
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from tests.tools.connectors.changelogs import streaming
from tests.tools.connectors.silent_server import silent_server


def test_a_server_that_accepts_and_never_answers_is_told_at_submit():
    with silent_server() as port:
        source = (
            MySqlSource
            .builder()
            .hostname("127.0.0.1")
            .port(port)
            .username("jobs")
            .table_list("shop.orders")
            .timeout(Duration.of_millis(300))
            .build()
        )
        with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{port}.*timed out.*0\.3 s"):
            source.validate()


def test_a_table_that_cannot_be_read_ends_the_reading_at_the_deadline(orders):
    orders.execute("CREATE TABLE named (name varchar(100) PRIMARY KEY)")
    source = orders.builder("named").timeout(Duration.of_seconds(1)).build()
    assert source.produced_type is not None
    with contextlib.closing(orders.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES shop.named WRITE")
        expected = r"reading shop\.named:0.*timed out.* 1 s where a table is read"
        with pytest.raises(ExternalError, match=expected) as caught, streaming(source, 3):
            pass
    assert not isinstance(caught.value, RefusedForGood)
