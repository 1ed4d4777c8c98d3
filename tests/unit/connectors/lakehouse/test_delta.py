"""DeltaSink. What is there is read by delta-rs and its engine, which know nothing of Penstock."""

import datetime as dt
import itertools
import json
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from penstock.common import Row, RowKind, Types
from penstock.connectors.lakehouse import DeltaSink, tables
from penstock.connectors.lakehouse.delta_tables import storage_of
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.testing import MiniCluster, check_sink
from tests.tools.connectors.played_by_hand import writer_context

ORDERS = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def context(row_type=ORDERS, **changes):
    made = writer_context(**changes)
    object.__setattr__(made, "input_type", row_type)
    return made


def rows_in(path, storage=None):
    found = deltalake.DeltaTable(str(path), storage_options=storage).to_pyarrow_table()
    return sorted(found.to_pylist(), key=str)


def sink_to(path, row_type=ORDERS, *partition_columns):
    sink = DeltaSink.for_row_data(str(path), row_type)
    if partition_columns:
        sink.with_partition_columns(*partition_columns)
    made = sink.build()
    made.validate()
    return made


def written(sink, *rows, row_type=ORDERS, **changes):
    writer = sink.create_writer(context(row_type, **changes))
    writer.write(RowBatch(list(rows)), 0)
    return writer


@pytest.fixture
def table(tmp_path):
    return tmp_path / "orders"


@pytest.mark.parametrize("partition_columns", [(), ("name",)])
def test_every_restart_and_commit_gives_each_row_once(tmp_path, partition_columns):
    numbers = itertools.count()
    rows = [Row(id=number, name=f"name {number % 2}") for number in range(12)]

    def make():
        path = tmp_path / f"kit{next(numbers)}"
        sink = sink_to(path, ORDERS, *partition_columns)
        return sink, lambda: [Row(**one) for one in rows_in(path)]

    report = check_sink(make, rows, parallelisms=(2,), most_points=9, input_type=ORDERS)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


def test_a_job_writes_a_new_table_with_all_kinds_of_columns(table):
    kinds = Types.ROW_NAMED(
        ["i", "f", "b", "d", "t", "u", "x", "raw", "many", "inner"],
        [
            Types.INT(),
            Types.DOUBLE(),
            Types.BOOLEAN(),
            Types.SQL_DATE(),
            Types.SQL_TIMESTAMP(),
            Types.TIMESTAMP_LTZ(),
            Types.DECIMAL(10, 2),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.LIST(Types.LONG()),
            Types.ROW_NAMED(["a"], [Types.STRING()]),
        ],
    )
    moment = dt.datetime(2026, 11, 26, 12, 30, 0, 5, dt.UTC)
    row = Row(
        i=1,
        f=0.5,
        b=True,
        d=moment.date(),
        t=moment.replace(tzinfo=None),
        u=moment,
        x=Decimal("12.50"),
        raw=b"\x00\xff",
        many=[1, 2],
        inner=Row(a="z"),
    )
    nothing = Row(**dict.fromkeys(kinds.get_field_names()))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.use_executor(MiniCluster().executor())
    stream = env.from_collection([row, nothing], kinds)
    stream.sink_to(DeltaSink.for_row_data(str(table), kinds).build())
    env.execute()
    there = deltalake.DeltaTable(str(table)).to_pyarrow_table().sort_by("i").to_pylist()
    assert there == [
        {**row.as_dict(), "inner": {"a": "z"}},
        nothing.as_dict(),
    ]


@pytest.mark.parametrize("takes_checkpoints", [True, False])
def test_the_files_of_all_subtasks_are_one_version(table, takes_checkpoints):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    if takes_checkpoints:  # Only the last one, behind the end of the records.
        env.enable_checkpointing(3_600_000)
        env.get_checkpoint_config().set_checkpoint_storage_dir(str(table.parent / "checkpoints"))
    env.use_executor(MiniCluster().executor())
    rows = [Row(id=number, name="x") for number in range(10)]
    stream = env.from_collection(rows, ORDERS).rebalance()
    stream.sink_to(DeltaSink.for_row_data(str(table), ORDERS).build()).name("orders").uid("o")
    env.execute()
    there = deltalake.DeltaTable(str(table))
    assert (there.version(), len(there.file_uris())) == (1, 2)
    assert [one["id"] for one in rows_in(table)] == list(range(10))


