import dataclasses
import re
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs, orc

from penstock.common import Encoder, Row, Types
from penstock.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from penstock.connectors.files import hidden_parts
from penstock.connectors.files.hidden_parts import ArrowParts, LocalParts
from penstock.connectors.files.parts import Part
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.formats.file_access import Address
from penstock.formats.orc import OrcBulkWriters
from penstock.formats.parquet import ParquetBulkWriters, ParquetFormat, ParquetWriterFactory
from tests.tools.connectors.played_by_hand import all_values, run_source, writer_context
from tests.tools.hosting.away import SystemThatIsAway


def text_sink(path, **settings):
    builder = FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    for name, value in settings.items():
        getattr(builder, name)(value)
    return builder.build()


def abandon(sink, text, context):
    """A writer whose process was killed: its file stays."""
    writer = sink.create_writer(context)
    writer.write(RowBatch([text]), 0)
    for part in writer._open.values():
        part.output.file.close()


def visible(path):
    return sorted(p.name for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))


def hidden(path):
    return sorted(p.name for p in path.rglob(".*") if p.is_file())


def test_nothing_is_visible_before_the_commit_and_everything_after(tmp_path):
    sink = text_sink(tmp_path)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a", "b"]), 0)
    prepared = writer.prepare_commit()
    writer.close()
    assert visible(tmp_path) == []
    sink.create_committer().commit(prepared)
    (name,) = visible(tmp_path)
    assert re.fullmatch(r"part-[0-9a-f-]{36}-0", name)
    assert (tmp_path / name).read_text() == "a\nb\n"
    assert hidden(tmp_path) == []


