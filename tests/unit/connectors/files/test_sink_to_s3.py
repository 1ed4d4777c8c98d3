"""FileSink to S3 by multipart uploads, on two implementations of the protocol: moto and s3rver. What others see is read by Arrow."""

import itertools
import re
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError

from penstock.common import Encoder, Row, Types
from penstock.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
    StreamingFileSink,
)
from penstock.connectors.files import sink as uploads
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.hosting.os import s3_objects
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.formats.avro import AvroBulkWriters, AvroFormat, AvroSchema
from penstock.formats.csv import CsvBulkWriters, CsvSchema
from penstock.formats.orc import OrcBulkWriters
from penstock.formats.parquet import ParquetBulkWriters, ParquetFormat
from penstock.testing import check_sink
from tests.tools.connectors.played_by_hand import all_values, run_source, writer_context

BASE = BucketAssigner.base_path_bucket_assigner()
MIB = 1 << 20


def text_sink(uri, **settings):
    builder = FileSink.for_row_format(uri, Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BASE)
    for name, value in settings.items():
        getattr(builder, name)(*(value if isinstance(value, tuple) else (value,)))
    return builder.build()


def context(**changes):
    made = writer_context(**{
        k: v for k, v in changes.items() if k in {"subtask", "attempt", "job"}
    })
    object.__setattr__(made, "operator_id", changes.get("operator_id", "sink"))
    object.__setattr__(made, "restored_checkpoint_id", changes.get("restored"))
    object.__setattr__(made, "is_batch", changes.get("is_batch", False))
    return made


def written(sink, values, **changes):
    writer = sink.create_writer(context(**changes))
    writer.write(RowBatch(values), 0)
    return writer


def test_nothing_is_there_before_the_commit_and_everything_after(each_store):
    sink = text_sink(each_store.uri("out"))
    sink.validate()
    writer = written(sink, ["a", "b"])
    prepared = writer.prepare_commit()
    writer.close()
    assert each_store.objects() == []
    sink.create_committer().commit(prepared)
    (key,) = each_store.objects()
    assert re.fullmatch(r"out/part-[0-9a-f-]{36}-0", key)
    assert each_store.read(key) == b"a\nb\n"


def test_a_large_file_goes_in_parts_and_comes_back_whole(each_store):
    line = "x" * (MIB - 1)
    sink = text_sink(each_store.uri("out"))
    writer = sink.create_writer(context())
    for _ in range(21):
        writer.write(RowBatch([line]), 0)
    (prepared,) = writer.prepare_commit()
    assert len(prepared[3][1]) == 3, "8 MiB, 8 MiB and 5 MiB"
    writer.close()
    sink.create_committer().commit([prepared])
    (key,) = each_store.objects()
    assert each_store.read(key) == f"{line}\n".encode() * 21


