"""MySqlSource on a real MariaDB server: snapshot, binlog, restarts."""

import contextlib
import datetime as dt
import gc
import json
from decimal import Decimal

import pymysql
import pytest

from penstock.common import Row, Types
from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc import ChangelogMode, JsonDebeziumDeserializationSchema, StartupOptions
from penstock.connectors.cdc.mysql import source as mysql_source
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.testing import check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.changelogs import Replayed, Restarting, Writers, streaming, told
from tests.tools.waiting import wait_until


def test_rows_of_the_table_come_first_and_then_each_change_with_its_kind(orders):
    source = orders.builder().build()
    assert source.produced_type == Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
    source.validate()
    with streaming(source, 3) as run:
        orders.execute(
            "INSERT INTO orders VALUES (4, 'd')",
            "UPDATE orders SET name = 'B' WHERE id = 2",
            "DELETE FROM orders WHERE id = 1",
            "UPDATE orders SET id = 30 WHERE id = 3",
        )
        run.read(records=9)
        run.look_on()
    assert told(run.records) == [
        ("+I", 1, "a"),
        ("+I", 2, "b"),
        ("+I", 3, None),
        ("+I", 4, "d"),
        ("-U", 2, "b"),
        ("+U", 2, "B"),
        ("-D", 1, "a"),
        ("-D", 3, None),
        ("+I", 30, None),
    ]


NOON = dt.datetime.fromisoformat("2024-02-29T12:00:00.5")
NOON_UTC = NOON.replace(tzinfo=dt.UTC)
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
COLUMNS = [
    ("id", "bigint PRIMARY KEY", None, Types.LONG(), None),
    ("tiny", "tinyint", "-128", Types.BYTE(), -128),
    ("tiny_unsigned", "tinyint unsigned", "255", Types.SHORT(), 255),
    ("flag", "tinyint(1)", "1", Types.BOOLEAN(), True),
    ("small", "smallint", "-32768", Types.SHORT(), -32768),
    ("small_unsigned", "smallint unsigned", "65535", Types.INT(), 65535),
    ("medium", "mediumint", "-8388608", Types.INT(), -8388608),
    ("whole", "int", "2147483647", Types.INT(), 2147483647),
    ("whole_unsigned", "int unsigned", "4294967295", Types.LONG(), 4294967295),
    ("big_unsigned", "bigint unsigned", f"{2**64 - 1}", Types.DECIMAL(20, 0), Decimal(2**64 - 1)),
    ("year_of", "year", "2024", Types.INT(), 2024),
    ("price", "decimal(12,2)", "-12345678.90", Types.DECIMAL(12, 2), Decimal("-12345678.90")),
    ("single", "float", "3.14159274", Types.FLOAT(), 3.1415927410125732),
    ("twice", "double", "0.1", Types.DOUBLE(), 0.1),
    ("day", "date", "'2024-02-29'", Types.SQL_DATE(), dt.date(2024, 2, 29)),
    ("stamp", "datetime(6)", "'2024-02-29 12:00:00.5'", Types.SQL_TIMESTAMP(), NOON),
    ("moment", "timestamp(3) NULL", "'2024-02-29 12:00:00.5'", Types.TIMESTAMP_LTZ(), NOON_UTC),
    ("at", "time(3)", "'23:59:59.5'", Types.SQL_TIME(), dt.time(23, 59, 59, 500000)),
    ("name", "varchar(20)", "'wörd'", Types.STRING(), "wörd"),
    ("latin", "varchar(20) CHARACTER SET latin1", "'wörd'", Types.STRING(), "wörd"),
    ("wide", "varchar(20) CHARACTER SET utf16", "'wörd😀'", Types.STRING(), "wörd😀"),
    ("later", "varchar(20) COLLATE utf16_uca1400_ai_ci", "'wörd😀'", Types.STRING(), "wörd😀"),
    ("ucs", "varchar(20) CHARACTER SET ucs2", "'wörd'", Types.STRING(), "wörd"),
    ("wider", "text CHARACTER SET utf32", "'wörd😀'", Types.STRING(), "wörd😀"),
    ("cyrillic", "text CHARACTER SET koi8u", "'жук'", Types.STRING(), "жук"),
    ("latin_mood", "enum('ä', 'ö') CHARACTER SET latin1", "'ö'", Types.STRING(), "ö"),
    ("latin_tags", "set('ä', 'ö', 'z') CHARACTER SET latin1", "'z,ö'", Types.STRING(), "ö,z"),
    ("fixed", "char(4)", "'ab'", Types.STRING(), "ab"),
    ("body", "longtext", "'text'", Types.STRING(), "text"),
    ("document", "json", "'{\"a\": 1}'", Types.STRING(), '{"a": 1}'),
    ("mood", "enum('sad', 'happy')", "'happy'", Types.STRING(), "happy"),
    ("tags", "set('x', 'it''s', 'z')", "'z,x'", Types.STRING(), "x,z"),
    ("no_tags", "set('x', 'y')", "''", Types.STRING(), ""),
    ("bit_one", "bit(1)", "b'1'", Types.BOOLEAN(), True),
    ("bits", "bit(10)", "b'1000000001'", BYTES, b"\x02\x01"),
    ("raw", "blob", "x'00ff'", BYTES, b"\x00\xff"),
    ("raw_fixed", "binary(4)", "x'0100'", BYTES, b"\x01\x00\x00\x00"),
    ("raw_varying", "varbinary(10)", "x'0100'", BYTES, b"\x01\x00"),
]  # fmt: skip