def test_a_typed_value_is_written_in_javas_text(tmp_path):
    sink = text_sink(tmp_path)
    tuple_type = Types.TUPLE([Types.STRING(), Types.INT()])
    writer = sink.create_writer(writer_context(input_type=tuple_type))
    writer.write(RowBatch([("a", 1)]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert (tmp_path / visible(tmp_path)[0]).read_text() == "(a,1)\n"


def test_a_commit_can_be_repeated(tmp_path):
    sink = text_sink(tmp_path)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    prepared = writer.prepare_commit()
    sink.create_committer().commit(prepared)
    sink.create_committer().commit(prepared)
    assert len(visible(tmp_path)) == 1
    (tmp_path / visible(tmp_path)[0]).unlink()
    with pytest.raises(ExternalError, match="cannot be committed"):
        sink.create_committer().commit(prepared)


def test_a_new_attempt_removes_what_older_attempts_of_its_subtask_left(tmp_path):
    sink = text_sink(tmp_path)
    abandon(sink, "old", writer_context(subtask=0, attempt=0))
    abandon(sink, "other", writer_context(subtask=1, attempt=0, parallelism=2))
    abandon(sink, "foreign", writer_context(subtask=0, job="job-2."))
    abandon(text_sink(tmp_path), "sink 2", writer_context(subtask=0))
    assert len(hidden(tmp_path)) == 4
    sink.create_writer(writer_context(subtask=0, attempt=1, parallelism=2))
    contents = sorted((tmp_path / name).read_text() for name in hidden(tmp_path))
    assert contents == ["foreign\n", "other\n", "sink 2\n"]


def test_writers_of_the_same_attempt_under_two_drivers_never_touch_each_others_files(tmp_path):
    """A driver taken for dead still has its writer; both are attempt 0 of the same job and subtask."""
    sink = text_sink(tmp_path)
    stale, new = (sink.create_writer(writer_context()) for _ in range(2))
    stale.write(RowBatch(["stale"]), 0)
    new.write(RowBatch(["new"]), 0)
    assert len(hidden(tmp_path)) == 2
    prepared = new.prepare_commit()
    stale.close()
    sink.create_committer().commit(prepared)
    (name,) = visible(tmp_path)
    assert (tmp_path / name).read_text() == "new\n"


def test_abort_removes_the_jobs_leftovers_of_this_sink_only(tmp_path):
    sink = text_sink(tmp_path)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    writer.prepare_commit()
    abandon(sink, "b", writer_context(job="job-2."))
    sink.create_committer().abort("job-1.")
    assert len(hidden(tmp_path)) == 1
    sink.create_committer().abort("job-1.")


def test_close_without_prepare_leaves_nothing(tmp_path):
    sink = text_sink(tmp_path)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    writer.close()
    assert hidden(tmp_path) == []


def test_close_after_prepare_keeps_what_the_committer_needs(tmp_path):
    sink = text_sink(tmp_path)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    writer.prepare_commit()
    writer.close()
    assert len(hidden(tmp_path)) == 1


def test_parts_roll_by_size_and_carry_the_configured_names(tmp_path):
    names = OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".txt").build()
    sink = text_sink(
        tmp_path,
        with_rolling_policy=RollingPolicy.default_rolling_policy(part_size=10),
        with_output_file_config=names,
    )
    writer = sink.create_writer(writer_context())
    for _ in range(3):
        writer.write(RowBatch(["0123456789"]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert [re.sub(r"-[0-9a-f-]{36}-", "-ID-", name) for name in visible(tmp_path)] == [
        "out-ID-0.txt",
        "out-ID-1.txt",
        "out-ID-2.txt",
    ]


def test_the_rolling_policy_looks_at_size_age_and_idleness():
    policy = RollingPolicy.default_rolling_policy(100, 2000, 1000)
    assert not policy.wants_roll(99, 1999, 999)
    assert policy.wants_roll(100, 0, 0)
    assert policy.wants_roll(0, 2000, 0)
    assert policy.wants_roll(0, 0, 1000)
    assert not RollingPolicy.on_checkpoint_rolling_policy().wants_roll(10**12, 10**9, 10**9)


@pytest.mark.parametrize(
    ("pattern", "bucket"),
    [("yyyy''MM", "2024'02"), ("'five o''clock' HH", "five o'clock 04"), ("''''", "'")],
)
def test_two_quotes_in_a_date_format_are_one(pattern, bucket):
    """As in Java's DateTimeFormatter, outside of quoted text and in it."""
    moment = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC).timestamp()
    assert BucketAssigner.date_time_bucket_assigner(pattern, "UTC").bucket_at(moment) == bucket


@pytest.mark.parametrize("pattern", ["'a", "'a''", "'"])
def test_a_quote_that_is_not_closed_is_refused(pattern):
    with pytest.raises(ConfigurationError, match="not closed"):
        BucketAssigner.date_time_bucket_assigner(pattern, "UTC")


def test_the_default_bucket_is_the_hour():
    hourly = BucketAssigner.date_time_bucket_assigner(timezone_id="UTC")
    moment = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC).timestamp()
    assert hourly.bucket_at(moment) == "2024-02-03--04"
    odd = BucketAssigner.date_time_bucket_assigner("'day='yyyyMMdd/HH_mm%ss", "Asia/Tokyo")
    assert odd.bucket_at(moment) == "day=20240203/13_05%06"
    with pytest.raises(ConfigurationError, match="'EEE' is not supported"):
        BucketAssigner.date_time_bucket_assigner("EEE")
    with pytest.raises(ConfigurationError, match="time zone"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/Olympus")


def test_records_go_to_their_buckets_directory(tmp_path):
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    (bucket,) = [p.name for p in tmp_path.iterdir()]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d--\d\d", bucket)


def test_validate_makes_the_directory_or_says_why_not(tmp_path):
    text_sink(tmp_path / "new" / "dir").validate()
    assert (tmp_path / "new" / "dir").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot make the directory"):
        text_sink(tmp_path / "file").validate()


def test_what_a_sink_wrote_a_source_reads_while_another_attempt_writes(tmp_path):
    sink = text_sink(tmp_path)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["done"]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    abandon(sink, "not yet", writer_context(job="job-2."))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    assert all_values(run_source(source.build())) == ["done"]


def bulk_round(tmp_path, factory, batch, input_type=None):
    builder = FileSink.for_bulk_format(str(tmp_path), factory)
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    sink = builder.build()
    assert sink.accepts is Accepts.COLUMNS
    writer = sink.create_writer(writer_context(input_type=input_type))
    writer.write(batch, 0)
    sink.create_committer().commit(writer.prepare_commit())
    (name,) = visible(tmp_path)
    return tmp_path / name


def test_columns_go_to_parquet_and_come_back_by_row_groups(tmp_path):
    data = pa.RecordBatch.from_pydict({"a": list(range(1000)), "ts": list(range(1000))})
    factory = ParquetWriterFactory(row_group_rows=100)
    path = bulk_round(tmp_path, factory, ColumnBatch(data))
    pq.write_table(pa.table(data), path, row_group_size=100)
    source = FileSource.for_bulk_file_format(ParquetFormat(timestamps="ts"), str(path))
    got = run_source(source.set_split_size(1).build(), parallelism=3)
    assert sorted(row["a"] for row in all_values(got)) == list(range(1000))
    first = got[0][0]
    assert first.timestamps.tolist() == first.data.column("ts").to_pylist()


def test_typed_rows_go_to_orc_in_the_declared_types(tmp_path):
    row_type = Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()])
    data = pa.RecordBatch.from_pydict({"n": [1, 2], "s": ["x", None]})
    path = bulk_round(tmp_path, OrcBulkWriters.for_row_type(row_type), ColumnBatch(data))
    table = orc.read_table(path)
    assert table.schema.field("n").type == pa.int32()
    assert table.to_pylist() == [{"n": 1, "s": "x"}, {"n": 2, "s": None}]


def test_orc_takes_rows_too(tmp_path):
    row_type = Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()])
    batch = RowBatch([Row(n=7, s="seven"), Row(n=8, s=None)])
    path = bulk_round(tmp_path, OrcBulkWriters.for_row_type(row_type), batch, row_type)
    assert orc.read_table(path).to_pylist() == [{"n": 7, "s": "seven"}, {"n": 8, "s": None}]


def test_orc_properties_of_java_are_refused():
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    with pytest.raises(
        ConfigurationError, match="writer_properties are options of Java's ORC writer"
    ):
        OrcBulkWriters.for_row_type(row_type, {"orc.compress": "ZSTD"})


