"""IcebergSink. What is there is read by pyiceberg, which knows nothing of Penstock."""

import contextlib
import datetime as dt
import itertools
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from penstock.common import Row, RowKind, Types
from penstock.connectors.lakehouse import IcebergSink, IcebergSource, iceberg, tables
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.testing import MiniCluster, check_sink
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.iceberg_tables import CATALOG, Lake
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.object_store import BUCKET

ORDERS = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
NAME = "shop.orders"


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


def context(row_type=ORDERS, **changes):
    made = writer_context(**changes)
    object.__setattr__(made, "input_type", row_type)
    object.__setattr__(made, "operator_id", "orders")
    return made


def builder_of(lake, row_type=ORDERS):
    return IcebergSink.for_row_data(NAME, row_type).with_catalog(CATALOG, lake.properties)


def sink_to(lake, row_type=ORDERS, *partitioning, **properties):
    made = builder_of(lake, row_type).create_table_if_missing(properties)
    sink = made.with_partitioning(*partitioning).build()
    sink.validate()
    return sink


def written(sink, *rows, row_type=ORDERS, **changes):
    writer = sink.create_writer(context(row_type, **changes))
    writer.write(RowBatch(list(rows)), 0)
    return writer


def prepared(sink, *rows, checkpoint=1, row_type=ORDERS):
    """What the global committer gets for these rows, written by one subtask."""
    writer = written(sink, *rows, row_type=row_type)
    return sink.combined(context(), checkpoint, writer.prepare_commit())


def test_every_restart_and_commit_gives_each_row_once(tmp_path):
    numbers = itertools.count()
    rows = [Row(id=number, name=f"name {number % 2}") for number in range(8)]

    def make():
        lake = Lake(tmp_path / f"kit{next(numbers)}")
        sink = sink_to(lake, ORDERS, "bucket(2, id)")
        return sink, lambda: [Row(**one) for one in lake.rows(NAME)]

    report = check_sink(make, rows, parallelisms=(2,), most_points=3, input_type=ORDERS)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


MOMENT = dt.datetime(2026, 11, 26, 12, 30, 0, 5, dt.UTC)
KINDS = Types.ROW_NAMED(
    ["i", "s", "f", "g", "b", "d", "t", "u", "h", "x", "raw", "many", "named", "inner"],
    [
        Types.INT(), Types.SHORT(), Types.FLOAT(), Types.DOUBLE(), Types.BOOLEAN(),
        Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.TIMESTAMP_LTZ(), Types.SQL_TIME(),
        Types.DECIMAL(10, 2), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.LIST(Types.LONG()),
        Types.MAP(Types.STRING(), Types.LONG()), Types.ROW_NAMED(["a"], [Types.STRING()]),
    ],
)  # fmt: skip
FULL = Row(
    i=1, s=2, f=0.5, g=0.25, b=True, d=MOMENT.date(), t=MOMENT.replace(tzinfo=None), u=MOMENT,
    h=dt.time(1, 2, 3), x=Decimal("12.50"), raw=b"\x00\xff", many=[1, 2], named={"k": 1},
    inner=Row(a="z"),
)  # fmt: skip


@pytest.mark.parametrize("takes_checkpoints", [True, False])
def test_a_job_writes_a_new_table_in_one_snapshot(lake, tmp_path, takes_checkpoints):
    nothing = Row(**dict.fromkeys(KINDS.get_field_names()))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    if takes_checkpoints:  # Only the last one, behind the end of the records.
        env.enable_checkpointing(3_600_000)
        env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    env.use_executor(MiniCluster().executor())
    stream = env.from_collection([FULL, nothing], KINDS).rebalance()
    sink = builder_of(lake, KINDS).create_table_if_missing().build()
    stream.sink_to(sink).name("orders").uid("orders")
    job = env.execute()
    there = lake.table(NAME)
    assert there.scan().to_arrow().sort_by("i").to_pylist() == [
        {**FULL.as_dict(), "named": [("k", 1)], "inner": {"a": "z"}},
        nothing.as_dict(),
    ]
    (snapshot,) = there.snapshots()
    summary = snapshot.summary.additional_properties
    assert summary["penstock.job-id"] == str(job.get_job_id())[:16]
    assert summary["penstock.operator-id"] == "orders-global-committer"
    expected = "1" if takes_checkpoints else str(2**63 - 1)
    assert summary["penstock.max-committed-checkpoint-id"] == expected
    assert summary["added-data-files"] == "2"


