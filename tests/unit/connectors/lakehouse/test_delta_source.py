"""DeltaSource. The tables are written by delta-rs, which knows nothing of Penstock."""

import contextlib
import datetime as dt
import itertools
import json
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from penstock.common import Duration, Row, Types
from penstock.connectors.lakehouse import DeltaSink, DeltaSource
from penstock.connectors.lakehouse.delta_tables import storage_of
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.played_by_hand import (
    FakeEnumeratorContext,
    FakeReaderContext,
    writer_context,
)

SOON = Duration.of_millis(20)


@pytest.fixture
def table(tmp_path):
    return str(tmp_path / "orders")


def add(table, *numbers, mode="append", **columns):
    data = {"id": pa.array(numbers, pa.int64()), **columns}
    deltalake.write_deltalake(table, pa.table(data), mode=mode)


def rows_of(source):
    with contextlib.closing(SourceRun(source, 2)) as run:
        run.read()
    return sorted(run.records, key=str)


def ids(source):
    return [row.id for row in rows_of(source)]


def test_a_snapshot_has_the_rows_of_the_last_version(table):
    add(table, 1, 2)
    add(table, 3)
    deltalake.DeltaTable(table).delete("id = 1")
    assert ids(DeltaSource.for_bounded_row_data(table).build()) == [2, 3]
    assert ids(DeltaSource.for_bounded_row_data(table).version_as_of(0).build()) == [1, 2]


def test_types_and_values_of_all_kinds(table):
    moment = dt.datetime(2026, 11, 26, 12, 30, 0, 5, dt.UTC)
    schema = pa.schema([
        ("i", pa.int32()),
        ("s", pa.int16()),
        ("y", pa.int8()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
        ("u", pa.timestamp("us", "UTC")),
        ("x", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("many", pa.list_(pa.int64())),
        ("named", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("a", pa.string())])),
    ])
    row = {
        "i": 1, "s": 2, "y": 3, "f": 0.5, "g": 0.25, "b": True, "d": moment.date(),
        "t": moment.replace(tzinfo=None),
        "u": moment, "x": Decimal("12.50"), "raw": b"\x00", "many": [1, 2],
        "named": [("k", 1)], "inner": {"a": "z"},
    }  # fmt: skip
    deltalake.write_deltalake(table, pa.Table.from_pylist([row, {}], schema=schema))
    source = DeltaSource.for_bounded_row_data(table).build()
    assert source.produced_type == Types.ROW_NAMED(
        schema.names,
        [
            Types.INT(), Types.SHORT(), Types.BYTE(), Types.FLOAT(), Types.DOUBLE(),
            Types.BOOLEAN(), Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.TIMESTAMP_LTZ(),
            Types.DECIMAL(10, 2), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.LIST(Types.LONG()),
            Types.MAP(Types.STRING(), Types.LONG()), Types.ROW_NAMED(["a"], [Types.STRING()]),
        ],
    )  # fmt: skip
    found = rows_of(source)
    assert found[0] == Row(**{**row, "named": {"k": 1}, "inner": Row(a="z")})
    assert found[1] == Row(**dict.fromkeys(schema.names))


def test_partition_columns_and_columns_that_were_added_later(table):
    rows = pa.table({"id": [1, 2], "day": [dt.date(2026, 1, 1), None], "k": ["a b/=%", "ü"]})
    deltalake.write_deltalake(table, rows, partition_by=["k", "day"])
    more = rows.slice(0, 1).append_column("note", pa.array(["later"]))
    deltalake.write_deltalake(table, more, mode="append", schema_mode="merge")
    source = DeltaSource.for_bounded_row_data(table).with_columns("note", "k", "day").build()
    day = dt.date(2026, 1, 1)
    assert sorted(map(tuple, rows_of(source)), key=str) == [
        ("later", "a b/=%", day),
        (None, "a b/=%", day),
        (None, "ü", None),
    ]


def test_what_the_sink_writes(table):
    kinds = Types.ROW_NAMED(["id", "k"], [Types.LONG(), Types.STRING()])
    sink = DeltaSink.for_row_data(table, kinds).with_partition_columns("k").build()
    sink.validate()
    context = writer_context()
    object.__setattr__(context, "input_type", kinds)
    writer = sink.create_writer(context)
    rows = [Row(id=number, k=k) for number, k in enumerate(["a", "x/y%", None])]
    writer.write(RowBatch(rows), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert rows_of(DeltaSource.for_bounded_row_data(table).build()) == rows


@pytest.mark.parametrize("is_bounded", [True, False])
def test_every_restart_gives_each_row_once(tmp_path, is_bounded):
    numbers = itertools.count()

    def make():
        path = str(tmp_path / f"kit{next(numbers)}")
        for number in range(4):
            add(path, number * 2, number * 2 + 1)
        if is_bounded:
            return DeltaSource.for_bounded_row_data(path).build()
        return DeltaSource.for_continuous_row_data(path).update_check_interval(SOON).build()

    expected = [Row(id=number) for number in range(8)]
    report = check_source(make, expected, parallelisms=(1, 2), most_points=3)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


class Follower:
    """A source's enumerator, whose look for new versions is called by hand."""

    def __init__(self, table, state=None, **how):
        builder = DeltaSource.for_continuous_row_data(table)
        for name, value in how.items():
            builder = getattr(builder, name)(*value)
        source = self.source = builder.build()
        self.context = FakeEnumeratorContext()
        if state is None:
            self.enumerator = source.create_enumerator(self.context)
        else:
            self.enumerator = source.restore_enumerator(self.context, state)
        self.enumerator.start()
        ((self.period_ms, self.look),) = self.context.periodic

    def versions(self):
        """Of the files that were handed out and that wait."""
        return [one.version for one in self.enumerator.snapshot_state()["splits"]]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (
            pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)]),
            dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC),
        ),
        (pa.array([b"\xff\x01"]), b"\xff\x01"),
        (pa.array([""]), None),
    ],
)
def test_partitions_are_the_same_in_the_snapshot_and_in_what_follows(table, column, expected):
    rows = pa.table({"id": pa.array([1], pa.int64()), "k": column})
    deltalake.write_deltalake(table, rows, partition_by=["k"])
    snapshot, follower = Follower(table), Follower(table, starting_version=(0,))
    follower.look()
    for one in (snapshot, follower):
        (split,) = one.enumerator.snapshot_state()["splits"]
        (batch,) = one.source.create_reader(FakeReaderContext()).read(split)
        assert batch.data.column("k").to_pylist() == [expected]