def test_parts_grow_so_that_ten_thousand_of_them_hold_five_tebibytes(monkeypatch, object_store):
    sizes = itertools.accumulate(
        uploads.PART_BYTES << (number // uploads.PARTS_OF_A_SIZE) for number in range(10_000)
    )
    assert max(sizes) >= 5 << 40
    monkeypatch.setattr(uploads, "PARTS_OF_A_SIZE", 1)
    sink = text_sink(object_store.uri("out"), with_rolling_policy=RollingPolicy())
    writer = written(sink, ["x" * (uploads.PART_BYTES - 1)])
    for _ in range(3):
        writer.write(RowBatch(["x" * (uploads.PART_BYTES - 1)]), 0)
    (prepared,) = writer.prepare_commit()
    assert len(prepared[3][1]) == 3, "of 1, 2 and 1 times 8 MiB"
    sink.create_committer().commit([prepared])
    assert len(object_store.lines("out")) == 4


def test_a_commit_can_be_repeated(each_store):
    sink = text_sink(each_store.uri("out"))
    prepared = written(sink, ["a"]).prepare_commit()
    sink.create_committer().commit(prepared)
    sink.create_committer().commit(prepared)
    assert each_store.lines("out") == ["a"]


def test_an_upload_that_is_gone_is_told(object_store, monkeypatch):
    """AWS answers NoSuchUpload; moto has an internal error here."""
    sink = text_sink(object_store.uri("out"))
    prepared = written(sink, ["a"]).prepare_commit()
    object_store.drop_uploads()
    client = s3_objects.s3_objects(object_store.uri("out"))._client()

    def refuse(**_):
        raise ClientError({"Error": {"Code": "NoSuchUpload"}}, "CompleteMultipartUpload")

    monkeypatch.setattr(client, "complete_multipart_upload", refuse)
    with pytest.raises(ExternalError, match="the upload of bucket/out/part-.* is gone"):
        sink.create_committer().commit(prepared)


def test_an_answer_that_was_lost_is_no_error_if_the_object_is_there(object_store, monkeypatch):
    sink = text_sink(object_store.uri("out"))
    complete = s3_objects.S3Objects.complete_upload

    def lost(*arguments):
        complete(*arguments)
        raise OSError("the connection was closed")

    monkeypatch.setattr(s3_objects.S3Objects, "complete_upload", lost)
    sink.create_committer().commit(written(sink, ["a"]).prepare_commit())
    assert object_store.lines("out") == ["a"]


def test_the_object_of_another_run_is_never_written_over(each_store):
    """In BATCH mode runs with the same id give the same names."""
    first = text_sink(each_store.uri("out"))
    first.create_committer().commit(written(first, ["first"], is_batch=True).prepare_commit())
    second = text_sink(each_store.uri("out"))
    prepared = written(second, ["second"], is_batch=True).prepare_commit()
    with pytest.raises(ExternalError, match=r"exists already.*fixed-job-id.*its own id"):
        second.create_committer().commit(prepared)
    assert each_store.lines("out") == ["first"]


def test_close_drops_what_was_not_prepared_and_keeps_what_was(object_store):
    sink = text_sink(object_store.uri("out"))
    writer = written(sink, ["x" * 9 * MIB])
    assert len(object_store.uploads()) <= 1, "its first part may be under way"
    writer.close()
    assert object_store.uploads() == []
    writer = written(sink, ["a"])
    writer.prepare_checkpoint(1)
    writer.close()
    assert len(object_store.uploads()) == 1


def test_a_new_attempt_drops_what_nobody_will_commit(object_store):
    """Checkpoint 1 is restored: what was prepared for it stays, what was begun behind it goes, and so does nothing of others."""
    uri = object_store.uri("out")
    sink = text_sink(uri)
    first = written(sink, ["covered"])
    covered = first.prepare_checkpoint(1)
    first.write(RowBatch(["for checkpoint 2"]), 0)
    first.prepare_checkpoint(2)
    first.write(RowBatch(["x" * 9 * MIB]), 0)
    assert all(one.result() for part in first._open.values() for one in part.output._sent)
    others = [
        written(sink, ["another subtask"], subtask=1),
        written(sink, ["another job"], job="job-2."),
        written(text_sink(uri), ["another sink"], operator_id="second"),
    ]
    for one in others:
        one.prepare_checkpoint(9)
    assert len(object_store.uploads()) == 6
    again = context(attempt=1, restored=1)
    object.__setattr__(again, "parallelism", 2)
    sink.create_writer(again)
    assert len(object_store.uploads()) == 4
    sink.create_committer().commit(covered)
    assert object_store.lines("out") == ["covered"]
    assert len(object_store.uploads()) == 3


def test_an_abort_drops_what_batch_attempts_left_and_nothing_that_a_checkpoint_may_have(
    object_store,
):
    sink = text_sink(object_store.uri("out"))
    for attempt in range(2):
        written(sink, ["a"], is_batch=True, attempt=attempt).prepare_commit()
    written(sink, ["b"]).prepare_checkpoint(1)
    other = written(sink, ["c"], is_batch=True, operator_id="second").prepare_commit()
    committer = sink.create_committer()
    committer.operator_id = "sink"
    committer.abort("job-2.")
    assert len(object_store.uploads()) == 4
    committer.abort("job-1.")
    assert len(object_store.uploads()) == 2
    sink.create_committer().commit(other)
    assert object_store.lines("out") == ["c"]


def test_of_rival_attempts_the_committed_one_is_there(object_store):
    sink = text_sink(object_store.uri("out"))
    loser, winner = (written(sink, [name], is_batch=True) for name in ("loser", "winner"))
    loser.prepare_commit()
    sink.create_committer().commit(winner.prepare_commit())
    assert object_store.lines("out") == ["winner"]


def test_every_restart_and_commit_gives_each_record_once(each_store):
    numbers = itertools.count()

    def make():
        folder = f"kit{next(numbers)}"
        return text_sink(each_store.uri(folder)), lambda: each_store.lines(folder)

    check_sink(make, parallelisms=(2,), most_points=5).require(DeliveryGuarantee.EXACTLY_ONCE)


def test_every_restart_gives_each_record_once_with_compaction(object_store):
    """Parts that wait are hidden objects, which the commit renames."""
    numbers = itertools.count()
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()

    def make():
        folder = f"compacted{next(numbers)}"
        sink = text_sink(
            object_store.uri(folder),
            enable_compact=(strategy, FileCompactor.concat_file_compactor()),
        )
        sink.validate()
        return sink, lambda: object_store.lines(folder)

    check_sink(make, parallelisms=(2,), most_points=5).require(DeliveryGuarantee.EXACTLY_ONCE)


def test_compacted_parts_leave_no_hidden_objects(each_store):
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()
    compactor = FileCompactor.concat_file_compactor(b"--\n")
    sink = text_sink(each_store.uri("out"), enable_compact=(strategy, compactor))
    writer = sink.create_writer(context())
    for number, value in enumerate("ab", 1):
        writer.write(RowBatch([value]), 0)
        sink.create_committer().commit(writer.prepare_checkpoint(number))
    (key,) = each_store.objects()
    assert key.startswith("out/compacted-part-")
    assert each_store.read(key) == b"a\n--\nb\n"


ROW = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])
AVRO = AvroSchema.parse_string(
    '{"type": "record", "name": "A", "fields": [{"name": "n", "type": "long"}, '
    '{"name": "s", "type": "string"}]}'
)