def test_a_commit_that_is_repeated_is_found_behind_later_ones(lake):
    sink = sink_to(lake)
    first = prepared(sink, Row(id=1, name="x"), checkpoint=3)
    second = prepared(sink, Row(id=2, name="x"), checkpoint=4)
    sink.create_committer().commit(first)
    lake.append(NAME, pa.table({"id": [100], "name": ["theirs"]}))
    sink.create_committer().commit([*first, *second])
    lake.append(NAME, pa.table({"id": [101], "name": ["theirs"]}))
    sink.create_committer().commit([*first, *second])
    assert [one["id"] for one in lake.rows(NAME)] == [1, 100, 101, 2]


def test_jobs_and_operators_are_told_apart(lake):
    sink = sink_to(lake)
    ((job, operator, checkpoint, files),) = prepared(sink, Row(id=1, name="x"))
    ((_, _, _, other_files),) = prepared(sink, Row(id=2, name="x"))
    committer = sink.create_committer()
    committer.commit([(job, operator, checkpoint, files)])
    committer.commit([(job, "other", checkpoint, other_files)])
    assert [one["id"] for one in lake.rows(NAME)] == [1, 2]


@contextlib.contextmanager
def rival(monkeypatch, act, times=1):
    """Between a committer's look at the table and its commit, `act` is called, the first `times` times."""
    append, left = iceberg._append, [times]

    def with_rival(table, committable):
        if left[0]:
            left[0] -= 1
            act()
        append(table, committable)

    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "_append", with_rival)
        yield


def test_a_commit_beside_another_writer_is_tried_again_on_the_new_table(lake, monkeypatch):
    sink = sink_to(lake)
    ours = prepared(sink, Row(id=1, name="ours"))
    others = pa.table({"id": [100], "name": ["theirs"]})
    with rival(monkeypatch, lambda: lake.append(NAME, others)):
        sink.create_committer().commit(ours)
    assert [one["id"] for one in lake.rows(NAME)] == [1, 100]
    assert len(lake.table(NAME).snapshots()) == 2


def test_two_processes_that_commit_the_same_at_once_add_it_once(lake, monkeypatch):
    sink = sink_to(lake)
    ours = prepared(sink, Row(id=1, name="x"))
    other = sink.create_committer()
    with rival(monkeypatch, lambda: other.commit(ours)):
        sink.create_committer().commit(ours)
    assert lake.rows(NAME) == [{"id": 1, "name": "x"}]


def test_a_table_that_is_never_left_alone_restarts_the_job(lake, monkeypatch):
    monkeypatch.setattr(iceberg, "_FIRST_WAIT_S", 0)
    sink = sink_to(lake)
    ours = prepared(sink, Row(id=1, name="ours"))
    others = pa.table({"id": [100], "name": ["theirs"]})
    with (
        rival(monkeypatch, lambda: lake.append(NAME, others), times=10),
        pytest.raises(ExternalError, match="was changed by others 10 times"),
    ):
        sink.create_committer().commit(ours)


def test_nothing_to_write_makes_no_snapshot(lake):
    sink = sink_to(lake)
    writer = sink.create_writer(context())
    writer.write(RowBatch([]), 0)
    assert writer.prepare_commit() == []
    assert lake.table(NAME).snapshots() == []


# ---------------------------------------------------------------------- partitions and files

STAMPS = [MOMENT, MOMENT.replace(year=1969, hour=0), MOMENT.replace(day=1), None]
PARTITIONINGS = [
    ("year(v)", Types.SQL_TIMESTAMP(), [s and s.replace(tzinfo=None) for s in STAMPS], [-1, 56]),
    ("month(v)", Types.TIMESTAMP_LTZ(), STAMPS, [-2, 682]),
    ("day(v)", Types.TIMESTAMP_LTZ(), STAMPS, [-36, 20758, 20783]),
    ("day(v)", Types.SQL_DATE(), [s and s.date() for s in STAMPS], [-36, 20758, 20783]),
    ("hour(v)", Types.TIMESTAMP_LTZ(), STAMPS, [-864, 498204, 498804]),
    ("v", Types.STRING(), ["a b", "x/y=%", "ü", None], ["a b", "x/y=%", "ü"]),
    ("v", Types.DECIMAL(6, 2), [Decimal("1.50"), None], [Decimal("1.50")]),
    ("truncate(2, v)", Types.STRING(), ["iceberg", "icy", "ib", None], ["ib", "ic"]),
    ("truncate(10, v)", Types.INT(), [-1, 1, 19, None], [-10, 0, 10]),
    ("bucket(16, v)", Types.LONG(), [34, None], [3]),
    ("bucket(16, v)", Types.SQL_DATE(), [dt.date(2017, 11, 16)], [10]),
]
"""A partitioning, values, and the partitions that Iceberg's table specification defines for them. Its appendix B has the hashes
of 34 and of 2017-11-16: 2017239379 and -653330422.
"""


