"""What MySqlSource refuses at submit, and how it says so."""

import pytest

from penstock.connectors.cdc import StartupOptions
from penstock.connectors.cdc.mysql.source import MySqlSource
from penstock.engine.model.errors import ConfigurationError


def refused(made, expected):
    with pytest.raises(ConfigurationError, match=expected):
        made.build().validate()


@pytest.mark.parametrize(
    ("statement", "table", "expected"),
    [
        ("SELECT 1", "order", r"shop\.order does not exist, or the user may not see it"),
        ("CREATE OR REPLACE VIEW seen AS SELECT * FROM orders", "seen", "shop.seen is a view"),
        ("CREATE TABLE keyless (id int)", "keyless", "no primary key.*ADD PRIMARY KEY"),
        ("CREATE TABLE mine (id int PRIMARY KEY) ENGINE=MyISAM", "mine", "by MyISAM, .*InnoDB"),
        ("CREATE TABLE f (id float PRIMARY KEY)", "f", "key column 'id' of shop.f is float"),
        (
            "CREATE TABLE w (id int PRIMARY KEY, x text CHARACTER SET swe7)",
            "w",
            "column 'x' of shop.w has the character set swe7",
        ),
        ("CREATE TABLE u (id int PRIMARY KEY, x uuid)", "u", "column 'x' of shop.u is uuid"),
    ],
)
def test_a_table_whose_changes_cannot_be_read(orders, statement, table, expected):
    orders.execute(statement)
    try:
        refused(orders.builder(table), expected)
    finally:
        orders.execute("DROP VIEW IF EXISTS seen")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("binlog_format", "'STATEMENT'", "binlog_format of .* is 'STATEMENT', expected 'ROW'"),
        ("binlog_row_image", "'MINIMAL'", "binlog_row_image of .* is 'MINIMAL', expected 'FULL'"),
        ("binlog_row_metadata", "'MINIMAL'", "binlog_row_metadata .*SET GLOBAL binlog_row_meta"),
        ("log_bin_compress", "ON", "log_bin_compress of .* is 'ON', expected 'OFF'"),
    ],
)
def test_a_binlog_that_lacks_something(orders, name, value, expected):
    before = orders.rows(f"SELECT @@GLOBAL.{name}")[0][0]
    orders.execute(f"SET GLOBAL {name} = {value}")
    try:
        refused(orders.builder(), expected)
    finally:
        orders.execute(f"SET GLOBAL {name} = {before!r}")


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        ("GRANT SELECT ON shop.* TO weak@localhost", "may not replicate. GRANT REPLICATION SLAVE"),
        ("GRANT REPLICATION SLAVE ON *.* TO weak@localhost", "GRANT REPLICATION CLIENT"),
        ("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO weak@localhost", "may not see it"),
    ],
)
def test_missing_rights(orders, grants, expected):
    orders.execute("CREATE USER weak@localhost", grants)
    try:
        refused(orders.builder().username("weak").password(""), expected)
    finally:
        orders.execute("DROP USER weak@localhost")


def test_a_wrong_password_or_no_server(orders, tmp_path):
    refused(orders.builder().password("wrong"), "Access denied for user")
    nowhere = {"unix_socket": str(tmp_path / "none")}
    with pytest.warns(ResourceWarning):  # PyMySQL leaves refused Unix sockets behind
        refused(orders.builder().connection_parameters(nowhere), "executors must reach")
        import gc

        gc.collect()


def test_a_server_without_a_binlog(mariadb_url):
    socket = mariadb_url.partition("unix_socket=")[2]
    made = builder().username("root").connection_parameters({"unix_socket": socket})
    refused(made, "log_bin of .* is 'OFF', expected 'ON': start the server with --log-bin")


def builder():
    return MySqlSource.builder().hostname("localhost").username("jobs").table_list("shop.orders")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda made: made.server_id(0), "server_id: expected 1 to 4294967295, got 0"),
        (lambda made: made.server_id(True), "server_id: expected 1 to"),
        (lambda made: StartupOptions.specific_offset("", 4), "expected a file and a position"),
        (lambda made: StartupOptions.specific_offset("binlog.1", 3), "a position of 4 or more"),
        (lambda made: StartupOptions.specific_offset("binlog", 4), "got 'binlog' and 4"),
        (lambda made: StartupOptions.specific_offset("binlog.x1", 4), "got 'binlog.x1' and 4"),
        (lambda made: made.table_list("orders").build(), "got 'orders', expected names such as"),
        (lambda made: made.table_list().build(), r'table_list\("shop.orders"\) is missing'),
    ],
)
def test_settings_that_cannot_be(call, expected):
    with pytest.raises(ConfigurationError, match=expected):
        call(builder())


def test_no_text_shows_the_password():
    source = builder().password("hidden-word").build()
    assert repr(source) == "MySqlSource(localhost:3306, shop.orders)"
    assert "hidden-word" not in repr(source.settings) + str(source.settings)
