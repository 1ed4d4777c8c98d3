"""StreamingFileSink. Expectations: names and ends of files as in PyFlink 2.3, whose test of this sink looks at them."""

import re
from dataclasses import replace

import pyarrow as pa

from penstock.common import Encoder, Row, Types
from penstock.connectors.file_system import (
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
    StreamingFileSink,
)
from penstock.datastream import RuntimeExecutionMode
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sink import StatefulWriter
from penstock.formats.parquet import ParquetBulkWriters
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.programs.environments import minicluster_environment

NAMES = OutputFileConfig.builder().with_part_prefix("prefix").with_part_suffix(".suffix").build()
TEXT = writer_context(input_type=Types.STRING())


def sink_at(path, part_size=None):
    builder = StreamingFileSink.for_row_format(str(path), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    builder.with_output_file_config(NAMES)
    if part_size is not None:
        builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=part_size))
    return builder.build()


def files(path):
    """Name and text of each file. What tells hidden files of one name apart is left out."""
    found = [one for one in path.rglob("*") if one.is_file()]
    return sorted(
        (re.sub(r"(\.inprogress)\..*", r"\1", one.name), one.read_text()) for one in found
    )


def write(writer, *values):
    for value in values:
        writer.write(RowBatch([value]), 0)


def test_a_file_that_a_checkpoint_has_finished_is_named_by_subtask_and_number(tmp_path):
    sink = sink_at(tmp_path)
    writer = sink.create_writer(replace(TEXT, subtask=3, parallelism=4))
    assert isinstance(writer, StatefulWriter)
    write(writer, "a")
    assert files(tmp_path)[0][0] == ".prefix-3-0.suffix.inprogress"
    first = writer.prepare_checkpoint(1)
    write(writer, "b")
    second = writer.prepare_checkpoint(2)
    assert [name for name, _ in files(tmp_path)] == [
        ".prefix-3-0.suffix.inprogress",
        ".prefix-3-1.suffix.inprogress",
    ]
    sink.create_committer().commit([*first, *second])
    assert files(tmp_path) == [("prefix-3-0.suffix", "a\n"), ("prefix-3-1.suffix", "b\n")]


def test_without_checkpoints_files_stay_in_progress_with_all_that_was_written(tmp_path):
    sink = sink_at(tmp_path, part_size=1)
    writer = sink.create_writer(TEXT)
    write(writer, "a", "b")
    assert list(writer.prepare_commit()) == []
    writer.close()
    sink.create_committer().abort("job-1.")
    assert files(tmp_path) == [
        (".prefix-0-0.suffix.inprogress", "a\n"),
        (".prefix-0-1.suffix.inprogress", "b\n"),
    ]


def test_a_writer_that_is_stopped_keeps_its_file_and_a_new_attempt_removes_it(tmp_path):
    sink = sink_at(tmp_path)
    writer = sink.create_writer(TEXT)
    write(writer, "a")
    writer.close()
    assert files(tmp_path) == [(".prefix-0-0.suffix.inprogress", "a\n")]
    sink.create_writer(writer_context(attempt=1))
    assert files(tmp_path) == []


def test_a_new_attempt_keeps_what_its_checkpoint_covers_and_removes_what_came_later(tmp_path):
    sink = sink_at(tmp_path)
    writer = sink.create_writer(TEXT)
    write(writer, "a")
    kept = writer.prepare_checkpoint(1)
    write(writer, "b")
    writer.prepare_checkpoint(2)
    again = sink.create_writer(
        replace(writer_context(attempt=1, input_type=Types.STRING()), restored_checkpoint_id=1)
    )
    assert files(tmp_path) == [(".prefix-0-0.suffix.inprogress", "a\n")]
    write(again, "c")
    sink.create_committer().commit([*kept, *again.prepare_checkpoint(3)])
    assert files(tmp_path) == [("prefix-0-0.suffix", "a\n"), ("prefix-0-1.suffix", "c\n")]


def test_numbers_go_on_behind_the_files_of_an_earlier_job(tmp_path):
    for job in ("job-1.", "job-2."):
        sink = sink_at(tmp_path)
        writer = sink.create_writer(writer_context(job=job, input_type=Types.STRING()))
        write(writer, job)
        sink.create_committer().commit(writer.prepare_checkpoint(1))
    assert files(tmp_path) == [
        ("prefix-0-0.suffix", "job-1.\n"),
        ("prefix-0-1.suffix", "job-2.\n"),
    ]


def test_a_batch_job_finishes_its_files_at_its_end(tmp_path):
    sink = sink_at(tmp_path)
    writer = sink.create_writer(replace(TEXT, is_batch=True))
    write(writer, "a")
    sink.create_committer().commit(writer.prepare_commit())
    assert files(tmp_path) == [("prefix-0-0.suffix", "a\n")]


def test_the_builders_have_pyflinks_classes(tmp_path):
    builder = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    assert isinstance(builder, StreamingFileSink.DefaultRowFormatBuilder)
    assert type(builder.build()) is StreamingFileSink
    bulk = ParquetBulkWriters.for_row_type(pa.schema([("a", pa.int64())]))
    made = StreamingFileSink.for_bulk_format(str(tmp_path), bulk)
    assert isinstance(made, StreamingFileSink.DefaultBulkFormatBuilder)
    assert type(made.build()) is StreamingFileSink


def job(path):
    """PyFlink's own test of this sink."""
    env = minicluster_environment(MiniCluster(parallelism=2)).set_parallelism(2)
    rows = [Row("ab", 1), Row("bdc", 2), Row("cfgs", 3), Row("deeefg", 4)]
    stream = env.from_collection(rows, Types.ROW([Types.STRING(), Types.INT()]))
    stream.map(lambda row: row[0], Types.STRING()).add_sink(sink_at(path))
    return env


EXPECTED = ["ab\n", "bdc\n", "cfgs\n", "deeefg\n"]


def lines(path):
    return sorted(line for _, text in files(path) for line in text.splitlines(keepends=True))


def test_a_job_without_checkpoints_leaves_hidden_files_with_all_records(tmp_path):
    job(tmp_path).execute("streaming file sink")
    assert lines(tmp_path) == EXPECTED
    assert all(
        re.fullmatch(r"\.prefix-[01]-0\.suffix\.inprogress", name) for name, _ in files(tmp_path)
    )


def test_the_last_checkpoint_of_a_job_finishes_its_last_files(tmp_path):
    job(tmp_path).enable_checkpointing(20).execute("streaming file sink")
    assert lines(tmp_path) == EXPECTED
    assert all(re.fullmatch(r"prefix-[01]-\d+\.suffix", name) for name, _ in files(tmp_path))


def test_in_batch_a_job_finishes_its_files(tmp_path):
    job(tmp_path).set_runtime_mode(RuntimeExecutionMode.BATCH).execute("streaming file sink")
    assert lines(tmp_path) == EXPECTED
    assert all(re.fullmatch(r"prefix-[01]-0\.suffix", name) for name, _ in files(tmp_path))