def test_new_versions_are_followed_from_the_snapshot_on(table):
    add(table, 1)
    add(table, 2)
    follower = Follower(table)
    assert follower.versions() == [1, 1]
    follower.look()
    assert follower.versions() == [1, 1]
    add(table, 3)
    add(table, 4)
    follower.look()
    assert follower.versions() == [1, 1, 2, 3]
    restored = Follower(table, follower.enumerator.snapshot_state())
    add(table, 5)
    restored.look()
    assert restored.versions() == [1, 1, 2, 3, 4]


def test_changes_from_a_version_on_without_a_snapshot(table):
    for number in range(3):
        add(table, number)
    follower = Follower(table, starting_version=(1,))
    assert follower.versions() == []
    follower.look()
    assert follower.versions() == [1, 2]


def test_compaction_gives_no_row_again(table):
    for number in range(3):
        add(table, number)
    follower = Follower(table)
    deltalake.DeltaTable(table).optimize.compact()
    follower.look()
    assert follower.versions() == [2, 2, 2]


def test_deleted_rows_end_the_job_unless_they_are_ignored(table):
    add(table, 1)
    add(table, 2)
    followers = Follower(table), Follower(table, ignore_deletes=())
    deltalake.DeltaTable(table).delete("id = 1")  # the whole of a file
    with pytest.raises(RefusedForGood, match=r"version 2 .* deletes rows .* ignore_deletes\(\)"):
        followers[0].look()
    followers[1].look()
    assert followers[1].versions() == [1, 1]


def test_changed_rows_end_the_job_unless_they_are_ignored(table):
    add(table, 1, 2)
    followers = Follower(table, ignore_deletes=()), Follower(table, ignore_changes=())
    deltalake.DeltaTable(table).update({"id": "7"}, predicate="id = 1")
    with pytest.raises(RefusedForGood, match=r"changes rows .* ignore_changes\(\)"):
        followers[0].look()
    followers[1].look()
    assert followers[1].versions() == [0, 1]


def test_a_version_that_the_log_has_no_more(table):
    add(table, 1)
    follower = Follower(table)
    add(table, 2)
    add(table, 3)
    deltalake.DeltaTable(table).create_checkpoint()
    Path(table, "_delta_log", f"{1:020d}.json").unlink()
    with pytest.raises(RefusedForGood, match="version 1 .* no longer in its log"):
        follower.look()


def test_a_table_that_is_away_for_a_while(table, tmp_path):
    add(table, 1)
    follower = Follower(table)
    Path(table).rename(tmp_path / "away")
    follower.look()
    (tmp_path / "away").rename(table)
    add(table, 2)
    follower.look()
    assert follower.versions() == [0, 1]


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_tables_whose_files_do_not_tell_their_rows_are_refused(table, feature):
    add(table, 1)
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [feature],
        "writerFeatures": [feature],
    }
    line = json.dumps({"protocol": protocol})
    Path(table, "_delta_log", f"{1:020d}.json").write_text(f"{line}\n")
    with pytest.raises(ConfigurationError, match=f"(?s)readers that know {feature}.*from_spark"):
        DeltaSource.for_bounded_row_data(table).build()


def test_wrong_settings_are_told(table):
    with pytest.raises(ConfigurationError, match="there is no Delta table at"):
        DeltaSource.for_bounded_row_data(table).build()
    add(table, 1)
    bounded, endless = (
        DeltaSource.for_bounded_row_data(table),
        DeltaSource.for_continuous_row_data(table),
    )
    with pytest.raises(ConfigurationError, match="has no column 'name'"):
        bounded.with_columns("name").build()
    with pytest.raises(ConfigurationError, match="version_as_of: expected .* got -1"):
        bounded.version_as_of(-1)
    with pytest.raises(ConfigurationError, match="starting_version: expected .* got -2"):
        endless.starting_version(-2)
    with pytest.raises(ConfigurationError, match="starting_version is for continuous"):
        DeltaSource.for_bounded_row_data(table).starting_version(1).build()
    with pytest.raises(ConfigurationError, match="version_as_of is for bounded"):
        endless.version_as_of(1).build()
    with pytest.raises(ConfigurationError, match="expected 1 ms or more"):
        endless.update_check_interval(Duration.of_millis(0))


def test_a_table_in_s3_is_followed(object_store):
    uri = object_store.uri("orders")
    plain, storage = uri.partition("?")[0], storage_of(uri, {})
    deltalake.write_deltalake(plain, pa.table({"id": [1, 2]}), storage_options=storage)
    assert ids(DeltaSource.for_bounded_row_data(uri).build()) == [1, 2]
    follower = Follower(uri)
    deltalake.write_deltalake(plain, pa.table({"id": [3]}), mode="append", storage_options=storage)
    follower.look()
    assert follower.versions() == [0, 1]