def test_values_of_all_types_are_the_same_in_snapshot_and_binlog(database):
    names = ", ".join(f"`{name}`" for name, *_ in COLUMNS)
    columns = ", ".join(f"`{name}` {declared}" for name, declared, *_ in COLUMNS)
    values = ", ".join(value for _, _, value, _, _ in COLUMNS[1:])
    insert = f"INSERT INTO orders ({names}) VALUES (%s, {values})"
    database.execute(
        f"CREATE TABLE orders ({columns})",
        "SET time_zone = '+00:00'",
        insert % 1,
        "INSERT INTO orders (id) VALUES (2)",
    )
    source = database.builder().build()
    assert source.produced_type == Types.ROW_NAMED(
        [name for name, *_ in COLUMNS], [kind for *_, kind, _ in COLUMNS]
    )
    with streaming(source, 2) as run:
        database.execute(
            "SET time_zone = '+00:00'", insert % 3, "INSERT INTO orders (id) VALUES (4)"
        )
        run.read(records=4)
    full = [value for *_, value in COLUMNS][1:]
    empty = [None] * len(full)
    assert [list(row) for row in run.records] == [[1, *full], [2, *empty], [3, *full], [4, *empty]]


NO_TIME = "column 'at' of shop.orders has 1 day, 6:00:00"


@pytest.mark.parametrize("is_snapshot", [True, False])
def test_a_time_that_is_no_time_of_a_day_goes_to_the_error_policy(database, is_snapshot):
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, at time)")
    if is_snapshot:
        database.execute("INSERT INTO orders VALUES (1, '30:00:00')")
        run = SourceRun(database.builder().build(), 1)
        with pytest.raises(ValueError, match=NO_TIME):
            run.read(records=1)
        run.close()
        return
    with streaming(database.builder().build(), 0) as run:
        database.execute("INSERT INTO orders VALUES (1, '30:00:00')")
        with pytest.raises(ValueError, match=NO_TIME):
            run.read(records=1)


def known(source):
    """The source when it has been asked for its type, as each job does."""
    assert source.produced_type is not None
    return source


@pytest.mark.usefixtures("positions")
def test_every_restart_of_the_binlog_gives_each_change_once(database):
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, name varchar(20))")
    expected = [Row(id=number, name=f"n{number}") for number in range(40)]

    def make():
        database.execute("TRUNCATE orders")
        file, position = database.rows("SHOW MASTER STATUS")[0][:2]
        database.execute(
            *(f"INSERT INTO orders VALUES ({one.id}, '{one.name}')" for one in expected[:10]),
            "INSERT INTO orders SELECT seq, CONCAT('n', seq) FROM seq_10_to_39",
        )
        begin = StartupOptions.specific_offset(file, position)
        return known(database.builder().startup_options(begin).build())

    report = check_source(make, expected, parallelisms=(2,), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


def test_every_restart_and_rescale_of_the_snapshot_gives_each_row_once(orders, monkeypatch):
    monkeypatch.setattr(mysql_source, "_ROWS", 10)
    orders.execute("INSERT INTO orders SELECT seq, 'n' FROM seq_4_to_60")
    expected = [Row(id=one, name=name) for one, name in orders.rows("SELECT * FROM orders")]

    def make():
        return known(orders.builder().split_size(25).build())

    report = check_source(make, expected, parallelisms=(2,), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bigint unsigned", "seq * 100000000000"),
        ("varchar(20)", "CONCAT('k', seq)"),
        ("varbinary(20)", "CONCAT('k', seq)"),
        ("decimal(8,1)", "seq * 3.5 - 40"),
        ("datetime(3)", "TIMESTAMP'2024-01-31 00:00:00' + INTERVAL seq * 500000 MICROSECOND"),
        ("date", "DATE'2024-01-31' + INTERVAL seq DAY"),
    ],
)
def test_rows_with_keys_of_any_type_come_once_through_restarts(database, monkeypatch, key, value):
    monkeypatch.setattr(mysql_source, "_ROWS", 5)
    database.execute(
        f"CREATE TABLE orders (id {key}, part varchar(5), name varchar(20), "
        "PRIMARY KEY (id, part))",
        f"INSERT INTO orders SELECT {value}, p, CONCAT('n', seq) FROM seq_1_to_40 "
        "JOIN (SELECT 'x' AS p UNION SELECT 'Y') parts",
    )
    source = database.builder().split_size(25).build()
    restarting = Restarting(source, parallelisms=(1, 2), seed=5)
    restarting.read_until(lambda records: len(records) >= 80)
    expected = sorted(map(tuple, database.rows("SELECT id, part, name FROM orders")))
    assert sorted(map(tuple, restarting.records)) == expected
    assert restarting.restarts > 1