@pytest.mark.parametrize(("partitioning", "kind", "values", "partitions"), PARTITIONINGS)
def test_partitions_are_those_of_the_specification(lake, partitioning, kind, values, partitions):
    row_type = Types.ROW_NAMED(["id", "v"], [Types.LONG(), kind])
    sink = sink_to(lake, row_type, partitioning)
    rows = [Row(id=number, v=value) for number, value in enumerate(values)]
    sink.create_committer().commit(prepared(sink, *rows, row_type=row_type))
    files = [task.file for task in lake.table(NAME).scan().plan_files()]
    there = {file.partition[0] for file in files}
    assert there - {None} == set(partitions)
    assert (None in there) == (None in values)
    assert lake.rows(NAME) == sorted((one.as_dict() for one in rows), key=str)
    for row in rows:
        if row.v is not None:
            found = lake.rows(NAME, row_filter=EqualTo("v", _literal(row.v)))
            assert row.as_dict() in found


def _literal(value):
    return value.isoformat() if isinstance(value, dt.date) else value


def test_partitions_of_several_fields(lake):
    sink = sink_to(lake, ORDERS, "bucket(4, id)", "name")
    rows = [Row(id=number, name=f"n{number % 2}") for number in range(20)]
    sink.create_committer().commit(prepared(sink, *rows))
    assert lake.rows(NAME) == sorted((one.as_dict() for one in rows), key=str)
    with lake.catalog() as catalog:
        table = catalog.load_table(NAME)
        assert [str(one.transform) for one in table.spec().fields] == ["bucket[4]", "identity"]


def test_partitions_by_a_field_of_a_struct(lake):
    inner = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    row_type = Types.ROW_NAMED(["id", "inner"], [Types.LONG(), inner])
    sink = sink_to(lake, row_type, "truncate(10, inner.a)")
    rows = [Row(id=number, inner=Row(a=number * 7, b="x")) for number in range(4)]
    sink.create_committer().commit(prepared(sink, *rows, row_type=row_type))
    files = [task.file for task in lake.table(NAME).scan().plan_files()]
    assert sorted(file.partition[0] for file in files) == [0, 10, 20]
    assert [one["inner"]["a"] for one in lake.rows(NAME)] == [0, 7, 14, 21]


def test_more_partitions_than_files_may_be_open(lake, monkeypatch):
    monkeypatch.setattr(tables, "MOST_OPEN", 3)
    sink = sink_to(lake, ORDERS, "name")
    rows = [Row(id=number, name=f"name {number % 5}") for number in range(10)]
    writer = sink.create_writer(context())
    for row in rows:
        writer.write(RowBatch([row]), 0)
    sink.create_committer().commit(sink.combined(context(), 1, writer.prepare_commit()))
    assert lake.rows(NAME) == sorted((one.as_dict() for one in rows), key=str)


def test_the_tables_properties_say_how_large_files_are_and_how_compressed(lake):
    properties = {"write.target-file-size-bytes": "1", "write.parquet.compression-codec": "gzip"}
    sink = sink_to(lake, **properties)
    writer = sink.create_writer(context())
    for number in range(3):
        writer.write(RowBatch([Row(id=number, name="x")]), 0)
    ((_, _, _, files),) = sink.combined(context(), 1, writer.prepare_commit())
    assert len(files) == 3
    footer = pa.parquet.read_metadata(files[0]["file_path"])
    assert footer.row_group(0).column(0).compression == "GZIP"


def test_a_manifest_knows_counts_and_bounds(lake):
    sink = sink_to(lake)
    rows = [Row(id=5, name="b"), Row(id=3, name=None), Row(id=4, name="a")]
    sink.create_committer().commit(prepared(sink, *rows))
    (file,) = lake.table(NAME).inspect.files().to_pylist()
    assert (file["record_count"], file["content"], file["file_format"]) == (3, 0, "PARQUET")
    metrics = file["readable_metrics"]
    assert (metrics["id"]["lower_bound"], metrics["id"]["upper_bound"]) == (3, 5)
    assert (metrics["name"]["lower_bound"], metrics["name"]["null_value_count"]) == ("a", 1)
    assert Path(file["file_path"]).stat().st_size == file["file_size_in_bytes"]


