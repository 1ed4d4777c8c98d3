"""IcebergSource. The tables are written by pyiceberg, which knows nothing of Penstock."""

import contextlib
import datetime as dt
import logging
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import GreaterThan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from penstock.common import Duration, Row, Types
from penstock.connectors.lakehouse import (
    IcebergSink,
    IcebergSource,
    StreamingStartingStrategy,
    iceberg_source,
)
from penstock.connectors.lakehouse.iceberg_source import newer_than
from penstock.connectors.lakehouse.iceberg_tables import TableName
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.hosting.shipping.pickling import deserialize, serialize
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.iceberg_tables import CATALOG, Lake, deletion_vector
from tests.tools.connectors.played_by_hand import (
    FakeEnumeratorContext,
    FakeReaderContext,
    writer_context,
)

NAME = "shop.orders"
SOON = Duration.of_millis(20)
IDS = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


@pytest.fixture
def orders(lake):
    """Three snapshots, which append 1 and 2, 3, and 4."""
    lake.create(NAME, IDS)
    add(lake, 1, 2)
    add(lake, 3)
    add(lake, 4)
    return lake


def add(lake, *numbers):
    lake.append(NAME, pa.table({"id": pa.array(numbers, pa.int64())}))


def snapshots(lake):
    """Oldest first."""
    return [one.snapshot_id for one in lake.table(NAME).history()]


def bounded(lake):
    return IcebergSource.for_bounded_row_data(NAME).with_catalog(CATALOG, lake.properties)


def following(lake):
    return IcebergSource.for_continuous_row_data(NAME).with_catalog(CATALOG, lake.properties)


def rows_of(source):
    with contextlib.closing(SourceRun(source, 2)) as run:
        run.read()
    return sorted(run.records, key=str)


def ids(builder):
    return [row.id for row in rows_of(builder.build())]


def test_a_snapshot_by_id_time_branch_and_tag(orders):
    first, second, _ = snapshots(orders)
    with orders.catalog() as catalog:
        manage = catalog.load_table(NAME).manage_snapshots()
        manage.create_tag(first, "begin").create_branch(second, "audit").commit()
    log = orders.table(NAME).history()
    assert ids(bounded(orders)) == [1, 2, 3, 4]
    assert ids(bounded(orders).use_snapshot_id(first)) == [1, 2]
    assert ids(bounded(orders).as_of_timestamp(log[1].timestamp_ms)) == [1, 2, 3]
    assert ids(bounded(orders).branch("audit")) == [1, 2, 3]
    assert ids(bounded(orders).tag("begin")) == [1, 2]


def test_a_table_without_snapshots_has_no_rows(lake):
    lake.create(NAME, IDS)
    assert ids(bounded(lake)) == []


def test_types_and_values_of_all_kinds(lake):
    moment = dt.datetime(2026, 11, 26, 12, 30, 0, 5, dt.UTC)
    schema = pa.schema([
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
        ("u", pa.timestamp("us", "UTC")),
        ("h", pa.time64("us")),
        ("x", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("fixed", pa.binary(2)),
        ("many", pa.list_(pa.int64())),
        ("named", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("a", pa.string())])),
    ])
    row = {
        "i": 1, "l": 2, "f": 0.5, "g": 0.25, "b": True, "d": moment.date(),
        "t": moment.replace(tzinfo=None), "u": moment, "h": dt.time(1, 2, 3),
        "x": Decimal("12.50"), "raw": b"\x00", "fixed": b"ab", "many": [1, 2],
        "named": [("k", 1)], "inner": {"a": "z"},
    }  # fmt: skip
    lake.create(NAME, schema)
    lake.append(NAME, pa.Table.from_pylist([row, {}], schema=schema))
    source = bounded(lake).build()
    raw = Types.PRIMITIVE_ARRAY(Types.BYTE())
    assert source.produced_type == Types.ROW_NAMED(
        schema.names,
        [
            Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE(), Types.BOOLEAN(),
            Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.TIMESTAMP_LTZ(), Types.SQL_TIME(),
            Types.DECIMAL(10, 2), raw, raw, Types.LIST(Types.LONG()),
            Types.MAP(Types.STRING(), Types.LONG()), Types.ROW_NAMED(["a"], [Types.STRING()]),
        ],
    )  # fmt: skip
    found = rows_of(source)
    assert found[0] == Row(**{**row, "named": {"k": 1}, "inner": Row(a="z")})
    assert found[1] == Row(**dict.fromkeys(schema.names))