def writer(database, keys):
    """Transactions of the usual kinds on a table (id, n)."""

    @contextlib.contextmanager
    def connected():
        connection = database.connect()
        with connection, connection.cursor() as cursor:
            yield lambda chance: write(cursor, chance)

    def write(cursor, chance):
        with contextlib.suppress(pymysql.err.OperationalError):  # a deadlock
            cursor.execute("BEGIN")
            for _ in range(chance.randrange(1, 5)):
                one, two = chance.randrange(keys), chance.randrange(keys)
                statement, values = chance.choice([
                    (
                        "INSERT INTO orders VALUES (%s, %s) ON DUPLICATE KEY UPDATE n = n + 1",
                        (one, chance.randrange(100)),
                    ),
                    ("DELETE FROM orders WHERE id = %s", (one,)),
                    ("UPDATE orders SET n = n + 1 WHERE id = %s", (one,)),
                    ("UPDATE IGNORE orders SET id = %s WHERE id = %s", (two, one)),
                ])
                cursor.execute(statement, tuple(map(str, values)))
            cursor.execute(chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))

    return connected


@pytest.mark.parametrize(
    ("key", "locks"),
    [("int", True), pytest.param("varchar(10)", False, marks=pytest.mark.long)],
)
@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
def test_snapshot_and_binlog_under_writers_and_restarts_give_the_table(
    database, monkeypatch, key, locks
):
    monkeypatch.setattr(mysql_source, "_ROWS", 40)
    database.execute(
        f"CREATE TABLE orders (id {key} PRIMARY KEY, n int)",
        "INSERT INTO orders SELECT seq, 0 FROM seq_0_to_1999",
    )
    source = database.builder().split_size(150).lock_tables(locks=locks).build()
    restarting = Restarting(source, parallelisms=(1, 2, 3), seed=7)
    with Writers(writer(database, 2000)):
        restarting.read_until(lambda records: len(records) > 4000)
    content = sorted(database.rows("SELECT id, n FROM orders"))
    restarting.read_until(lambda records: Replayed().apply(records).content == content)
    assert restarting.restarts > 3


@pytest.mark.usefixtures("positions")
def test_a_restart_inside_of_a_large_transaction_goes_on_behind_the_event_it_was_at(orders):
    source = orders.builder().build()
    with streaming(source, 3) as run:
        orders.execute(
            "INSERT INTO orders SELECT seq, 'n' FROM seq_10_to_5009",
            "INSERT INTO orders VALUES (6000, 'last')",
        )
        run.read(batches=2)
        kept = run.checkpoint(2)
        before = run.records
        run.complete(2)
        assert 3 < len(before) < 5003
        run.read(batches=1)
    with contextlib.closing(SourceRun(source, 1, kept)) as other:
        other.read(records=5004 - len(before))
        other.look_on()
    assert [row.id for row in before + other.records][3:] == [*range(10, 5010), 6000]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # PyMySQL leaves refused Unix sockets behind
def test_a_server_that_is_killed_is_waited_for_and_no_change_is_lost_or_doubled(own_mariadb):
    database = own_mariadb
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name varchar(100))",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    with streaming(database.builder().build(), 3) as run:
        database.execute("INSERT INTO orders SELECT seq, 'n' FROM seq_10_to_3009")
        run.read(batches=1)
        assert len(run.records) < 3003
        database.server.kill()
        run.read(batches=1)
        database.server.start()
        database.execute("DELETE FROM orders WHERE id = 1")
        run.read(records=3004)
        run.look_on()
    gc.collect()
    content = sorted(database.rows("SELECT id, name FROM orders"))
    assert Replayed().apply(run.records).content == content


