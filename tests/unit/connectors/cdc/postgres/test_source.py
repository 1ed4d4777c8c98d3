"""PostgresSource on a real server: snapshot, changes, restarts."""

import contextlib
import datetime as dt
import json
import time
from decimal import Decimal

import pytest

from penstock.common import Types
from penstock.connectors.api.base import Boundedness, RefusedForGood
from penstock.connectors.cdc import ChangelogMode, JsonDebeziumDeserializationSchema, StartupOptions
from penstock.engine.model.row import RowKind
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.changelogs import streaming, told


def test_rows_of_the_table_come_first_and_then_each_change_with_its_kind(orders):
    source = orders.builder().build()
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
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


TYPES = """CREATE TABLE orders (
  id bigint PRIMARY KEY, small smallint, whole int, price numeric(10,2), free numeric, single real,
  twice double precision, paid bool, raw bytea, name varchar(20), fixed char(4), day date, at time,
  stamp timestamp, moment timestamptz, document json, binary_document jsonb, ident uuid,
  numbers int[], mood mood, span interval, long quantity,
  doubled bigint GENERATED ALWAYS AS (id * 2) STORED
)"""
VALUES = """(%s, -32768, 2147483647, 12345678.90, 1e40, 1.5, 0.1, true, '\\x00ff', 'wörd', 'ab',
  '2024-02-29', '23:59:59.123456', '2024-02-29 12:00:00.5',
  '2024-02-29 12:00:00+02', '{"a": 1}', '{"a":1}',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,NULL,3}', 'happy', '1 day 02:00:00', 7)"""
EXPECTED = {
    "id": (Types.LONG(), None),
    "small": (Types.SHORT(), -32768),
    "whole": (Types.INT(), 2147483647),
    "price": (Types.DECIMAL(10, 2), Decimal("12345678.90")),
    "free": (Types.BIG_DEC(), Decimal(10) ** 40),
    "single": (Types.FLOAT(), 1.5),
    "twice": (Types.DOUBLE(), 0.1),
    "paid": (Types.BOOLEAN(), True),
    "raw": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff"),
    "name": (Types.STRING(), "wörd"),
    "fixed": (Types.STRING(), "ab  "),
    "day": (Types.SQL_DATE(), dt.date(2024, 2, 29)),
    "at": (Types.SQL_TIME(), dt.time(23, 59, 59, 123456)),
    "stamp": (Types.SQL_TIMESTAMP(), dt.datetime.fromisoformat("2024-02-29T12:00:00.5")),
    "moment": (Types.TIMESTAMP_LTZ(), dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC)),
    "document": (Types.STRING(), '{"a": 1}'),
    "binary_document": (Types.STRING(), '{"a": 1}'),
    "ident": (Types.STRING(), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "numbers": (Types.STRING(), "{1,NULL,3}"),
    "mood": (Types.STRING(), "happy"),
    "span": (Types.STRING(), "1 day 02:00:00"),
    "long": (Types.LONG(), 7),
}


def test_values_of_all_types_are_the_same_in_snapshot_and_stream(database):
    columns = ", ".join(EXPECTED)
    insert = f"INSERT INTO orders ({columns}) VALUES {VALUES}"
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN quantity AS bigint CHECK (VALUE > 0)",
        TYPES,
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        insert % 1,
        "INSERT INTO orders (id) VALUES (2)",
    )
    source = database.builder().build()
    assert source.produced_type == Types.ROW_NAMED(
        list(EXPECTED), [kind for kind, _ in EXPECTED.values()]
    )
    with streaming(source, 2) as run:
        database.execute(insert % 3, "INSERT INTO orders (id) VALUES (4)")
        run.read(records=4)
    full = [value for _, value in EXPECTED.values()][1:]
    empty = [None] * len(full)
    assert [list(row) for row in run.records] == [[1, *full], [2, *empty], [3, *full], [4, *empty]]


