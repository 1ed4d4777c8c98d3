"""FileSource over the real protocol of S3: Arrow's client and a server of its own (moto)."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Duration, Row, Types
from penstock.connectors.file_system import StreamFormat
from penstock.connectors.files.source import FileSource
from penstock.engine.model.errors import ConfigurationError, RefusedForGood, UserCodeError
from penstock.engine.runtime.elements import RowBatch
from penstock.formats.avro import AvroBulkWriters, AvroFormat, AvroSchema
from penstock.formats.csv import CsvReaderFormat, CsvSchema
from penstock.formats.file_access import Address
from penstock.formats.parquet import AvroParquetReaders, ParquetFormat
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext, all_values, run_source

TEXT = StreamFormat.text_line_format()
SCHEMA = AvroSchema.parse_string(
    '{"type": "record", "name": "A", "fields": [{"name": "n", "type": "long"}]}'
)

CSV = CsvReaderFormat.for_schema(CsvSchema.builder().add_number_column("n").build())


def text_source(*uris, **settings):
    builder = FileSource.for_record_stream_format(TEXT, *uris)
    for name, value in settings.items():
        builder = getattr(builder, name)(value)
    return builder.build()


def read(source, parallelism=1):
    source.validate()
    return all_values(run_source(source, parallelism))


def test_lines_of_a_large_object_come_once_from_ranges_of_it(object_store):
    lines = [f"line {number}" for number in range(20_000)]
    object_store.write("in/large.txt", "\n".join(lines).encode())
    source = text_source(object_store.uri("in/large.txt"), set_split_size=10_000)
    assert sorted(read(source, 3)) == sorted(lines)


def test_all_below_a_prefix_is_read_but_what_is_hidden(object_store):
    for key in ("in/b", "in/deep/er/c", "in/.hidden", "in/_temporary/x", "in/.d/y", "inner"):
        object_store.write(key, f"{key}\n".encode())
    assert sorted(read(text_source(object_store.uri("in")))) == ["in/b", "in/deep/er/c"]


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("g/*.txt", ["g/1.txt"]),
        ("g/*/*.txt", ["g/x/2.txt", "g/y/3.txt"]),
        ("g/**/*.txt", ["g/1.txt", "g/x/2.txt", "g/y/3.txt", "g/y/z/4.txt"]),
        ("g/[xz]/*", ["g/x/2.txt"]),
        ("g/[!x]", ["g/y/3.txt", "g/y/z/4.txt"]),
        ("*/y", ["g/y/3.txt", "g/y/z/4.txt"]),
        ("g/?", []),
    ],
)
def test_a_glob_finds_objects_as_it_finds_files(object_store, tmp_path, glob, found):
    """As the same glob on a directory with the same files; but a '?' begins the query of an address."""
    keys = ["g/1.txt", "g/x/2.txt", "g/y/3.txt", "g/y/z/4.txt", "g/.h/5.txt", "g/y/.6.txt"]
    for key in keys:
        object_store.write(key, f"{key}\n".encode())
        os.makedirs((tmp_path / key).parent, exist_ok=True)
        (tmp_path / key).write_text(f"{key}\n")
    if found:
        assert sorted(read(text_source(f"{tmp_path}/{glob}"))) == found
        assert sorted(read(text_source(object_store.uri(glob)))) == found
    else:
        with pytest.raises(ConfigurationError):
            text_source(object_store.uri(glob)).validate()


def test_keys_with_any_signs_are_read(object_store):
    keys = ["odd/a b", "odd/50%", "odd/what?", "odd/n#1", "odd/ä=ö+x", "odd/[1]*"]
    for key in keys:
        object_store.write(key, f"{key}\n".encode())
    assert sorted(read(text_source(object_store.uri("odd")))) == sorted(keys)
    quoted = object_store.uri("odd/what%3F")
    assert read(text_source(quoted)) == ["odd/what?"]
    assert str(Address.of(quoted)) == quoted


def test_compressed_objects_are_unpacked(object_store):
    object_store.write("packed/a.txt.gz", gzip.compress(b"one\ntwo\n"))
    for name, codec in (("b.zst", "zstd"), ("c.lz4", "lz4")):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(name.encode())
        object_store.write(f"packed/{name}", sink.getvalue().to_pybytes())
    assert sorted(read(text_source(object_store.uri("packed")))) == ["b.zst", "c.lz4", "one", "two"]


def test_every_format_is_read_from_a_bucket(object_store, tmp_path):
    table = pa.table({"n": list(range(1000))})
    pq.write_table(table, tmp_path / "n.parquet", row_group_size=100)
    object_store.write("f/n.parquet", (tmp_path / "n.parquet").read_bytes())
    object_store.write("f/n.json", "".join(f'{{"n": {n}}}\n' for n in range(1000)).encode())
    object_store.write("f/n.csv", "".join(f"{n}\n" for n in range(1000)).encode())
    with (tmp_path / "n.avro").open("wb") as file:
        writer = AvroBulkWriters.for_generic_record(SCHEMA).create(file, None)
        for start in range(0, 1000, 100):
            writer.write(RowBatch([{"n": n} for n in range(start, start + 100)]))
        writer.finish()
    object_store.write("f/n.avro", (tmp_path / "n.avro").read_bytes())
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    formats = {
        "n.parquet": [ParquetFormat(), AvroParquetReaders.for_generic_record(SCHEMA)],
        "n.json": [StreamFormat.json_lines_format(row), StreamFormat.json_lines_format()],
        "n.csv": [CSV],
        "n.avro": [AvroFormat(SCHEMA)],
    }
    for name, some in formats.items():
        for form in some:
            uri = object_store.uri(f"f/{name}")
            source = FileSource.for_record_stream_format(form, uri).set_split_size(1000).build()
            values = read(source, 2)
            numbers = [one.n if isinstance(one, Row) else one["n"] for one in values]
            assert sorted(numbers) == [*range(1000)], form


def test_a_monitored_prefix_may_be_empty_and_its_objects_are_read_once(object_store):
    source = text_source(object_store.uri("later"), monitor_continuously=Duration.of_seconds(1))
    source.validate()
    context = FakeEnumeratorContext()
    enumerator = source.create_enumerator(context)
    enumerator.start()
    ((period_ms, discover),) = context.periodic
    assert (period_ms, enumerator.unassigned_splits()) == (1000, 0)
    object_store.write("later/a", b"1\n")
    discover()
    discover()
    assert enumerator.unassigned_splits() == 1
    state = enumerator.snapshot_state()
    assert state["seen"] == ["s3://bucket/later/a"]
    object_store.write("later/b", b"2\n")
    restored = source.restore_enumerator(FakeEnumeratorContext(), state)
    restored.start()
    assert restored.unassigned_splits() == 1
    restored._discover()
    assert restored.unassigned_splits() == 2


@pytest.fixture
def requests(monkeypatch):
    """What the server is asked for, as `GET /bucket/key`."""
    from werkzeug.serving import WSGIRequestHandler

    seen = []

    def log_request(self, code="-", size="-"):
        seen.append(f"{self.command} {self.path}")

    monkeypatch.setattr(WSGIRequestHandler, "log_request", log_request)
    return seen


@pytest.mark.parametrize(
    ("form", "data"),
    [
        (TEXT, b"1\n2\n"),
        (TEXT, gzip.compress(b"1\n2\n", mtime=0)),
        (StreamFormat.json_lines_format(Types.ROW_NAMED(["n"], [Types.INT()])), b'{"n": 1}\n'),
        (CSV, b"1\n2\n"),
    ],
    ids=["lines", "packed lines", "json", "csv"],
)
def test_a_small_object_is_two_requests(object_store, requests, form, data):
    """One of them is Arrow's, which asks for the size. There may be thousands of them."""
    for number in range(5):
        object_store.write(f"in/{number}", data)
    source = FileSource.for_record_stream_format(form, object_store.uri("in")).build()
    requests.clear()
    assert read(source)
    of_objects = sorted(one for one in requests if "/bucket/in/" in one)
    assert of_objects == sorted(
        f"{what} /bucket/in/{number}" for number in range(5) for what in ("GET", "HEAD")
    )