@pytest.mark.parametrize("kind", ["parquet", "orc", "csv", "avro"])
def test_bulk_formats_are_read_as_they_were_written(each_store, kind):
    pairs = [(n, f"s{n}") for n in range(1000)]
    schema = CsvSchema.builder().add_number_column("n").add_string_column("s").build()
    factory = {
        "parquet": ParquetBulkWriters.for_row_type(ROW),
        "orc": OrcBulkWriters.for_row_type(ROW),
        "csv": CsvBulkWriters.for_schema(schema),
        "avro": AvroBulkWriters.for_generic_record(AVRO),
    }[kind]
    names = OutputFileConfig.builder().with_part_suffix(f".{kind}.gz").build()
    builder = FileSink.for_bulk_format(each_store.uri("out"), factory)
    sink = builder.with_bucket_assigner(BASE).with_output_file_config(names).build()
    writer = sink.create_writer(context())
    data = pa.RecordBatch.from_pydict({"n": [n for n, _ in pairs], "s": [s for _, s in pairs]})
    rows = [{"n": n, "s": s} if kind == "avro" else Row(n=n, s=s) for n, s in pairs]
    is_columns = kind in {"parquet", "orc"}
    writer.write(ColumnBatch(data) if is_columns else RowBatch(rows), 0)
    sink.create_committer().commit(writer.prepare_checkpoint(1))
    (key,) = each_store.objects()
    raw = each_store.read(key)
    assert writer.sent.bytes == len(raw)
    if is_columns:
        reader = pq.read_table if kind == "parquet" else __import__("pyarrow.orc").orc.read_table
        assert reader(pa.BufferReader(raw)).to_pylist() == data.to_pylist()
    elif kind == "csv":
        assert raw.decode().splitlines() == [f"{n},{s}" for n, s in pairs]
    if kind in {"parquet", "avro"}:
        form = ParquetFormat() if kind == "parquet" else AvroFormat(AVRO)
        source = FileSource.for_record_stream_format(form, each_store.uri("out")).build()
        assert [(one["n"], one["s"]) for one in all_values(run_source(source))] == pairs


