"""Compaction of part files: by Flink's FileCompactStrategy, each part in exactly one visible file."""

import contextlib

import pyarrow as pa
import pytest

from penstock.common import Encoder
from penstock.connectors.api.base import StreamTransformer, SupportsPreprocessing
from penstock.connectors.file_system import (
    BucketAssigner,
    DefaultRollingPolicy,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    OnCheckpointRollingPolicy,
    RollingPolicy,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.elements import RowBatch
from penstock.formats.csv import CsvBulkWriters, CsvSchema
from penstock.formats.parquet import ParquetBulkWriters
from tests.tools.connectors.played_by_hand import writer_context


def every(checkpoints):
    return FileCompactStrategy.builder().enable_compaction_on_checkpoint(checkpoints).build()


def at_size(size):
    return FileCompactStrategy.builder().set_size_threshold(size).set_num_compact_threads(2).build()


def sink_at(path, strategy=None, delimiter=None, compactor=None):
    builder = FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    if strategy is not None:
        compactor = compactor or FileCompactor.concat_file_compactor(delimiter)
        builder.enable_compact(strategy, compactor)
    return builder.build()


def texts(path):
    """What is visible."""
    names = sorted(one for one in path.iterdir() if not one.name.startswith("."))
    return sorted(one.read_text() for one in names)


def hidden(path):
    return [one for one in path.iterdir() if one.name.startswith(".")]


def checkpoint(writer, number, *values):
    """Write, take a checkpoint: what it prepared, and what the writer keeps."""
    for value in values:
        writer.write(RowBatch([value]), 0)
    return writer.prepare_checkpoint(number), list(writer.snapshot_state())


def restored(sink, number, state, subtask=0, parallelism=1, attempt=1):
    context = writer_context(subtask, attempt, parallelism=parallelism)
    object.__setattr__(context, "restored_checkpoint_id", number)
    writer = sink.create_writer(context)
    writer.restore_state(state)
    return writer


def test_parts_become_one_file_at_every_nth_checkpoint(tmp_path):
    sink = sink_at(tmp_path, every(2), b"--\n")
    writer = sink.create_writer(writer_context())
    committer = sink.create_committer()
    for number, values in ((1, "a"), (2, "b"), (3, "c"), (4, "")):
        prepared, kept = checkpoint(writer, number, *values)
        assert len(prepared) == (number % 2 == 0)
        assert len(kept) == number % 2
        committer.commit(prepared)
    assert texts(tmp_path) == ["a\n--\nb\n", "c\n"]
    assert hidden(tmp_path) == []
    assert {one.name.split("-")[0] for one in tmp_path.iterdir()} == {"compacted"}


def test_parts_become_one_file_when_they_are_large_enough(tmp_path):
    sink = sink_at(tmp_path, at_size(4))
    writer = sink.create_writer(writer_context())
    committer = sink.create_committer()
    for number, value in enumerate("abcde", 1):
        committer.commit(checkpoint(writer, number, value)[0])
    assert texts(tmp_path) == ["a\nb\n", "c\nd\n"]
    assert len(hidden(tmp_path)) == 1
    writer.end_input()
    committer.commit(checkpoint(writer, 6)[0])
    assert texts(tmp_path) == ["a\nb\n", "c\nd\n", "e\n"]


def test_buckets_are_compacted_apart(tmp_path):
    class Alternating(BucketAssigner):
        calls = 0

        def bucket_at(self, epoch_s):
            self.calls += 1
            return "odd" if self.calls % 2 else "even"

    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(Alternating())
    sink = builder.enable_compact(every(1), FileCompactor.concat_file_compactor()).build()
    writer = sink.create_writer(writer_context())
    sink.create_committer().commit(checkpoint(writer, 1, *"abcd")[0])
    assert texts(tmp_path / "odd") == ["a\nc\n"]
    assert texts(tmp_path / "even") == ["b\nd\n"]


def test_without_checkpoints_all_parts_of_a_subtask_are_one_file(tmp_path):
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1))
    sink = builder.enable_compact(every(5), FileCompactor.concat_file_compactor()).build()
    writer = sink.create_writer(writer_context())
    for value in "abc":
        writer.write(RowBatch([value]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert texts(tmp_path) == ["a\nb\nc\n"]
    assert hidden(tmp_path) == []


def test_what_was_compacted_after_the_checkpoint_is_compacted_again(tmp_path):
    sink = sink_at(tmp_path, every(2))
    writer = sink.create_writer(writer_context())
    _, kept = checkpoint(writer, 1, "a")
    checkpoint(writer, 2, "b")  # never completes
    again = restored(sink, 1, kept)
    prepared, _ = checkpoint(again, 2, "b")
    sink.create_committer().commit(prepared)
    assert texts(tmp_path) == ["a\nb\n"]
    assert hidden(tmp_path) == []


def test_a_commit_can_be_repeated_after_a_restore(tmp_path):
    sink = sink_at(tmp_path, every(2))
    writer = sink.create_writer(writer_context())
    checkpoint(writer, 1, "a")
    prepared, kept = checkpoint(writer, 2, "b")
    assert kept == []
    sink.create_committer().commit(prepared)
    sink.create_committer().commit(prepared)
    again = restored(sink, 2, kept)
    sink.create_committer().commit(checkpoint(again, 3, "c")[0])
    assert texts(tmp_path) == ["a\nb\n"]
    assert len(again.snapshot_state()) == 1


def test_parts_that_wait_go_with_any_writer(tmp_path):
    sink = sink_at(tmp_path, every(3))
    kept = []
    for subtask in range(2):
        writer = sink.create_writer(writer_context(subtask, parallelism=2))
        kept += checkpoint(writer, 1, f"of {subtask}")[1]
    one = restored(sink, 1, kept)
    one.end_input()
    sink.create_committer().commit(checkpoint(one, 2, "new")[0])
    assert texts(tmp_path) == ["of 0\nof 1\nnew\n"]


def test_a_sink_that_compacts_no_more_shows_what_waited(tmp_path):
    writer = sink_at(tmp_path, every(9)).create_writer(writer_context())
    _, kept = checkpoint(writer, 1, "a")
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    builder.enable_compact(every(9), FileCompactor.concat_file_compactor()).disable_compact()
    plain = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    again = restored(plain, 1, kept)
    prepared, nothing = checkpoint(again, 2, "b")
    assert nothing == []
    plain.create_committer().commit(prepared)
    assert texts(tmp_path) == ["a\n", "b\n"]


def test_a_part_that_is_gone_is_named(tmp_path):
    sink = sink_at(tmp_path, every(2))
    writer = sink.create_writer(writer_context())
    checkpoint(writer, 1, "a")
    (part,) = hidden(tmp_path)
    part.unlink()
    with (
        contextlib.closing(writer),
        pytest.raises(ExternalError, match="to be compacted, but it does not exist"),
    ):
        checkpoint(writer, 2, "b")


def test_the_identical_compactor_takes_one_file(tmp_path):
    sink = sink_at(tmp_path, at_size(0), compactor=FileCompactor.identical_file_compactor())
    writer = sink.create_writer(writer_context())
    sink.create_committer().commit(checkpoint(writer, 1, "a", "b")[0])
    assert texts(tmp_path) == ["a\nb\n"]
    waits = sink_at(tmp_path, every(2), compactor=FileCompactor.identical_file_compactor())
    writer = waits.create_writer(writer_context())
    checkpoint(writer, 1, "a")
    with (
        contextlib.closing(writer),
        pytest.raises(ConfigurationError, match="takes one file, got 2"),
    ):
        checkpoint(writer, 2, "b")
    copy = tmp_path / "copy"
    with copy.open("wb") as file:
        FileCompactor.identical_file_compactor().compact([str(next(tmp_path.iterdir()))], file)


def test_wrong_strategies_and_formats_that_cannot_be_concatenated_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="at least one condition"):
        FileCompactStrategy.builder().build()
    for setter in (
        "enable_compaction_on_checkpoint",
        "set_size_threshold",
        "set_num_compact_threads",
    ):
        with pytest.raises(ConfigurationError, match=f"{setter}: expected"):
            getattr(FileCompactStrategy.builder(), setter)(-1)
    parquet = ParquetBulkWriters.for_row_type(pa.schema([("a", pa.int64())]))
    with pytest.raises(ConfigurationError, match="damaged"):
        FileSink.for_bulk_format(str(tmp_path), parquet).enable_compact(
            every(1), FileCompactor.concat_file_compactor()
        )
    builder = CsvSchema.builder().add_string_column("a")
    bulk = CsvBulkWriters.for_schema(builder.build())
    assert FileSink.for_bulk_format(str(tmp_path), bulk).enable_compact(
        every(1), FileCompactor.concat_file_compactor()
    )
    with pytest.raises(ConfigurationError, match="damaged"):
        bulk = CsvBulkWriters.for_schema(builder.set_use_header().build())
        FileSink.for_bulk_format(str(tmp_path), bulk).enable_compact(
            every(1), FileCompactor.concat_file_compactor()
        )


def test_policies_have_pyflinks_classes(tmp_path):
    assert isinstance(RollingPolicy.default_rolling_policy(), DefaultRollingPolicy)
    assert isinstance(RollingPolicy.on_checkpoint_rolling_policy(), OnCheckpointRollingPolicy)
    sink = sink_at(tmp_path)
    assert isinstance(sink, SupportsPreprocessing)
    assert sink.get_transformer() is None
    assert StreamTransformer
