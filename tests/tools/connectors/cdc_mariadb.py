"""A MariaDB server with a binlog, for tests of the source, and fixtures of it."""

import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import RowsEvent

from penstock.connectors.cdc import MySqlSource
from tests.tools.mariadb import running_mariadb

BINLOG = (
    "--log-bin",
    "--server-id=1",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--character-set-server=utf8mb4",
    "--innodb-flush-log-at-trx-commit=2",  # a server that is killed keeps what it has committed
)


class Database:
    """The database `shop` of a server. `builder(*tables)`: of a source of it."""

    def __init__(self, server):
        self.server = server

    def connect(self, user="root", **more):
        return pymysql.connect(
            unix_socket=self.server.socket, user=user, database="shop", autocommit=True,
            charset="utf8mb4", **more,
        )  # fmt: skip

    def execute(self, *statements):
        connection = self.connect()
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query):
        connection = self.connect()
        with connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    def builder(self, *tables):
        return (
            MySqlSource
            .builder()
            .hostname("localhost")
            .username("cdc")
            .password("secret")
            .database_list("shop")
            .table_list(*(tables or ("orders",)))
            .connection_parameters({"unix_socket": self.server.socket})
        )

    def prepare(self):
        self.execute(
            "CREATE USER cdc@localhost IDENTIFIED BY 'secret'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO cdc@localhost",
            "GRANT SELECT, LOCK TABLES ON shop.* TO cdc@localhost",
        )
        return self


@pytest.fixture(scope="session")
def binlog_mariadb():
    with running_mariadb(*BINLOG) as server:
        yield Database(server).prepare()


@pytest.fixture
def own_mariadb():
    """A server of the test's own, which it may kill or set otherwise."""
    with running_mariadb(*BINLOG) as server:
        yield Database(server).prepare()


@pytest.fixture
def database(binlog_mariadb):
    """Empty."""
    for (name,) in binlog_mariadb.rows("SHOW TABLES"):
        binlog_mariadb.execute(f"DROP TABLE {name}")
    return binlog_mariadb


@pytest.fixture
def orders(database):
    """With a table `orders` of two columns and three rows."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name varchar(100))",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, NULL)",
    )
    return database


@pytest.fixture(params=["of all events", "of the first and last"])
def positions(request, monkeypatch):
    """Of which events of a transaction the client is told the position: MariaDB 10.11 tells all, 11.8 those of the first and the last."""
    if request.param == "of all events":
        return
    fetch = BinLogStreamReader.fetchone

    def fetch_without_position(client):
        event = fetch(client)
        if isinstance(event, RowsEvent):
            event.packet.log_pos = 0
        return event

    monkeypatch.setattr(BinLogStreamReader, "fetchone", fetch_without_position)