def test_the_binlog_is_followed_through_its_files(orders):
    source = orders.builder().build()
    with streaming(source, 3) as run:
        orders.execute("INSERT INTO orders VALUES (4, 'd')", "FLUSH BINARY LOGS")
        run.read(records=4)
        orders.execute("INSERT INTO orders VALUES (5, 'e')", "FLUSH BINARY LOGS")
        run.read(records=5)
        run.look_on()
        kept = run.checkpoint(2)
    orders.execute("INSERT INTO orders VALUES (6, 'f')")
    with contextlib.closing(SourceRun(source, 1, kept)) as other:
        other.read(records=1)
        other.look_on()
    assert told(run.records[3:] + other.records) == [
        ("+I", 4, "d"),
        ("+I", 5, "e"),
        ("+I", 6, "f"),
    ]


def test_a_binlog_that_was_purged_ends_the_job_and_says_what_to_do(orders):
    source = orders.builder().build()
    with streaming(source, 3) as run:
        kept = run.checkpoint(2)
    orders.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    last = orders.rows("SHOW BINARY LOGS")[-1][0]

    def is_purged():
        """The server keeps a file as long as a thread sends it, also one whose client is gone."""
        orders.execute(f"PURGE BINARY LOGS TO '{last}'")
        return len(orders.rows("SHOW BINARY LOGS")) == 1

    wait_until(is_purged, "the server still sends the file")
    run = SourceRun(source, 1, kept)
    with pytest.raises(RefusedForGood, match="does not have the job's position any more"):
        run.read(records=1)
    run.close()


def test_where_it_begins_without_a_snapshot(orders):
    latest = orders.builder().startup_options(StartupOptions.latest()).build()
    with contextlib.closing(SourceRun(latest, 1)) as run:
        orders.execute("UPDATE orders SET name = 'A' WHERE id = 1")
        run.read(records=2)
        run.look_on()
    assert told(run.records) == [("-U", 1, "a"), ("+U", 1, "A")]
    orders.execute("DROP TABLE orders")
    orders.execute(
        "FLUSH BINARY LOGS",
        f"PURGE BINARY LOGS TO '{orders.rows('SHOW BINARY LOGS')[-1][0]}'",
        "CREATE TABLE orders (id int PRIMARY KEY, name varchar(100))",
    )
    orders.execute("FLUSH BINARY LOGS")
    orders.execute(
        f"PURGE BINARY LOGS TO '{orders.rows('SHOW BINARY LOGS')[-1][0]}'",
        "INSERT INTO orders VALUES (7, 'g')",
    )
    never = orders.builder().startup_options(StartupOptions.never()).build()
    with contextlib.closing(SourceRun(never, 1)) as run:
        run.read(records=1)
        run.look_on()
    assert told(run.records) == [("+I", 7, "g")]


def test_upsert_gives_only_the_row_after_an_update(orders):
    source = orders.builder().changelog_mode(ChangelogMode.UPSERT).build()
    with streaming(source, 3) as run:
        orders.execute("UPDATE orders SET name = 'A' WHERE id = 1", "DELETE FROM orders")
        run.read(records=7)
        run.look_on()
    assert told(run.records[3:]) == [
        ("+U", 1, "A"),
        ("-D", 1, "A"),
        ("-D", 2, "b"),
        ("-D", 3, None),
    ]


def test_a_truncated_table_ends_the_job_or_is_gone_over(orders):
    with streaming(orders.builder().build(), 3) as run:
        orders.execute("TRUNCATE TABLE orders")
        with pytest.raises(RefusedForGood, match=r"shop\.orders was truncated.*ignore_truncate"):
            run.read(records=4)
    orders.execute("INSERT INTO orders VALUES (1, 'a')")
    with streaming(orders.builder().ignore_truncate().build(), 1) as run:
        orders.execute("TRUNCATE `shop`.`orders`", "INSERT INTO orders VALUES (2, 'b')")
        run.read(records=2)
    assert told(run.records[1:]) == [("+I", 2, "b")]


def test_a_statement_in_the_binlog_ends_the_job_for_its_rows_are_not_there(orders):
    with streaming(orders.builder().build(), 3) as run:
        orders.execute("SET SESSION binlog_format = 'STATEMENT'", "UPDATE orders SET name = 'x'")
        with pytest.raises(RefusedForGood, match="has the statement .*UPDATE orders SET name"):
            run.read(records=4)


