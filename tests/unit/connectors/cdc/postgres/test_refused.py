"""What PostgresSource refuses at submit, and how it says so."""

import contextlib

import pytest

from penstock.common import Types
from penstock.connectors.cdc import ChangelogMode, PostgresSource, StartupOptions
from penstock.engine.model.errors import ConfigurationError
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.cdc_postgres import Database
from tests.tools.connectors.changelogs import streaming
from tests.tools.postgres import running_postgres
from tests.tools.waiting import wait_until

UPSERT = ChangelogMode.UPSERT


def refused(made, expected):
    with pytest.raises(ConfigurationError, match=expected):
        made.build().validate()


@pytest.mark.parametrize(
    ("statements", "table", "expected"),
    [
        ((), "public.order", r"public\.order does not exist in this database"),
        ((), "public.Orders", r"Orders does not exist in this database\. There is public\.orders"),
        (("CREATE VIEW seen AS SELECT * FROM orders",), "public.seen", "seen is no table"),
        (("CREATE TABLE keyless (id int)",), "keyless", "no primary key.*ADD PRIMARY KEY"),
        (("CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)",), "fast", "is unlogged"),
        (("ALTER TABLE orders REPLICA IDENTITY DEFAULT",), "orders", "not FULL.*UPSERT"),
        (("ALTER TABLE orders REPLICA IDENTITY NOTHING",), "orders", "not FULL"),
    ],
)
def test_a_table_whose_changes_cannot_be_read(orders, statements, table, expected):
    orders.execute(*statements)
    refused(orders.builder(table), expected)


def test_upsert_needs_the_key_of_changed_rows(orders):
    orders.execute("ALTER TABLE orders REPLICA IDENTITY NOTHING")
    refused(orders.builder().changelog_mode(UPSERT), "identity of public.orders is NOTHING or")


@pytest.mark.parametrize(
    ("publication", "expected"),
    [
        (
            "CREATE PUBLICATION p",
            "'p' does not have the table public.orders. ALTER .* ADD TABLE \"public\".\"orders\"",
        ),
        ("CREATE PUBLICATION p FOR TABLE orders (id)", r"leaves out the columns \['name'\]"),
        ("CREATE PUBLICATION p FOR TABLE orders WHERE (id > 1)", "filters the rows of public.o"),
        ("CREATE PUBLICATION p FOR TABLE orders WITH (publish = 'insert')", "leaves out some of"),
    ],
)  # fmt: skip
def test_a_publication_that_leaves_something_out(orders, publication, expected):
    orders.execute(publication)
    refused(orders.builder().publication_name("p"), expected)


def test_a_publication_without_truncate_needs_a_job_that_ignores_it(orders):
    orders.execute(
        "CREATE PUBLICATION p FOR TABLE orders WITH (publish = 'insert, update, delete')"
    )
    made = orders.builder().publication_name("p")
    refused(made, r"'p' leaves out truncate.*SET \(publish = .*or .*\.ignore_truncate\(\)")
    made.ignore_truncate().build().validate()


def test_a_publication_of_all_tables_will_do(orders):
    orders.execute("CREATE PUBLICATION p FOR ALL TABLES")
    orders.builder().publication_name("p").build().validate()


def test_a_slot_that_is_in_use_or_another_ones(orders, monkeypatch):
    monkeypatch.setattr("penstock.connectors.cdc.postgres.source._IN_USE_S", 0.2)
    made = orders.builder()
    with streaming(made.build(), 3) as run:
        run.look_on()
        wait_until(orders.is_read, "no reader takes the slot")
        refused(made, f"the slot '{orders.slot}' is in use, by the server's process")
    orders.execute("SELECT pg_create_logical_replication_slot('foreign_one', 'test_decoding')")
    refused(orders.builder().slot_name("foreign_one"), "with the plugin test_decoding")


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        ((), "may not replicate. Allow it: ALTER ROLE"),
        (("ALTER ROLE cdc REPLICATION",), "may not read public.orders. Grant SELECT"),
        (
            ("ALTER ROLE cdc REPLICATION", "GRANT SELECT ON orders TO cdc"),
            "may not create it. Have the tables' owner do it: CREATE PUBLICATION",
        ),
    ],
)
def test_missing_rights(orders, role, grants, expected):
    orders.execute(*grants)
    refused(orders.builder().username("cdc"), expected)


def test_a_user_with_these_rights_and_a_publication_of_the_owner_reads(orders, role):
    orders.execute(
        "ALTER ROLE cdc REPLICATION",
        "GRANT SELECT ON orders TO cdc",
        "CREATE PUBLICATION p FOR TABLE orders",
    )
    source = orders.builder().username("cdc").publication_name("p").build()
    source.validate()
    with streaming(source, 3) as run:
        orders.execute("DELETE FROM orders WHERE id = 1")
        run.read(records=4)
    assert len(run.records) == 4


