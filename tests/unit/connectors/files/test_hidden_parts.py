"""FileSource and FileSink on object stores that pyarrow.fs alone reaches: Azure's blobs and Google's, of servers of others."""

import itertools

import pytest
from pyarrow import fs

from penstock.common import Encoder
from penstock.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    StreamFormat,
)
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import check_sink
from tests.tools.connectors.played_by_hand import all_values, run_source, writer_context
from tests.tools.object_servers import azurite, google

pytestmark = pytest.mark.server

NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=["azure", "google"])
def server(request):
    made = azurite() if request.param == "azure" else google("container")
    with made as address:
        system, _ = fs.FileSystem.from_uri(address("container"))
        system.create_dir("container")
        yield address, system


KEPT = "_kept"


class Blobs:
    """A folder of its own. It has a file from the start: Arrow takes seconds to remove the last one of a folder from Azurite."""

    def __init__(self, address, system):
        self.folder = f"container/f{next(NUMBERS)}"
        self.uri = address(self.folder)
        self.system = system
        with system.open_output_stream(f"{self.folder}/{KEPT}") as stream:
            stream.write(b"kept")

    def names(self):
        selector = fs.FileSelector(self.folder, recursive=True, allow_not_found=True)
        found = [one.path for one in self.system.get_file_info(selector) if one.is_file]
        names = [path.removeprefix(f"{self.folder}/") for path in found]
        return sorted(name for name in names if name != KEPT)

    def lines(self):
        found = []
        for name in self.names():
            if not name.rpartition("/")[2].startswith("."):
                with self.system.open_input_file(f"{self.folder}/{name}") as file:
                    found += file.read().decode().splitlines()
        return found


@pytest.fixture
def blobs(server):
    return Blobs(*server)


def text_sink(uri, compacts=False):
    builder = FileSink.for_row_format(uri, Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    if compacts:
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()
        builder.enable_compact(strategy, FileCompactor.concat_file_compactor())
    return builder.build()


def test_a_part_has_a_hidden_name_until_its_commit(blobs):
    sink = text_sink(blobs.uri)
    sink.validate()
    assert blobs.names() == []
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a", "b"]), 0)
    prepared = writer.prepare_checkpoint(1)
    (hidden,) = blobs.names()
    assert hidden.startswith(".") and hidden.endswith(".c1.pending")
    writer.close()
    sink.create_committer().commit(prepared)
    sink.create_committer().commit(prepared)
    (name,) = blobs.names()
    assert name.startswith("part-")
    assert blobs.lines() == ["a", "b"]


def test_what_a_sink_wrote_a_source_reads(blobs):
    sink = text_sink(blobs.uri)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch([f"line {n}" for n in range(5000)]), 0)
    sink.create_committer().commit(writer.prepare_checkpoint(1))
    writer.write(RowBatch(["hidden"]), 0)
    writer.prepare_checkpoint(2)
    for uri in (blobs.uri, blobs.uri.replace("?", "/part-*?")):
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), uri)
        source = source.set_split_size(10_000).build()
        source.validate()
        assert sorted(all_values(run_source(source, 2))) == sorted(f"line {n}" for n in range(5000))


@pytest.mark.parametrize(
    ("server", "compacts"),
    [
        ("google", False),
        ("google", True),
        pytest.param(
            "azure", False, marks=pytest.mark.long
        ),  # Arrow waits seconds when it removes.
        pytest.param("azure", True, marks=pytest.mark.long),
    ],
    indirect=["server"],
)
def test_every_restart_and_commit_gives_each_record_once(server, compacts):
    def make():
        blobs = Blobs(*server)
        return text_sink(blobs.uri, compacts), blobs.lines

    report = check_sink(make, parallelisms=(1,), most_points=3)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


def test_a_copy_whose_original_was_not_yet_removed_counts_as_committed(blobs):
    """Where nothing can be renamed, a commit that dies in the middle leaves both."""
    sink = text_sink(blobs.uri)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    ((hidden, final, _),) = prepared = writer.prepare_checkpoint(1)
    blobs.system.copy_file(hidden, final)
    sink.create_committer().commit(prepared)
    assert blobs.lines() == ["a"]
    assert len(blobs.names()) == 1


def test_a_file_of_another_run_is_never_written_over(blobs):
    sink = text_sink(blobs.uri)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    ((_, final, _),) = prepared = writer.prepare_checkpoint(1)
    with blobs.system.open_output_stream(final) as stream:
        stream.write(b"b\n")
    with pytest.raises(ExternalError, match="was not written by this run"):
        sink.create_committer().commit(prepared)
    assert blobs.lines() == ["b"]


def test_a_part_that_is_gone_is_told(blobs):
    sink = text_sink(blobs.uri)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    prepared = writer.prepare_checkpoint(1)
    blobs.system.delete_file(f"{blobs.folder}/{blobs.names()[0]}")
    with pytest.raises(ExternalError, match="cannot be committed"):
        sink.create_committer().commit(prepared)


def test_a_container_that_is_not_there_is_said_at_submit(server):
    uri = server[0]("no-such-container/x")
    with pytest.raises(
        ConfigurationError, match="FileSink: cannot write to '(abfs|gs)://"
    ) as raised:
        text_sink(uri).validate()
    assert "\n" not in str(raised.value)
    assert server[0]("").rpartition("sig=")[2] not in str(raised.value)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), uri).build()
    with pytest.raises(ConfigurationError, match="no file at"):
        source.validate()