def test_a_value_that_the_type_cannot_hold_goes_to_the_error_policy_and_names_its_column(database):
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, day date)",
        "INSERT INTO orders VALUES (1, 'infinity'), (2, '2024-01-01')",
    )
    source = database.builder().changelog_mode(ChangelogMode.UPSERT).build()
    run = SourceRun(source, 1)
    with pytest.raises(ValueError, match="column 'day' of public.orders has 'infinity'"):
        run.read(records=2)
    run.close()
    reader = source.create_reader(_Context())
    side = reader._open_database()
    enumerator = source.create_enumerator(_Context())
    enumerator.start()
    split = enumerator._next()
    batch, _ = next(side.rows(split))
    assert isinstance(batch.values[0], Malformed)
    assert tuple(batch.values[1]) == (2, dt.date(2024, 1, 1))
    enumerator.close()


class _Context:
    def takes_checkpoints(self):
        return True

    def subtask(self):
        return 0

    def parallelism(self):
        return 1


def test_latest_gives_only_what_comes_after_the_start(orders):
    source = orders.builder().startup_options(StartupOptions.latest()).build()
    with contextlib.closing(SourceRun(source, 1)) as run:
        orders.execute("UPDATE orders SET name = 'A' WHERE id = 1")
        run.read(records=2)
        run.look_on()
    assert told(run.records) == [("-U", 1, "a"), ("+U", 1, "A")]


def test_upsert_needs_no_full_identity_and_gives_deletions_by_key(database):
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name text)",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    source = database.builder().changelog_mode(ChangelogMode.UPSERT).build()
    source.validate()
    with streaming(source, 3) as run:
        database.execute(
            "UPDATE orders SET name = 'A' WHERE id = 1",
            "DELETE FROM orders WHERE id = 2",
            "UPDATE orders SET id = 4 WHERE id = 3",
        )
        run.read(records=7)
        run.look_on()
    assert told(run.records[3:]) == [
        ("+U", 1, "A"),
        ("-D", 2, None),
        ("-D", 3, None),
        ("+I", 4, "c"),
    ]


def test_a_long_value_that_did_not_change_comes_from_the_row_before_or_ends_the_job(database):
    long = "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 2000) n"
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, n int, body text)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        f"INSERT INTO orders SELECT 1, 0, ({long})",
    )
    body = database.rows(long)[0][0]
    with streaming(database.builder().build(), 1) as run:
        database.execute("UPDATE orders SET n = 1")
        run.read(records=3)
    assert told(run.records[1:]) == [("-U", 1, 0, body), ("+U", 1, 1, body)]
    database.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    source = database.builder().changelog_mode(ChangelogMode.UPSERT).build()
    with streaming(source, 1) as run:
        database.execute("UPDATE orders SET n = 2")
        with pytest.raises(RefusedForGood, match="leaves the column 'body' as it is.*FULL"):
            run.read(records=2)


@pytest.mark.parametrize(
    ("identity", "statement"),
    [
        ("DEFAULT", "UPDATE orders SET n = 1"),
        ("DEFAULT", "UPDATE orders SET id = 7, n = 1"),
        ("FULL", "UPDATE orders SET n = 1"),
    ],
)
def test_a_long_value_may_be_missing_in_an_update_that_the_snapshot_has_seen(
    database, identity, statement
):
    long = "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 2000) n"
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, n int, body text)",
        f"ALTER TABLE orders REPLICA IDENTITY {identity}",
        f"INSERT INTO orders SELECT 1, 0, ({long})",
    )
    source = database.builder().changelog_mode(ChangelogMode.UPSERT).build()
    with streaming(source, 1, before=lambda: database.execute(statement)) as run:
        database.execute("INSERT INTO orders VALUES (2, 2, 'b')")
        run.read(records=2)
    (_, key, n, body), last = told(run.records)
    assert (key, n) == database.rows("SELECT id, n FROM orders WHERE id <> 2")[0]
    assert body == database.rows(long)[0][0]
    assert last == ("+I", 2, 2, "b")


def test_a_truncated_table_ends_the_job_or_is_gone_over(orders):
    with streaming(orders.builder().build(), 3) as run:
        orders.execute("TRUNCATE orders")
        with pytest.raises(RefusedForGood, match=r"public\.orders was truncated.*ignore_truncate"):
            run.read(records=4)
    orders.execute("INSERT INTO orders VALUES (1, 'a')")
    with streaming(orders.builder().ignore_truncate().build(), 1) as run:
        orders.execute("TRUNCATE orders", "INSERT INTO orders VALUES (2, 'b')")
        run.read(records=2)
    assert told(run.records[1:]) == [("+I", 2, "b")]