@pytest.fixture
def role(orders):
    orders.execute("CREATE ROLE cdc LOGIN", "GRANT USAGE ON SCHEMA public TO cdc")
    yield
    orders.clear()
    orders.execute("DROP OWNED BY cdc", "DROP ROLE cdc")


@pytest.mark.server
def test_a_server_without_logical_wal_or_without_room_for_a_slot():
    with running_postgres("wal_level=replica", "max_replication_slots=0") as server:
        database = Database(server)
        database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        made = database.builder().changelog_mode(UPSERT)
        refused(made, "wal_level of .* is 'replica', expected 'logical'. Set it: ALTER SYSTEM")
        with contextlib.closing(database.connect()) as connection:
            from penstock.connectors.cdc.postgres import catalog

            with pytest.raises(ConfigurationError, match="all 0 replication slots"):
                catalog.check_slot(connection, made.build().settings, "here")


def test_an_unknown_server_user_or_database(orders, tmp_path):
    refused(orders.builder().hostname(str(tmp_path)), "The driver and all executors must reach")
    refused(orders.builder().username("nobody_knows"), 'role "nobody_knows" does not exist')
    refused(orders.builder().database("none"), 'database "none" does not exist')


def test_keys_that_are_no_integers_need_utf8(orders):
    orders.execute(
        "CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'",
    )
    try:
        import psycopg

        with psycopg.connect(
            host=orders.server.folder, user="penstock", dbname="old", autocommit=True
        ) as connection:
            connection.execute("CREATE TABLE words (word text PRIMARY KEY)")
        refused(orders.builder("words").database("old"), "encoding is LATIN1.*need UTF8")
    finally:
        orders.execute("DROP DATABASE old")


def test_tables_with_different_columns_and_fields_with_a_columns_name(orders):
    orders.execute("CREATE TABLE other (id bigint PRIMARY KEY, table_name text)")
    refused(orders.builder("orders", "other"), "public.orders and public.other have different")
    refused(
        orders.builder("other").metadata_columns("table_name"), "has a column 'table_name', and"
    )


def builder():
    return (
        PostgresSource
        .builder()
        .hostname("db")
        .database("shop")
        .username("jobs")
        .table_list("public.orders")
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda made: made.port(0), "port: expected 1 to 65535, got 0"),
        (lambda made: made.hostname(5), "hostname: expected a str, got 5"),
        (lambda made: made.password(5), "password: expected a text"),
        (lambda made: made.slot_name("My-Slot"), "slot_name: expected 1 to 63 of a-z"),
        (lambda made: made.decoding_plugin_name("wal2json"), "only 'pgoutput' is supported"),
        (lambda made: made.split_size(0), "split_size: expected 1 or more rows"),
        (lambda made: made.metadata_columns("when"), "'when' is none of database_name"),
        (lambda made: made.changelog_mode("all"), "expected a ChangelogMode"),
        (lambda made: made.deserializer("json"), "expected a JsonDebezium"),
        (lambda made: made.startup_options("initial"), "expected a StartupOptions"),
        (
            lambda made: made.startup_options(StartupOptions.specific_offset("binlog.1", 4)),
            "'specific-offset' is not for this database",
        ),
        (lambda made: made.table_list("a.b.c").build(), r"got 'a\.b\.c', expected names such as"),
        (lambda made: made.table_list('"Q"').build(), "without quotes"),
        (lambda made: made.table_list("x", "public.x").build(), "a table is there twice"),
        (lambda made: made.schema_list("a", "b").table_list("x").build(), "expected names such as"),
        (lambda made: made.table_list().build(), r'table_list\("public.orders"\) is missing'),
    ],
)
def test_settings_that_cannot_be(call, expected):
    with pytest.raises(ConfigurationError, match=expected):
        call(builder())


def test_no_text_shows_the_password():
    source = builder().password("hidden-word").port(5433).build()
    assert repr(source) == "PostgresSource(db:5433/shop, public.orders)"
    assert "hidden-word" not in repr(source.settings) + str(source.settings)


def test_a_type_is_asked_for_once(orders):
    source = orders.builder().build()
    assert source.produced_type == Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
    orders.execute("ALTER TABLE orders ADD COLUMN more int")
    assert source.produced_type.get_field_names() == ["id", "name"]
    run = SourceRun(source, 1)
    run.read(records=3)
    run.close()
    assert [len(row) for row in run.records] == [2, 2, 2]