@pytest.mark.parametrize("writers", [OrcBulkWriters, ParquetBulkWriters])
def test_fields_that_cannot_be_columns_are_named(writers):
    kinds = [Types.INT(), Types.BIG_DEC(), Types.DECIMAL(4, 2)]
    row_type = Types.ROW_NAMED(["n", "price", "rate"], kinds)
    with pytest.raises(ConfigurationError, match=r"of a file: price: BigDecimal\. .*DECIMAL\(p"):
        writers.for_row_type(row_type)
    with pytest.raises(TypeError, match="expected a row type"):
        writers.for_row_type(Types.INT())


def test_typed_rows_go_to_parquet_in_the_declared_types(tmp_path):
    row_type = Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()])
    data = pa.RecordBatch.from_pydict({"n": [1, 2], "s": ["x", None]})
    path = bulk_round(tmp_path, ParquetBulkWriters.for_row_type(row_type), ColumnBatch(data))
    table = pq.read_table(path)
    assert table.schema.field("n").type == pa.int32()
    assert table.to_pylist() == [{"n": 1, "s": "x"}, {"n": 2, "s": None}]


def test_a_projection_reads_only_its_columns(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1], "b": [2]}), path)
    source = FileSource.for_bulk_file_format(ParquetFormat(columns=["b"]), str(path)).build()
    assert all_values(run_source(source)) == [{"b": 2}]


def batch_part(path, attempt, operator_id="sink", subtask=0):
    """Written in runtime mode BATCH and prepared: the sink, and what is to be committed."""
    sink = text_sink(path)
    context = writer_context(subtask=subtask, attempt=attempt)
    writer = sink.create_writer(
        dataclasses.replace(context, is_batch=True, operator_id=operator_id)
    )
    writer.write(RowBatch(["a"]), 0)
    return sink, writer.prepare_commit()


def test_in_batch_a_part_has_one_name_whichever_attempt_made_it_in_whichever_run(tmp_path):
    folders = [tmp_path / name for name in ("first", "second")]
    for attempt, folder in enumerate(folders):
        for operator_id, subtask in (("sink", 0), ("sink", 1), ("other", 0)):
            sink, prepared = batch_part(folder, attempt, operator_id, subtask)
            sink.create_committer().commit(prepared)
    assert visible(folders[0]) == visible(folders[1])
    assert len(visible(folders[0])) == 3


def test_in_batch_the_part_of_another_run_is_never_written_over(tmp_path):
    sink, prepared = batch_part(tmp_path, 0)
    sink.create_committer().commit(prepared)
    again, prepared_again = batch_part(tmp_path, 0)
    with pytest.raises(
        ExternalError, match=r"exists already.*fixed-job-id.*its own id or directory"
    ):
        again.create_committer().commit(prepared_again)
    sink.create_committer().commit(prepared)  # the same once more is no harm


@pytest.mark.parametrize(
    ("setter", "given", "example"),
    [
        ("with_rolling_policy", 128, "RollingPolicy.default_rolling_policy()"),
        ("with_bucket_assigner", "yyyy", "BucketAssigner.base_path_bucket_assigner()"),
        ("with_bucket_assigner", BucketAssigner.base_path_bucket_assigner, "base_path"),
        ("with_output_file_config", "part", "OutputFileConfig.builder().build()"),
    ],
)
def test_a_builder_takes_objects_of_its_classes(tmp_path, setter, given, example):
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    with pytest.raises(TypeError, match=f"{setter} takes an? .* such as .*{re.escape(example)}"):
        getattr(builder, setter)(given)


def test_what_writes_is_checked_where_the_sink_is_made(tmp_path):
    with pytest.raises(TypeError, match=r"for_row_format takes an Encoder such as Encoder\.simple"):
        FileSink.for_row_format(str(tmp_path), "UTF-8")
    with pytest.raises(TypeError, match=r"for_bulk_format takes a .* such as ParquetBulkWriters"):
        FileSink.for_bulk_format(str(tmp_path), Encoder.simple_string_encoder())


def test_a_directory_that_is_not_there_is_told_before_a_part_is_called_missing(tmp_path):
    """It may not be mounted."""
    base = tmp_path / "out"
    store = LocalParts(str(base), "token")
    store.check()
    part = Part(str(base / ".part.pending"), str(base / "part"))
    with pytest.raises(ExternalError, match=r"neither .* exists"):
        store.commit([part])
    base.rmdir()
    with pytest.raises(ExternalError, match=r"the directory .*/out is not there\. Check that it"):
        store.commit([part])


def test_a_server_that_is_away_is_told_before_a_part_is_called_missing(monkeypatch):
    away = fs.PyFileSystem(SystemThatIsAway())
    reached = SimpleNamespace(system=away, path_of=lambda _address: "/out")
    monkeypatch.setattr(hidden_parts, "open_files", lambda _address: reached)
    store = ArrowParts(Address.of("hdfs://there/out"), "token")
    with pytest.raises(ExternalError, match=r"the directory /out is not there"):
        store.commit([Part("/out/.part.pending", "/out/part")])