VALUES = ["a b", "x/y=%", "ü", "__HIVE_DEFAULT_PARTITION__x", None]


def test_partitions_of_odd_values_are_read_as_they_were(table):
    sink = sink_to(table, ORDERS, "name")
    rows = [Row(id=number, name=name) for number, name in enumerate(VALUES)]
    sink.create_committer().commit(written(sink, *rows).prepare_commit())
    assert rows_in(table) == sorted((one.as_dict() for one in rows), key=str)
    found = deltalake.DeltaTable(str(table)).to_pyarrow_table(filters=[("name", "=", "a b")])
    assert found.to_pylist() == [{"id": 0, "name": "a b"}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Types.INT(), [1, -2, None]),
        (Types.BOOLEAN(), [True, False, None]),
        (Types.SQL_DATE(), [dt.date(2026, 1, 31), None]),
        (Types.DECIMAL(6, 2), [Decimal("1.50"), Decimal("-3.00")]),
        (Types.TIMESTAMP_LTZ(), [dt.datetime(2026, 1, 31, 5, 6, 7, 8, dt.UTC), None]),
    ],
)
def test_partitions_by_other_than_texts(table, kind, values):
    row_type = Types.ROW_NAMED(["id", "part"], [Types.LONG(), kind])
    sink = sink_to(table, row_type, "part")
    rows = [Row(id=number, part=value) for number, value in enumerate(values)]
    sink.create_committer().commit(written(sink, *rows, row_type=row_type).prepare_commit())
    assert rows_in(table) == sorted((one.as_dict() for one in rows), key=str)