def test_columns_are_found_by_their_ids(lake):
    """Renamed, widened and added ones too, in the order that the program wants."""
    lake.create(NAME, pa.schema([("id", pa.int32()), ("name", pa.string()), ("old", pa.int64())]))
    lake.append(NAME, pa.table({"id": pa.array([1], pa.int32()), "name": ["x"], "old": [7]}))
    with lake.catalog() as catalog, catalog.load_table(NAME).update_schema() as update:
        update.rename_column("name", "title")
        update.update_column("id", LongType())
        update.delete_column("old")
        update.add_column("note", StringType())
    source = bounded(lake).with_columns("note", "title", "id").build()
    assert source.produced_type.get_field_types() == [Types.STRING(), Types.STRING(), Types.LONG()]
    assert [tuple(row) for row in rows_of(source)] == [(None, "x", 1)]
    former = bounded(lake).use_snapshot_id(snapshots(lake)[0]).build()
    assert rows_of(former) == [Row(id=1, name="x", old=7)]


def test_what_the_sink_writes(lake):
    row_type = Types.ROW_NAMED(["id", "k"], [Types.LONG(), Types.STRING()])
    builder = IcebergSink.for_row_data(NAME, row_type).with_catalog(CATALOG, lake.properties)
    sink = builder.create_table_if_missing().with_partitioning("k").build()
    sink.validate()
    context = writer_context(input_type=row_type)
    writer = sink.create_writer(context)
    rows = [Row(id=number, k=k) for number, k in enumerate(["a", "x/y%", None])]
    writer.write(RowBatch(rows), 0)
    sink.create_committer().commit(sink.combined(context, 1, writer.prepare_commit()))
    assert rows_of(bounded(lake).build()) == rows


@pytest.mark.parametrize("row_filter", ["id > 2", GreaterThan("id", 2)])
def test_a_filter_leaves_out_rows_and_files(orders, row_filter):
    add(orders, 0, 5)
    source = bounded(orders).with_filter(row_filter).build()
    source = deserialize(serialize(source))
    assert [row.id for row in rows_of(source)] == [3, 4, 5]
    context = FakeEnumeratorContext()
    enumerator = source.create_enumerator(context)
    enumerator.start()
    assert enumerator.unassigned_splits() == 3  # Of four files: bounds rule one out.


@pytest.mark.parametrize("kind", [FileFormat.PARQUET, FileFormat.PUFFIN])
def test_deletes_by_position_are_applied(orders, kind):
    """pyiceberg writes none, so the delete file or deletion vector is made by hand, as the specifications have it."""
    delete_rows(orders, 1, kind=kind)
    assert ids(bounded(orders)) == [1, 3, 4]
    assert ids(bounded(orders).with_filter("id < 4")) == [1, 3]


def test_equality_deletes_are_refused(orders):
    delete_rows(orders, 1, content=DataFileContent.EQUALITY_DELETES)
    with pytest.raises(RefusedForGood, match=r"equality deletes.*rewrite_data_files.*from_spark"):
        ids(bounded(orders))


def delete_rows(
    lake, *positions, kind=FileFormat.PARQUET, content=DataFileContent.POSITION_DELETES
):
    """A snapshot with a delete file for rows of the first data file."""
    with lake.catalog() as catalog:
        table = catalog.load_table(NAME)
        (first,) = [task.file for task in table.scan().plan_files() if task.file.record_count == 2]
        path = f"{table.location()}/data/deletes"
        if kind is FileFormat.PUFFIN:
            Path(path).write_bytes(deletion_vector(first.file_path, positions))
        else:
            columns = {"file_path": [first.file_path] * len(positions), "pos": list(positions)}
            pq.write_table(pa.table(columns), path)
        deletes = DataFile.from_args(
            content=content, file_path=path, file_format=kind, partition=Record(),
            record_count=len(positions), file_size_in_bytes=1,
            equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
        )  # fmt: skip
        deletes.spec_id = 0
        transaction = table.transaction()
        with _deleting(transaction) as append:
            append.append_data_file(deletes)
        transaction.commit_transaction()