@pytest.mark.parametrize("is_monitoring", [False, True])
def test_an_object_that_cannot_be_named_is_told(object_store, is_monitoring):
    with object_store.client() as client:
        for key in ("in/a", "in//b"):
            client.put_object(Bucket="bucket", Key=key, Body=b"x")
    settings = {"monitor_continuously": Duration.of_seconds(1)} if is_monitoring else {}
    source = text_source(object_store.uri("in"), **settings)
    with pytest.raises(RefusedForGood, match=r"'s3://bucket/in//b' has an empty name"):
        source.create_enumerator(FakeEnumeratorContext()).start()
    with object_store.client() as client:
        client.delete_object(Bucket="bucket", Key="in//b")


def test_what_was_read_is_known_by_its_name_whatever_the_credentials(object_store):
    object_store.write("kept/a", b"1\n")
    uri = object_store.uri("kept")
    with_key = uri.replace("s3://", "s3://me:my%2Fsecret@")
    context = FakeEnumeratorContext()
    first = text_source(with_key, monitor_continuously=Duration.of_seconds(1))
    enumerator = first.create_enumerator(context)
    enumerator.start()
    state = enumerator.snapshot_state()
    assert "secret" not in json.dumps(state["seen"])
    second = text_source(uri, monitor_continuously=Duration.of_seconds(1))
    restored = second.restore_enumerator(FakeEnumeratorContext(), {**state, "splits": []})
    restored._discover()
    assert restored.unassigned_splits() == 0


