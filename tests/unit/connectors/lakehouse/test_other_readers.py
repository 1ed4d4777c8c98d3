"""Tables that are written here, as polars and DuckDB read them. pyiceberg and delta-rs do so in the sinks' own tests.

polars plans a scan of an Iceberg table from its metadata by itself (polars-iceberg), without pyiceberg. DuckDB's own extensions for
Iceberg and Delta have to be downloaded, so it reads the data files of the one, and the other through Arrow.
"""

import datetime as dt

import deltalake
import duckdb
import polars as pl
import pytest

from penstock.common import Row, Types
from penstock.connectors.lakehouse import DeltaSink, IcebergSink
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.iceberg_tables import CATALOG, Lake
from tests.tools.connectors.played_by_hand import writer_context

NAME = "shop.orders"
NAMES = ["id", "name", "at", "tags"]
ORDERS = Types.ROW_NAMED(
    NAMES, [Types.LONG(), Types.STRING(), Types.TIMESTAMP_LTZ(), Types.LIST(Types.STRING())]
)
FIRST = dt.datetime(2026, 11, 26, 12, 30, 0, 5, dt.UTC)
RECORDS = [
    Row(id=number, name=name, at=FIRST + dt.timedelta(days=number), tags=[f"t{number}", "ü"])
    for number, name in enumerate(["a b", "x/y=%", None, "ü"])
]
TUPLES = [tuple(row) for row in RECORDS]


def write(sink):
    """Two checkpoints of two subtasks each."""
    sink.validate()
    for checkpoint, rows in enumerate((RECORDS[:2], RECORDS[2:]), start=1):
        prepared = []
        for subtask, row in enumerate(rows):
            context = writer_context(subtask=subtask, parallelism=2, input_type=ORDERS)
            writer = sink.create_writer(context)
            writer.write(RowBatch([row]), 0)
            prepared += writer.prepare_commit()
        sink.create_committer().commit(sink.combined(context, checkpoint, prepared))


@pytest.fixture(params=[(), ("day(at)",), ("name",), ("bucket(2, id)", "truncate(1, name)")])
def iceberg_table(request, tmp_path):
    lake = Lake(tmp_path / "lake")
    builder = IcebergSink.for_row_data(NAME, ORDERS).with_catalog(CATALOG, lake.properties)
    write(builder.create_table_if_missing().with_partitioning(*request.param).build())
    return lake.table(NAME)


@pytest.fixture(params=[(), ("name",)])
def delta_table(request, tmp_path):
    table = str(tmp_path / "orders")
    write(DeltaSink.for_row_data(table, ORDERS).with_partition_columns(*request.param).build())
    return table


def test_polars_reads_and_filters_an_iceberg_table(iceberg_table):
    scan = pl.scan_iceberg(iceberg_table.metadata_location).select(NAMES)
    assert scan.sort("id").collect().rows() == TUPLES
    late = FIRST + dt.timedelta(days=1, hours=1)
    found = scan.filter((pl.col("at") > late) & pl.col("name").is_not_null()).collect()
    assert found.rows() == TUPLES[3:]
    assert scan.filter(pl.col("name") == "x/y=%").collect().rows() == TUPLES[1:2]


def test_duckdb_reads_the_files_of_an_iceberg_table(iceberg_table):
    files = [task.file.file_path for task in iceberg_table.scan().plan_files()]
    assert rows_in_duckdb("read_parquet($files, hive_partitioning = false)", files=files) == TUPLES


def test_polars_reads_and_filters_a_delta_table(delta_table):
    scan = pl.scan_delta(delta_table).select(NAMES)
    assert scan.sort("id").collect().rows() == TUPLES
    assert scan.filter(pl.col("name") == "x/y=%").collect().rows() == TUPLES[1:2]


def test_duckdb_reads_a_delta_table(delta_table):
    data = deltalake.DeltaTable(delta_table).to_pyarrow_dataset()
    assert rows_in_duckdb("orders", orders=data) == TUPLES


def rows_in_duckdb(source, orders=None, **parameters):
    """`orders`: a data set that the query reads under this name."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if orders is not None:
            connection.register("orders", orders)
        columns = ", ".join(f'"{name}"' for name in NAMES)
        query = f"SELECT {columns} FROM {source} WHERE id >= 0 ORDER BY id"
        return connection.execute(query, parameters).fetchall()