def _deleting(transaction):
    """An append whose manifest is one of deletes."""
    append = transaction.update_snapshot().fast_append()
    make = append.new_manifest_writer

    def of_deletes(spec):
        from pyiceberg.manifest import ManifestContent

        writer = make(spec)
        writer.content = lambda: ManifestContent.DELETES
        return writer

    append.new_manifest_writer = of_deletes
    return append


@pytest.mark.parametrize("is_bounded", [True, False])
def test_every_restart_gives_each_row_once(orders, is_bounded, monkeypatch):
    monkeypatch.setattr(iceberg_source, "_BATCH_ROWS", 1)  # So that files have places between.

    def make():
        return (bounded(orders) if is_bounded else following(orders).monitor_interval(SOON)).build()

    expected = [Row(id=number) for number in range(1, 5)]
    report = check_source(make, expected, parallelisms=(1, 2), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


# ---------------------------------------------------------------------- following


class Follower:
    """A source's enumerator, whose look for new snapshots is called by hand."""

    def __init__(self, builder, state=None):
        self.source = builder.build()
        self.context = FakeEnumeratorContext()
        if state is None:
            self.enumerator = self.source.create_enumerator(self.context)
        else:
            self.enumerator = self.source.restore_enumerator(self.context, state)
        self.enumerator.start()
        ((self.period_ms, self.look),) = self.context.periodic

    def counts(self):
        """How many rows the files have that wait to be handed out."""
        return [one.file["record_count"] for one in self.enumerator.snapshot_state()["splits"]]


def test_new_snapshots_are_followed_from_the_table_on(orders):
    follower = Follower(following(orders))
    assert sorted(follower.counts()) == [1, 1, 2]
    follower.look()
    assert len(follower.counts()) == 3
    add(orders, 5, 6, 7)
    add(orders, 8, 9, 10, 11)
    follower.look()
    assert follower.counts()[3:] == [3, 4]
    restored = Follower(following(orders), follower.enumerator.snapshot_state())
    add(orders, 12)
    restored.look()
    assert restored.counts()[3:] == [3, 4, 1]


STRATEGIES = {
    StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT: [1],
    StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT_EXCLUSIVE: [],
    StreamingStartingStrategy.INCREMENTAL_FROM_EARLIEST_SNAPSHOT: [2, 1, 1],
}


@pytest.mark.parametrize(("strategy", "counts"), STRATEGIES.items())
def test_where_following_begins(orders, strategy, counts):
    follower = Follower(following(orders).streaming_starting_strategy(strategy))
    assert follower.counts() == []
    add(orders, 5, 6, 7)
    if strategy is StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT_EXCLUSIVE:
        follower.look()
        assert follower.counts() == [3]
    else:
        follower.look()
        assert follower.counts() == [*counts, 3]


def test_following_from_a_snapshot_and_from_a_time(orders):
    log = orders.table(NAME).history()
    by_id = Follower(following(orders).start_snapshot_id(log[1].snapshot_id))
    by_id.look()
    assert by_id.counts() == [1, 1]
    by_time = Follower(following(orders).start_snapshot_timestamp(log[1].timestamp_ms))
    by_time.look()
    assert by_time.counts() == [1, 1]
    first = Follower(following(orders).start_snapshot_id(log[0].snapshot_id))
    first.look()
    assert first.counts() == [2, 1, 1]
    later = Follower(following(orders).start_snapshot_timestamp(log[2].timestamp_ms + 3_600_000))
    later.look()
    assert later.counts() == []


def test_a_table_that_is_empty_yet_and_a_branch(lake):
    lake.create(NAME, IDS)
    follower = Follower(following(lake))
    add(lake, 1)
    add(lake, 2, 3)
    follower.look()
    assert follower.counts() == [1, 2]
    with lake.catalog() as catalog:
        table = catalog.load_table(NAME)
        table.manage_snapshots().create_branch(snapshots(lake)[0], "audit").commit()
        of_branch = Follower(following(lake).branch("audit"))
        catalog.load_table(NAME).append(pa.table({"id": [7, 8, 9]}), branch="audit")
    of_branch.look()
    assert of_branch.counts() == [1, 3]


def test_snapshots_that_change_rows_are_skipped_and_told_or_refused(orders, caplog):
    skipping, strict = Follower(following(orders)), Follower(following(orders).refuse_changes())
    with orders.catalog() as catalog:
        catalog.load_table(NAME).delete("id = 1")
    add(orders, 5, 6, 7)
    with caplog.at_level(logging.WARNING):
        skipping.look()
    assert skipping.counts()[3:] == [3]
    assert "operation=overwrite rows=SKIPPED" in caplog.text
    with pytest.raises(RefusedForGood, match=r"\(overwrite\) changes rows that were read"):
        strict.look()


def test_a_snapshot_that_has_expired_ends_the_job(orders):
    follower = Follower(following(orders))
    add(orders, 5)
    add(orders, 6)
    with orders.catalog() as catalog:
        table = catalog.load_table(NAME)
        expired = snapshots(orders)[:4]
        table.maintenance.expire_snapshots().by_ids(expired).commit()
    with pytest.raises(RefusedForGood, match="does not lead to its newest one any more"):
        follower.look()


def test_the_snapshot_that_was_read_last_may_expire():
    """Where the next one still names it, as Java's and Spark's tables do; pyiceberg drops the name with it."""
    kept = {
        number: SimpleNamespace(snapshot_id=number, parent_snapshot_id=number - 1)
        for number in (5, 6)
    }
    table = SimpleNamespace(snapshot_by_name=lambda _ref: kept[6], snapshot_by_id=kept.get)
    assert newer_than(table, None, 4, TableName(NAME)) == [kept[5], kept[6]]
    with pytest.raises(RefusedForGood, match="read up to snapshot 3"):
        newer_than(table, None, 3, TableName(NAME))


def test_a_table_that_is_away_for_a_while(orders):
    follower = Follower(following(orders))
    with orders.catalog() as catalog:
        catalog.rename_table(NAME, "shop.away")
        follower.look()
        catalog.rename_table("shop.away", NAME)
    add(orders, 5, 6, 7)
    follower.look()
    assert follower.counts()[3:] == [3]


def test_a_partition_that_is_added_while_the_job_runs(orders):
    follower = Follower(following(orders))
    with contextlib.closing(SourceRun(follower.source, 1)) as run:
        run.read(records=4)
        with orders.catalog() as catalog, catalog.load_table(NAME).update_spec() as spec:
            spec.add_field("id", "identity")
        add(orders, 5)
        follower.look()
        run.read(records=5)
    assert sorted(row.id for row in run.records) == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------------- what does not fit


def test_wrong_settings_are_told(lake):
    with pytest.raises(ConfigurationError, match="there is no table 'shop.orders'"):
        bounded(lake).build()
    lake.create(NAME, IDS)
    add(lake, 1)
    strategies = StreamingStartingStrategy
    wrong = [
        (bounded(lake).with_columns("name"), "has no column 'name'"),
        (bounded(lake).with_filter("id >"), "cannot be filtered by id >"),
        (bounded(lake).with_filter("name = 'x'"), "cannot be filtered by name"),
        (bounded(lake).use_snapshot_id(7), "has no snapshot 7"),
        (bounded(lake).as_of_timestamp(7), "has no snapshot 7"),
        (bounded(lake).tag("v1"), "has no snapshot 'v1'.*branches and tags"),
        (bounded(lake).tag("v1").use_snapshot_id(7), "use_snapshot_id and tag"),
        (bounded(lake).start_snapshot_id(7), "INCREMENTAL_FROM_SNAPSHOT_ID is for sources that"),
        (following(lake).use_snapshot_id(7), "use_snapshot_id is for bounded"),
        (following(lake).start_snapshot_id(7), "no snapshot 7 that leads to its newest"),
        (
            following(lake).streaming_starting_strategy(
                strategies.INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP
            ),
            r"needs start_snapshot_timestamp\(...\)",
        ),
    ]
    for builder, text in wrong:
        with pytest.raises(ConfigurationError, match=text):
            builder.build()
    with pytest.raises(ConfigurationError, match="expected 1 ms or more"):
        following(lake).monitor_interval(Duration.of_millis(0))


def test_a_table_that_a_taskmanager_does_not_see(orders):
    source = bounded(orders).build()
    with orders.catalog() as catalog:
        catalog.drop_table(NAME)
    with pytest.raises(ExternalError, match="seen from this TaskManager"):
        source.create_reader(FakeReaderContext())