def test_variables_of_a_statement_that_the_client_does_not_know_are_passed_over(
    orders, monkeypatch
):
    """MariaDB 11.8 and MySQL 9.7 write such. Here the client does not know one of 10.11, which goes with the time."""
    monkeypatch.setattr("pymysqlreplication.event.Q_HRNOW", -1)
    with streaming(orders.builder().build(), 3) as run:
        orders.execute(
            "CREATE TABLE other (id int, at timestamp(3) DEFAULT now(3)) CHARACTER SET utf8mb4",
            "SET SESSION binlog_format = 'STATEMENT'",
            "INSERT INTO other VALUES (1, now(3))",
            "SET SESSION binlog_format = 'ROW'",
            "INSERT INTO orders VALUES (4, 'd')",
        )
        run.read(records=4)
    assert told(run.records)[3:] == [("+I", 4, "d")]


def test_a_column_that_is_added_is_left_out_and_comes_with_the_next_submit(orders):
    source = orders.builder()
    with streaming(source.build(), 3) as run:
        orders.execute("INSERT INTO orders VALUES (4, 'd')")
        run.read(records=4)
        kept = run.checkpoint(2)
        orders.execute(
            "INSERT INTO orders VALUES (5, 'e')",
            "ALTER TABLE orders ADD COLUMN price int FIRST",
            "INSERT INTO orders VALUES (7, 6, 'f')",
        )
        run.read(records=6)
        assert told(run.records[3:]) == [("+I", 4, "d"), ("+I", 5, "e"), ("+I", 6, "f")]
    again = source.build()
    assert again.produced_type.get_field_names() == ["price", "id", "name"]
    with contextlib.closing(SourceRun(again, 1, kept)) as run:
        run.read(records=2)
    assert told(run.records) == [("+I", None, 5, "e"), ("+I", 7, 6, "f")]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE orders DROP COLUMN name", "column 'name' of shop.orders was dropped"),
        ("ALTER TABLE orders CHANGE name title text", "'name' of shop.orders was dropped or ren"),
        ("ALTER TABLE orders MODIFY id bigint", "'id' of shop.orders has another type now"),
    ],
)  # fmt: skip
def test_a_column_that_is_dropped_renamed_or_changed_ends_the_job(orders, statement, expected):
    with streaming(orders.builder().build(), 3) as run:
        orders.execute(statement, "DELETE FROM orders WHERE id = 1")
        with pytest.raises(RefusedForGood, match=expected):
            run.read(records=4)


def test_records_may_be_the_json_of_debezium_also_of_tables_that_differ(orders):
    orders.execute("CREATE TABLE other (k varchar(5) PRIMARY KEY)")
    made = orders.builder("orders", "shop.other")
    source = made.deserializer(JsonDebeziumDeserializationSchema()).build()
    with streaming(source, 3) as run:
        orders.execute(
            "UPDATE orders SET name = 'A' WHERE id = 1", "INSERT INTO other VALUES ('x')"
        )
        run.read(records=5)
    found = [json.loads(text) for text in run.records]
    told_ones = [(one["source"]["table"], one["op"], one["before"], one["after"]) for one in found]
    assert told_ones[2:] == [
        ("orders", "r", None, {"id": 3, "name": None}),
        ("orders", "u", {"id": 1, "name": "a"}, {"id": 1, "name": "A"}),
        ("other", "c", None, {"k": "x"}),
    ]  # fmt: skip


def test_generated_columns_and_dates_with_zeros_are_the_same_in_snapshot_and_binlog(database):
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, day date, at datetime(3), "
        "moment timestamp NULL, "
        "n int AS (id * 2) VIRTUAL, m int AS (id * 3) STORED)"
    )
    zeros = "0000-00-00 00:00:00"
    insert = "INSERT INTO orders (id, day, at, moment) VALUES (%s, '0000-00-00', "
    insert += f"'{zeros}', '{zeros}')"
    database.execute("SET sql_mode = ''", insert % 1)
    with streaming(database.builder().build(), 1) as run:
        database.execute("SET sql_mode = ''", insert % 2)
        run.read(records=2)
    assert told(run.records) == [
        ("+I", 1, None, None, None, 2, 3),
        ("+I", 2, None, None, None, 4, 6),
    ]


def test_metadata_have_the_database_of_the_table(orders):
    names = ("database_name", "schema_name", "table_name", "op_ts")
    with streaming(orders.builder().metadata_columns(*names).build(), 3) as run:
        orders.execute("DELETE FROM orders WHERE id = 1")
        run.read(records=4)
    assert tuple(run.records[0]) == (1, "a", "shop", "shop", "orders", 0)
    assert tuple(run.records[3])[:5] == (1, "a", "shop", "shop", "orders")