@pytest.mark.parametrize(
    ("kind", "zone", "text"),
    [
        (Types.TIMESTAMP_LTZ(), dt.UTC, "2026-01-31T05:06:07.000008Z"),
        (Types.SQL_TIMESTAMP(), None, "2026-01-31 05:06:07.000008"),
    ],
)
def test_an_instant_that_is_a_partition_has_its_zone_in_the_log(table, kind, zone, text):
    """Without one Spark reads it in the zone of its session. Source: Delta protocol, Partition Value Serialization."""
    row_type = Types.ROW_NAMED(["id", "part"], [Types.LONG(), kind])
    sink = sink_to(table, row_type, "part")
    row = Row(id=1, part=dt.datetime(2026, 1, 31, 5, 6, 7, 8, zone))
    sink.create_committer().commit(written(sink, row, row_type=row_type).prepare_commit())
    log = (table / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    (added,) = (json.loads(line)["add"] for line in log if "add" in json.loads(line))
    assert added["partitionValues"] == {"part": text}


def test_more_partitions_than_files_may_be_open(table, monkeypatch):
    monkeypatch.setattr(tables, "MOST_OPEN", 3)
    sink = sink_to(table, ORDERS, "name")
    rows = [Row(id=number, name=f"name {number % 10}") for number in range(40)]
    writer = sink.create_writer(context())
    for row in rows:
        writer.write(RowBatch([row]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert rows_in(table) == sorted((one.as_dict() for one in rows), key=str)


def test_large_files_are_closed_between_checkpoints(table, monkeypatch):
    monkeypatch.setattr(tables, "FILE_BYTES", 1)
    sink = sink_to(table)
    writer = sink.create_writer(context())
    for number in range(3):
        writer.write(RowBatch([Row(id=number, name="x")]), 0)
    prepared = writer.prepare_commit()
    assert len(prepared[0][3]) == 3
    sink.create_committer().commit(prepared)
    assert len(rows_in(table)) == 3


def test_a_commit_names_its_checkpoint_and_bounds_of_its_columns(table):
    sink = sink_to(table)
    writer = written(sink, Row(id=5, name="b"), Row(id=3, name=None), Row(id=4, name="a"))
    prepared = sink.combined(context(), 7, writer.prepare_commit())
    sink.create_committer().commit(prepared)
    there = deltalake.DeltaTable(str(table))
    assert there.history(1)[0]["penstockCheckpoints"] == "7"
    (file,) = pa.table(there.get_add_actions(flatten=True)).to_pylist()
    assert (file["num_records"], file["min.id"], file["max.id"]) == (3, 3, 5)
    assert (file["min.name"], file["max.name"], file["null_count.name"]) == ("a", "b", 1)


def test_bounds_do_not_hide_a_nan(table):
    """Parquet leaves NaN out of its bounds, and in a table NaN is larger than all numbers."""
    row_type = Types.ROW_NAMED(["x"], [Types.DOUBLE()])
    sink = sink_to(table, row_type)
    writer = written(sink, Row(x=1.0), Row(x=float("nan")), row_type=row_type)
    sink.create_committer().commit(writer.prepare_commit())
    log = Path(table, "_delta_log", f"{1:020d}.json").read_text()
    (add,) = (json.loads(line)["add"] for line in log.splitlines() if '"add"' in line)
    assert json.loads(add["stats"])["maxValues"] == {}


def test_commits_beside_other_writers_lose_nothing(table):
    sink = sink_to(table)
    ours = [written(sink, Row(id=number, name="ours"), subtask=number) for number in range(3)]
    committers = [sink.create_committer() for _ in ours]
    for number, (writer, committer) in enumerate(zip(ours, committers, strict=True)):
        other = pa.table({"id": [100 + number], "name": ["theirs"]})
        deltalake.write_deltalake(str(table), other, mode="append")
        committer.commit(writer.prepare_commit())
    assert {one["id"] for one in rows_in(table)} == {0, 1, 2, 100, 101, 102}


def test_two_processes_that_commit_the_same_at_once_add_it_once(table, monkeypatch):
    sink = sink_to(table)
    prepared = written(sink, Row(id=1, name="x")).prepare_commit()
    committer, rival = sink.create_committer(), sink.create_committer()
    opened, is_first = committer._table, [True]

    def rival_first():
        found = opened()
        if is_first.pop() if is_first else False:
            rival.commit(prepared)
        return found

    monkeypatch.setattr(committer, "_table", rival_first)
    assert committer.commit(prepared) is None
    assert rows_in(table) == [{"id": 1, "name": "x"}]


def test_columns_that_records_do_not_have_are_null(table):
    columns = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])
    deltalake.DeltaTable.create(str(table), columns)
    sink = sink_to(table)
    sink.create_committer().commit(written(sink, Row(id=1, name="x")).prepare_commit())
    assert rows_in(table) == [{"id": 1, "name": "x", "note": None}]


def test_columns_come_as_columns(table):
    sink = sink_to(table)
    writer = sink.create_writer(context())
    data = pa.record_batch({"name": ["a", "b"], "id": pa.array([1, 2], pa.int32())})
    writer.write(ColumnBatch(data, None), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert rows_in(table) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_nothing_to_write_makes_no_version(table):
    sink = sink_to(table)
    writer = sink.create_writer(context())
    assert writer.prepare_commit() == []
    sink.create_committer().commit([])
    assert deltalake.DeltaTable(str(table)).version() == 0


def test_a_writer_that_is_closed_and_a_job_that_is_aborted_leave_nothing(table):
    sink = sink_to(table)
    closed = written(sink, Row(id=1, name="x"))
    closed.close()
    killed = written(sink, Row(id=2, name="x"), job="dead")
    sink.create_committer().abort("dead")
    assert list(table.rglob("part-*")) == []
    killed.close()


# ---------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("row_type", "columns", "text"),
    [
        (ORDERS, {"id": pa.int64()}, "no column for the field 'name'"),
        (ORDERS, {"id": pa.int64(), "Name": pa.string()}, "it has 'Name': capital letters count"),
        (ORDERS, {"id": pa.string(), "name": pa.string()}, "the column 'id' is string"),
        (
            Types.ROW_NAMED(["id"], [Types.DOUBLE()]),
            {"id": pa.float32()},
            "the column 'id' is float",
        ),
    ],
)
def test_fields_that_do_not_fit_the_table_are_refused_at_submit(table, row_type, columns, text):
    deltalake.DeltaTable.create(str(table), pa.schema(list(columns.items())))
    with pytest.raises(ConfigurationError, match=text):
        DeltaSink.for_row_data(str(table), row_type).build().validate()


def test_a_column_without_nulls_needs_its_field(table):
    columns = pa.schema([*pa.schema([("id", pa.int64())]), pa.field("n", pa.int64(), False)])
    deltalake.DeltaTable.create(str(table), columns)
    row_type = Types.ROW_NAMED(["id"], [Types.LONG()])
    with pytest.raises(ConfigurationError, match="the column 'n' takes no nulls"):
        DeltaSink.for_row_data(str(table), row_type).build().validate()


def test_the_stream_is_held_against_the_table(table):
    sink = sink_to(table)
    sink.validate_input(ORDERS)
    with pytest.raises(ConfigurationError, match="no column for the field 'ammount'"):
        sink.validate_input(Types.ROW_NAMED(["ammount"], [Types.LONG()]))
    with pytest.raises(ConfigurationError, match="expected rows with names"):
        sink.validate_input(Types.STRING())


def test_other_partitions_than_the_table_has_are_refused(table):
    sink_to(table, ORDERS, "name")
    with pytest.raises(ConfigurationError, match=r"with_partition_columns\('name'\)"):
        DeltaSink.for_row_data(str(table), ORDERS).build().validate()
    with pytest.raises(ConfigurationError, match="there is no field 'day'"):
        DeltaSink.for_row_data(str(table), ORDERS).with_partition_columns("day")


@pytest.mark.parametrize(
    "kind", [Types.LIST(Types.LONG()), Types.PRIMITIVE_ARRAY(Types.BYTE())], ids=["list", "bytes"]
)
def test_values_that_no_folder_can_hold_are_no_partitions(kind):
    row_type = Types.ROW_NAMED(["part"], [kind])
    with pytest.raises(ConfigurationError, match="'part' is .* no folder's name"):
        DeltaSink.for_row_data("/nowhere", row_type).with_partition_columns("part")


def test_a_batch_without_records_makes_no_file(table):
    writer = sink_to(table, ORDERS, "name").create_writer(context())
    writer.write(RowBatch([]), 0)
    assert writer.prepare_commit() == []


def test_a_number_that_the_column_cannot_hold_is_the_users_error(table):
    columns = pa.schema([("id", pa.int16()), ("name", pa.string())])
    deltalake.DeltaTable.create(str(table), columns)
    sink = sink_to(table)
    with pytest.raises(ValueError, match="does not fit the column 'id' of the table"):
        written(sink, Row(id=70_000, name="x"))


def test_a_type_that_delta_does_not_know_is_told_in_a_few_words(table):
    row_type = Types.ROW_NAMED(["at"], [Types.SQL_TIME()])
    with pytest.raises(ConfigurationError, match=r"cannot be made.*at: time64") as caught:
        DeltaSink.for_row_data(str(table), row_type).build().validate()
    assert "\n" not in str(caught.value)


def test_updates_and_deletes_are_refused(table):
    row = Row(id=1, name="x")
    row.set_row_kind(RowKind.DELETE)
    with pytest.raises(ValueError, match="only takes new rows"):
        written(sink_to(table), row)


def test_a_table_that_is_gone_ends_the_job(table):
    sink = sink_to(table)
    prepared = written(sink, Row(id=1, name="x")).prepare_commit()
    for found in sorted(Path(table, "_delta_log").iterdir()):
        found.unlink()
    with pytest.raises(RefusedForGood, match="is gone"):
        sink.create_committer().commit(prepared)


def test_fields_without_a_column_are_refused():
    pickled = Types.ROW_NAMED(["id", "what"], [Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
    with pytest.raises(ConfigurationError, match="what"):
        DeltaSink.for_row_data("/nowhere", pickled)


# ---------------------------------------------------------------------- S3


def test_a_table_in_s3(object_store, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    uri = object_store.uri("orders")
    sink = sink_to(uri, ORDERS, "name")
    sink.create_committer().commit(written(sink, Row(id=1, name="a b")).prepare_commit())
    plain = uri.partition("?")[0]
    assert rows_in(plain, storage_of(uri, {})) == [{"id": 1, "name": "a b"}]


def test_the_query_of_an_address_is_for_both_clients():
    uri = "s3://bucket/t?endpoint_override=host%3A9000&scheme=http&region=eu-central-1"
    assert storage_of(uri, {"AWS_REGION": "mine"}) == {
        "AWS_ENDPOINT_URL": "http://host:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "mine",
    }
    assert storage_of("/data/t", {}) == {}
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s/1"}
    assert storage_of("s3://key:s%2F1@bucket/t", {}) == keys