def test_columns_with_odd_names(lake):
    row_type = Types.ROW_NAMED(["the id", "größe"], [Types.LONG(), Types.LONG()])
    sink = sink_to(lake, row_type)
    sink.create_committer().commit(
        prepared(sink, Row(**{"the id": 1, "größe": 2}), row_type=row_type)
    )
    assert lake.rows(NAME) == [{"the id": 1, "größe": 2}]


def test_columns_come_as_columns_and_those_that_are_missing_are_null(lake):
    lake.create(NAME, pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())]))
    sink = builder_of(lake).build()
    writer = sink.create_writer(context())
    data = pa.record_batch({"name": ["a", "b"], "id": pa.array([1, 2], pa.int32())})
    writer.write(ColumnBatch(data, None), 0)
    sink.create_committer().commit(sink.combined(context(), 1, writer.prepare_commit()))
    rows = [{"id": 1, "name": "a", "note": None}, {"id": 2, "name": "b", "note": None}]
    assert lake.rows(NAME) == rows


def test_manifests_are_merged_if_the_table_wants_it(lake):
    wanted = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    sink = sink_to(lake, **wanted)
    for checkpoint in (1, 2, 3):
        sink.create_committer().commit(
            prepared(sink, Row(id=checkpoint, name="x"), checkpoint=checkpoint)
        )
    assert len(lake.table(NAME).inspect.manifests()) == 1
    assert len(lake.rows(NAME)) == 3


def test_a_writer_that_is_closed_leaves_no_file(lake):
    sink = sink_to(lake)
    writer = written(sink, Row(id=1, name="x"))
    writer.close()
    assert list(Path(lake.properties["warehouse"]).rglob("*.parquet")) == []


# ---------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("row_type", "columns", "text"),
    [
        (ORDERS, {"id": pa.int64()}, "no column for the field 'name'"),
        (ORDERS, {"id": pa.int64(), "Name": pa.string()}, "it has 'Name': capital letters count"),
        (ORDERS, {"id": pa.string(), "name": pa.string()}, "the column 'id' is large_string"),
        (
            Types.ROW_NAMED(["id"], [Types.DOUBLE()]),
            {"id": pa.float32()},
            "the column 'id' is float",
        ),
    ],
)
def test_fields_that_do_not_fit_the_table_are_refused_at_submit(lake, row_type, columns, text):
    lake.create(NAME, pa.schema(list(columns.items())))
    with pytest.raises(ConfigurationError, match=text):
        builder_of(lake, row_type).build().validate()


def test_a_required_column_needs_its_field_and_a_value(lake):
    lake.create(NAME, pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), False)]))
    with pytest.raises(ConfigurationError, match="the column 'name' takes no nulls"):
        builder_of(lake, Types.ROW_NAMED(["id"], [Types.LONG()])).build().validate()
    sink = sink_to(lake)
    with pytest.raises(ValueError, match="the column 'name' .* takes no nulls"):
        written(sink, Row(id=1, name=None))


def test_the_stream_is_held_against_the_table(lake):
    sink = sink_to(lake)
    sink.validate_input(ORDERS)
    with pytest.raises(ConfigurationError, match="no column for the field 'ammount'"):
        sink.validate_input(Types.ROW_NAMED(["ammount"], [Types.LONG()]))
    with pytest.raises(ConfigurationError, match="expected rows with names"):
        sink.validate_input(Types.STRING())


def test_a_table_that_is_missing_is_made_only_if_asked_for(lake):
    with pytest.raises(
        ConfigurationError, match=r"no table 'shop.orders' .*create_table_if_missing"
    ):
        builder_of(lake).build().validate()
    sink_to(lake)
    assert lake.rows(NAME) == []


def test_a_table_that_cannot_be_made(lake):
    schema = pa.schema([("id", pa.int64()), ("t", pa.duration("us"))])
    sink = builder_of(lake, schema).create_table_if_missing().build()
    with pytest.raises(ConfigurationError, match="(?s)cannot be made.*t: duration"):
        sink.validate()
    other = builder_of(lake).create_table_if_missing().with_partitioning("day(when)").build()
    with pytest.raises(ConfigurationError, match=r"(?s)cannot be made.*day\(when\)"):
        other.validate()


def test_other_partitions_than_the_table_has_are_refused(lake):
    sink_to(lake, ORDERS, "bucket(4, id)")
    other = builder_of(lake).with_partitioning("name").build()
    with pytest.raises(ConfigurationError, match=r"with_partitioning\('bucket\(4, id\)'\)"):
        other.validate()
    builder_of(lake).build().validate()