def test_a_column_that_is_added_is_left_out_and_comes_with_the_next_submit(orders):
    source = orders.builder()
    with streaming(source.build(), 3) as run:
        orders.execute("INSERT INTO orders VALUES (4, 'd')")
        run.read(records=4)
        kept = run.checkpoint(2)
        run.complete(2)
        orders.execute(
            "INSERT INTO orders VALUES (5, 'e')",
            "ALTER TABLE orders ADD COLUMN price int",
            "INSERT INTO orders VALUES (6, 'f', 7)",
        )
        run.read(records=6)
        assert told(run.records[3:]) == [("+I", 4, "d"), ("+I", 5, "e"), ("+I", 6, "f")]
    again = source.build()
    assert again.produced_type.get_field_names() == ["id", "name", "price"]
    with contextlib.closing(SourceRun(again, 1, kept)) as run:
        run.read(records=2)
    assert told(run.records) == [("+I", 5, "e", None), ("+I", 6, "f", 7)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE orders DROP COLUMN name", "column 'name' of public.orders was dropped"),
        ("ALTER TABLE orders RENAME name TO title", "'name' of public.orders was dropped or ren"),
        ("ALTER TABLE orders ALTER name TYPE bytea USING name::bytea", "type of the column 'name'"),
    ],
)  # fmt: skip
def test_a_column_that_is_dropped_renamed_or_changed_ends_the_job(orders, statement, expected):
    with streaming(orders.builder().build(), 3) as run:
        orders.execute(statement, "DELETE FROM orders WHERE id = 1")
        with pytest.raises(RefusedForGood, match=expected):
            run.read(records=4)


def test_tables_of_the_same_columns_are_one_stream_with_metadata(orders):
    orders.execute(
        "CREATE TABLE old (id int PRIMARY KEY, name text)",
        "ALTER TABLE old REPLICA IDENTITY FULL",
        "INSERT INTO old VALUES (9, 'z')",
    )
    made = orders.builder("orders", "old").metadata_columns("table_name", "op_ts")
    source = made.build()
    with streaming(source, 4) as run:
        orders.execute("DELETE FROM old")
        run.read(records=5)
    *snapshot, last = run.records
    assert sorted(tuple(row) for row in snapshot if row.id != 3) == [
        (1, "a", "orders", 0),
        (2, "b", "orders", 0),
        (9, "z", "old", 0),
    ]
    assert (last.get_row_kind(), *last)[:4] == (RowKind.DELETE, 9, "z", "old")
    assert abs(last.op_ts / 1000 - time.time()) < 600


def test_records_may_be_the_json_of_debezium(orders):
    source = orders.builder().deserializer(JsonDebeziumDeserializationSchema()).build()
    assert source.produced_type == Types.STRING()
    with streaming(source, 3) as run:
        orders.execute(
            "UPDATE orders SET name = 'A' WHERE id = 1", "DELETE FROM orders WHERE id = 2"
        )
        run.read(records=5)
    found = [json.loads(text) for text in run.records]
    assert [(one["op"], one["before"], one["after"]) for one in found] == [
        ("r", None, {"id": 1, "name": "a"}),
        ("r", None, {"id": 2, "name": "b"}),
        ("r", None, {"id": 3, "name": None}),
        ("u", {"id": 1, "name": "a"}, {"id": 1, "name": "A"}),
        ("d", {"id": 2, "name": "b"}, None),
    ]
    assert found[3]["source"]["table"] == "orders"
    assert [one["source"]["snapshot"] for one in found] == ["true"] * 3 + ["false"] * 2


def test_a_partitioned_table_is_read_as_one_also_when_rows_change_their_partition(database):
    parts = ("orders", "low", "high")
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (100) TO (200)",
        *(f"ALTER TABLE {part} REPLICA IDENTITY FULL" for part in parts),
        "INSERT INTO orders VALUES (1, 'a'), (101, 'b')",
    )
    source = database.builder().build()
    source.validate()
    with streaming(source, 2) as run:
        database.execute(
            "UPDATE orders SET name = 'B' WHERE id = 101", "UPDATE orders SET id = 102 WHERE id = 1"
        )
        run.read(records=6)
    assert told(run.records[2:]) == [
        ("-U", 101, "b"),
        ("+U", 101, "B"),
        ("-D", 1, "a"),
        ("+I", 102, "a"),
    ]
