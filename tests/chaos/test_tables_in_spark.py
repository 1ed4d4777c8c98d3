"""Tables of Delta Lake and Iceberg that were written here, read by Spark itself with the jars of their projects.

That Spark is of another version, in an environment of its own, and its time zone is not UTC.
"""

import datetime as dt
from decimal import Decimal

import pytest

from penstock.common import Row, Types
from penstock.connectors.lakehouse import DeltaSink, IcebergSink
from penstock.connectors.lakehouse.iceberg import CHECKPOINT_ID, JOB_ID
from tests.chaos.drivers import Drivers, delta, iceberg, write_and_kill
from tests.tools.connectors.iceberg_tables import CATALOG, Lake
from tests.tools.connectors.spark_tables import as_json, spark_tables
from tests.tools.programs.environments import batch_environment
from tests.tools.programs.killed_sink import COUNT, KEYS, PARTS

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.server]


@pytest.fixture(scope="module")
def spark():
    with spark_tables() as running:
        yield running


# ------------------------------------------------------------------ written while TaskManagers are killed

LEASE = "60 s"
"""No driver is killed, and the machine may be busy."""
COUNTED = [["part", "string"], ["id", "bigint"], ["n", "bigint"], ["seen", "bigint"]]
ROWS = [[PARTS[n % len(PARTS)], n % KEYS, n, n // KEYS + 1] for n in range(COUNT)]


def columns_and_rows(spark, table):
    found = spark.answer(f"SELECT * FROM {table} ORDER BY n")
    return found["columns"], found["rows"]


def keys_with_gaps(spark, table):
    """Those whose rows are not their first ones: a checkpoint has all that went before it, and nothing else."""
    return spark.rows(
        f"SELECT id FROM {table} GROUP BY id HAVING min(seen) != 1 OR max(seen) != count(*)"
    )


def test_spark_reads_a_delta_table_whose_writers_were_killed(spark, tmp_path):
    with delta(tmp_path) as place:
        drivers = Drivers(tmp_path, "delta in parts", place, LEASE)
        write_and_kill(drivers, place, drivers.kill_taskmanager)
    table = f"delta.`{place.where}`"
    assert columns_and_rows(spark, table) == (COUNTED, ROWS)
    assert spark.records(f"DESCRIBE DETAIL {table}")[0]["partitionColumns"] == ["part"]
    history = spark.records(f"DESCRIBE HISTORY {table}")
    versions = [(one["version"], one["operation"]) for one in reversed(history)]
    commits = [(number, "WRITE") for number in range(1, len(versions))]
    assert versions == [(0, "CREATE TABLE"), *commits]
    assert len(versions) > 3
    middle = f"{table} VERSION AS OF {len(versions) // 2}"
    assert 0 < spark.rows(f"SELECT count(*) FROM {middle}")[0][0] < COUNT
    assert keys_with_gaps(spark, middle) == []


def test_spark_reads_an_iceberg_table_whose_writers_were_killed(spark, tmp_path):
    with iceberg(tmp_path) as place:
        drivers = Drivers(tmp_path, "iceberg in parts", place, LEASE)
        write_and_kill(drivers, place, drivers.kill_taskmanager)
    spark.open(Lake(tmp_path / "lake"))
    table = "lake.shop.out"
    assert columns_and_rows(spark, table) == (COUNTED, ROWS)
    described = {name: kind for name, kind, _ in spark.rows(f"DESCRIBE TABLE EXTENDED {table}")}
    assert (described["Part 0"], described["Part 1"]) == ("part", "bucket(2, id)")
    snapshots = spark.records(f"SELECT * FROM {table}.snapshots ORDER BY committed_at")
    ids = [one["snapshot_id"] for one in snapshots]
    assert [one["parent_id"] for one in snapshots] == [None, *ids[:-1]]
    assert {one["operation"] for one in snapshots} == {"append"}
    assert len({one["summary"][JOB_ID] for one in snapshots}) == 1
    checkpoints = [int(one["summary"][CHECKPOINT_ID]) for one in snapshots]
    assert checkpoints == sorted(set(checkpoints)), "two commits for a checkpoint"
    assert len(checkpoints) > 3
    middle = f"{table} VERSION AS OF {ids[len(ids) // 2]}"
    assert 0 < spark.rows(f"SELECT count(*) FROM {middle}")[0][0] < COUNT
    assert keys_with_gaps(spark, middle) == []


# ------------------------------------------------------------------ values of all kinds

MOMENT = dt.datetime(2026, 11, 26, 22, 30, 0, 5, dt.UTC)  # In Spark's time zone it is the next day.
BEFORE = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)
ODD = "x/y=%41?#{}\"'\\\n\t:"
NO_TEXT = "__HIVE_DEFAULT_PARTITION__"
"""Which stands for none in names of folders."""
INF = float("inf")
WIDE = Decimal("1234567890123456789012345678.0123456789")
FOLDERS = {
    "text": Types.STRING(),
    "instant": Types.TIMESTAMP_LTZ(),
    "local": Types.SQL_TIMESTAMP(),
    "day": Types.SQL_DATE(),
    "price": Types.DECIMAL(12, 4),
    "small": Types.SHORT(),
    "real": Types.DOUBLE(),
    "yes": Types.BOOLEAN(),
}
"""Columns that are there twice: as values in files, and (`by_...`) as partitions."""
OTHERS = {
    "id": Types.LONG(),
    "raw": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "many": Types.LIST(Types.STRING()),
    "inner": Types.ROW_NAMED(["x", "y"], [Types.LONG(), Types.DECIMAL(38, 10)]),
    "pairs": Types.MAP(Types.STRING(), Types.DOUBLE()),
}
VALUES = [
    ("a b", MOMENT, MOMENT, MOMENT.date(), Decimal("1.2300"), 32767, 0.1, True),
    (ODD, BEFORE, BEFORE, BEFORE.date(), Decimal("-0.0001"), -32768, 1e300, False),
    (NO_TEXT, MOMENT, BEFORE, dt.date(9999, 12, 31), Decimal("0.0000"), 0, -0.0, True),
    ("ü\U0001f600", BEFORE, MOMENT, dt.date(1, 1, 1), Decimal("12345678.9999"), 1, INF, None),
    ("null", None, None, None, None, None, float("nan"), None),
    (None,) * 8,
]  # fmt: skip
INSIDE = [
    (0, b"\x00\xff", ["x", None, "ü"], (1, WIDE), {"k": 0.5}),
    (1, b"", [], (None, Decimal("-1.0000000000")), {}),
    (2, None, None, None, None),
    (3, b"a", [""], (-1, None), {"": None}),
    (4, None, None, None, None),
    (5, None, None, None, None),
]  # fmt: skip
NAMES = [*FOLDERS, *(f"by_{name}" for name in FOLDERS), *OTHERS]
TYPE = Types.ROW_NAMED(NAMES, [*FOLDERS.values(), *FOLDERS.values(), *OTHERS.values()])
TUPLES = [(*values, *values, *inside) for values, inside in zip(VALUES, INSIDE, strict=True)]
LITERALS = {
    "text": "'a b'",
    "instant": "TIMESTAMP '2026-11-26T22:30:00.000005Z'",
    "local": "TIMESTAMP_NTZ '2026-11-26 22:30:00.000005'",
    "day": "DATE '2026-11-26'",
    "price": "1.23",
    "small": "32767",
    "real": "0.1D",
    "yes": "true",
}
"""Of the first row's values."""


def write(sink):
    env = batch_environment().set_parallelism(2)
    rows = [
        Row(**dict(zip(NAMES, values, strict=True)))
        for values in ((*one[:-2], as_row(one[-2]), one[-1]) for one in TUPLES)
    ]
    env.from_collection(rows, TYPE).sink_to(sink)
    env.execute("write")


def as_row(values):
    return values and Row(x=values[0], y=values[1])


def chosen(spark, table, conditions):
    """Rows for which all columns fulfil their conditions: one column whose bounds are wrong, and the row is not there."""
    return [
        spark.rows(f"SELECT id FROM {table} WHERE {' AND '.join(conditions(prefix))}")
        for prefix in ("", "by_")
    ]


def are_first(prefix):
    return (f"{prefix}{name} = {literal}" for name, literal in LITERALS.items())


def are_null(prefix):
    return (f"{prefix}{name} IS NULL" for name in FOLDERS)


TYPES = {
    "text": "string",
    "instant": "timestamp",
    "local": "timestamp_ntz",
    "day": "date",
    "price": "decimal(12,4)",
    "small": "smallint",
    "real": "double",
    "yes": "boolean",
    "id": "bigint",
    "raw": "binary",
    "many": "array<string>",
    "inner": "struct<x:bigint,y:decimal(38,10)>",
    "pairs": "map<string,double>",
}


def expected_columns(**other):
    types = TYPES | other
    return [[name, types[name.removeprefix("by_")]] for name in NAMES]


def test_spark_reads_all_kinds_of_values_in_a_delta_table(spark, tmp_path):
    path = str(tmp_path / "kinds")
    builder = DeltaSink.for_row_data(path, TYPE)
    write(builder.with_partition_columns(*(f"by_{name}" for name in FOLDERS)).build())
    table = f"delta.`{path}`"
    found = spark.answer(f"SELECT * FROM {table} ORDER BY id")
    assert found["columns"] == expected_columns()
    assert found["rows"] == as_json(TUPLES)
    assert chosen(spark, table, are_first) == [[[0]], [[0]]]
    assert chosen(spark, table, are_null) == [[[5]], [[5]]]


TRANSFORMS = [
    "truncate(1, by_text)", "hour(by_instant)", "day(by_local)", "month(by_day)",
    "truncate(10, by_price)", "bucket(4, by_small)", "by_real", "by_yes",
]  # fmt: skip


@pytest.mark.parametrize(
    "partitioning", [[f"by_{name}" for name in FOLDERS], TRANSFORMS], ids=["columns", "transforms"]
)
def test_spark_reads_all_kinds_of_values_in_an_iceberg_table(spark, tmp_path, partitioning):
    lake = Lake(tmp_path / "lake")
    builder = IcebergSink.for_row_data("shop.kinds", TYPE).with_catalog(CATALOG, lake.properties)
    write(builder.create_table_if_missing().with_partitioning(*partitioning).build())
    spark.open(lake)
    table = "lake.shop.kinds"
    found = spark.answer(f"SELECT * FROM {table} ORDER BY id")
    assert found["columns"] == expected_columns(small="int")  # Iceberg has no shorter integers.
    assert found["rows"] == as_json(TUPLES)
    assert chosen(spark, table, are_first) == [[[0]], [[0]]]
    assert chosen(spark, table, are_null) == [[[5]], [[5]]]