@pytest.mark.parametrize("text", ["week(id)", "bucket(id)", "day(1, id)", "truncate(0, id)", "a)"])
def test_partitionings_that_are_none(lake, text):
    with pytest.raises(ConfigurationError, match="with_partitioning: got"):
        builder_of(lake).with_partitioning(text)


def test_two_partitions_of_one_column_and_other_formats_are_refused(lake):
    row_type = Types.ROW_NAMED(["t"], [Types.SQL_TIMESTAMP()])
    lake.create(NAME, pa.schema([("t", pa.timestamp("us"))]), [("t", "year"), ("t", "bucket[4]")])
    with pytest.raises(ConfigurationError, match="two fields of one column"):
        builder_of(lake, row_type).build().validate()
    with lake.catalog() as catalog:
        catalog.drop_table(NAME)
    lake.create(NAME, pa.schema([("t", pa.timestamp("us"))]), **{"write.format.default": "avro"})
    with pytest.raises(ConfigurationError, match="wants avro files"):
        builder_of(lake, row_type).build().validate()


def test_a_number_that_the_column_cannot_hold_is_the_users_error(lake):
    lake.create(NAME, pa.schema([("id", pa.int32()), ("name", pa.string())]))
    with pytest.raises(ValueError, match="'id' of the table 'shop.orders'"):
        written(sink_to(lake), Row(id=2**40, name="x"))


def test_updates_and_upserts_are_refused(lake):
    row = Row(id=1, name="x")
    row.set_row_kind(RowKind.DELETE)
    with pytest.raises(ValueError, match="only takes new rows.*SqlSink"):
        written(sink_to(lake), row)
    with pytest.raises(ConfigurationError, match="equality deletes.*MERGE INTO.*SqlSink"):
        builder_of(lake).upsert()


def test_a_table_that_is_gone_or_partitioned_anew_ends_the_job(lake):
    sink = sink_to(lake)
    ready = prepared(sink, Row(id=1, name="x"))
    with lake.catalog() as catalog, catalog.load_table(NAME).update_spec() as spec:
        spec.add_field("id", "bucket[4]")
    with pytest.raises(RefusedForGood, match=r"partitioned by \['bucket\(4, id\)'\] now"):
        sink.create_committer().commit(ready)
    with lake.catalog() as catalog:
        catalog.drop_table(NAME)
    with pytest.raises(RefusedForGood, match="is gone"):
        sink.create_committer().commit(ready)
    with pytest.raises(ExternalError, match="seen from this TaskManager"):
        sink.create_writer(context())


def test_a_catalog_that_is_away(lake, tmp_path):
    away = {**lake.properties, "uri": f"sqlite:///{tmp_path}/nowhere/x.db"}
    sink = IcebergSink.for_row_data(NAME, ORDERS).with_catalog(CATALOG, away).build()
    with pytest.raises(ConfigurationError, match="cannot be reached.*Check the catalog's"):
        sink.validate()


def test_the_drivers_configuration_of_the_catalog_goes_along(lake, monkeypatch):
    for name, value in lake.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    sink = IcebergSink.for_row_data(NAME, ORDERS).with_catalog(CATALOG).create_table_if_missing()
    made = sink.build()
    for name in lake.properties:
        monkeypatch.delenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}")
    made.validate()
    assert lake.rows(NAME) == []
    assert "sqlite" not in repr(made.settings)


# ---------------------------------------------------------------------- S3


def test_a_table_in_s3(object_store, tmp_path):
    host = object_store.host
    lake = Lake(
        tmp_path,
        f"s3://{BUCKET}/lake",
        **{
            "s3.endpoint": f"http://{host}",
            "s3.region": "us-east-1",
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
        },
    )
    sink = sink_to(lake, ORDERS, "name")
    sink.create_committer().commit(prepared(sink, Row(id=1, name="a b")))
    assert lake.rows(NAME) == [{"id": 1, "name": "a b"}]
    source = IcebergSource.for_bounded_row_data(NAME).with_catalog(CATALOG, lake.properties)
    with contextlib.closing(SourceRun(source.build(), 1)) as run:
        run.read()
    assert run.records == [Row(id=1, name="a b")]
    writer = written(sink, Row(id=2, name="x"))
    writer.close()
    (file,) = lake.table(NAME).inspect.files().to_pylist()
    assert file["file_path"].startswith(f"s3://{BUCKET}/lake/shop/orders/data/")