def test_what_a_sink_wrote_a_source_reads_while_another_attempt_writes(each_store):
    sink = text_sink(each_store.uri("out"))
    sink.create_committer().commit(written(sink, ["done"]).prepare_checkpoint(1))
    pending = written(sink, ["not yet"], job="job-2.")
    pending.prepare_checkpoint(1)
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), each_store.uri("out")
    )
    assert all_values(run_source(source.build())) == ["done"]


def test_a_server_that_lists_no_uploads_fails_no_job(other_server, caplog):
    server = f"scheme=http&region=us-east-1&endpoint_override={quote(other_server)}"
    uri = f"s3://S3RVER:S3RVER@bucket/out?{server}"
    text_sink(uri).create_writer(context(attempt=1)).close()
    assert "uploads=KEPT" in caplog.text
    assert "S3RVER" not in caplog.text


def test_a_part_that_cannot_be_sent_fails_the_task_and_leaves_nothing(object_store, monkeypatch):
    sink = text_sink(object_store.uri("out"))
    writer = written(sink, ["x" * 9 * MIB])

    def refuse(*_):
        raise OSError("cannot write part 2: no network")

    monkeypatch.setattr(s3_objects.S3Objects, "send_part", refuse)
    with pytest.raises(ExternalError, match="FileSink: cannot write part 2: no network"):
        writer.prepare_checkpoint(1)
    writer.close()
    assert object_store.uploads() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("s3://bucket", "s3://no-such-bucket"), r"'s3://no-such-bucket/out': .*NoSuchBucket"),
        (("s3://bucket/out", "s3://"), "names no bucket"),
        (("scheme=http&", "tls_verify_certificates=false&scheme=http&"), "boto3 does not take"),
        (("region=us-east-1", "region=us-east-1&endpoint_override=127.0.0.1%3A1"), "connect"),
    ],
)
def test_what_cannot_be_written_is_said_at_submit_in_a_line(object_store, change, said):
    uri = object_store.uri("out").replace(*change)
    with pytest.raises(ConfigurationError, match=said) as raised:
        text_sink(uri).validate()
    assert "\n" not in str(raised.value)


def test_missing_credentials_are_said_at_submit(object_store, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    s3_objects._client.cache_clear()
    try:
        with pytest.raises(
            ConfigurationError,
            match=r"Unable to locate credentials\. Credentials come from AWS_ACC",
        ):
            text_sink(object_store.uri("out")).validate()
    finally:
        s3_objects._client.cache_clear()


def test_without_boto3_it_says_what_to_install(object_store, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(ConfigurationError, match=r"needs the package 'boto3'.*penstock\[s3\]"):
        text_sink(object_store.uri("out")).validate()


def test_the_older_sink_refuses_object_stores(object_store):
    sink = StreamingFileSink.for_row_format(
        object_store.uri("out"), Encoder.simple_string_encoder()
    ).build()
    with pytest.raises(ConfigurationError, match="local and mounted directories only.*FileSink"):
        sink.validate()


def test_a_checkpoint_of_a_sink_that_compacts_needs_such_a_sink(object_store):
    strategy = FileCompactStrategy.builder().set_size_threshold(0).build()
    compacting = text_sink(
        object_store.uri("out"),
        enable_compact=(strategy, FileCompactor.concat_file_compactor()),
    )
    prepared = written(compacting, ["a"]).prepare_checkpoint(1)
    with pytest.raises(ExternalError, match="with enable_compact wrote"):
        text_sink(object_store.uri("out")).create_committer().commit(prepared)
    compacting.create_committer().commit(prepared)
    assert object_store.lines("out") == ["a"]