@pytest.mark.long  # Arrow tries for six seconds, twice
def test_a_server_that_is_away_is_asked_again_when_it_monitors(object_store, caplog):
    gone = "s3://bucket/x?scheme=http&endpoint_override=127.0.0.1%3A1&region=us-east-1"
    source = text_source(gone, monitor_continuously=Duration.of_seconds(1))
    enumerator = source.create_enumerator(FakeEnumeratorContext())
    enumerator.start()
    assert "discovery=FAILED" in caplog.text
    with pytest.raises(
        ConfigurationError, match=r"cannot list 's3://bucket/x': .*endpoint_override"
    ):
        source.validate()


@pytest.mark.parametrize("is_monitoring", [False, True])
def test_a_bucket_that_is_not_there_is_said_at_submit(object_store, is_monitoring):
    uri = object_store.uri("x").replace("s3://bucket", "s3://no-such-bucket")
    builder = FileSource.for_record_stream_format(TEXT, uri)
    if is_monitoring:
        builder.monitor_continuously(Duration.of_seconds(1))
    with pytest.raises(ConfigurationError, match="no file at 's3://no-such-bucket/x'") as raised:
        builder.build().validate()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "data", "form"),
    [
        ("a.json", b"{", StreamFormat.json_lines_format()),
        ("a.csv", b"x\n", CSV),
        ("a.avro", b"no avro", AvroFormat(SCHEMA)),
        ("a.zip", b"PK\x03\x04", TEXT),
        ("a.deflate", b"x\x9c", TEXT),
    ],
)
def test_an_error_names_the_object_without_credentials(object_store, name, data, form):
    object_store.write(f"bad/{name}", data)
    uri = object_store.uri(f"bad/{name}").replace("s3://", "s3://me:my%2Fsecret@")
    source = FileSource.for_record_stream_format(form, uri).build()
    with pytest.raises((UserCodeError, RefusedForGood)) as raised:
        read(source)
    assert f"@bucket/bad/{name}" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_prefix_without_objects_is_said_at_submit(object_store):
    with pytest.raises(ConfigurationError, match="there is no file at 's3://bucket/none'"):
        text_source(object_store.uri("none")).validate()
