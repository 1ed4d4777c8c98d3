"""Checkpoint storage: what is written is read back whole, or told by name; nothing half-written is ever taken for whole."""

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from penstock.engine.hosting.checkpoints import storage as storage_module
from penstock.engine.hosting.checkpoints.storage import (
    CheckpointStorage,
    decode_metadata,
    encode_metadata,
)
from penstock.engine.hosting.os.file_systems import (
    ArrowFiles,
    CheckpointDamaged,
    CheckpointIoError,
    LocalFiles,
    open_files,
)
from penstock.engine.model.checkpoints import (
    ChannelStateHandle,
    CheckpointType,
    CompletedCheckpoint,
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorCheckpoint,
    OperatorSubtaskState,
    RedistributionMode,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import JobId
from penstock.engine.model.key_types import KeyType
from penstock.engine.model.texts.type_texts import text_with_defaults
from penstock.engine.model.types import Types
from tests.tools.hosting.stored_checkpoints import JOB, LARGE, checkpoint, stored


@pytest.fixture
def storage(tmp_path):
    return CheckpointStorage(str(tmp_path / "checkpoints"), JOB)


def contents(storage, checkpoint):
    return [
        storage.read(handle)
        for operator in checkpoint.operators
        for state in operator.subtasks
        for handle in state.handles
    ]


# ---------------------------------------------------------------------- writing and reading


def test_small_state_lies_in_the_metadata_and_large_state_beside_it(storage):
    done = stored(storage, 3, b"small", LARGE, b"", LARGE[:2000])
    kinds = [type(one.handle) for one in done.operators[0].subtasks[0].keyed]
    assert kinds == [InlineHandle, FileHandle, InlineHandle, FileHandle]
    loaded = storage.load(done.location)
    assert loaded == done
    assert contents(storage, loaded) == [b"small", LARGE, b"", LARGE[:2000]]


def test_the_newest_checkpoint_is_the_one_to_begin_with(storage):
    for number in (1, 2, 10):
        stored(storage, number, LARGE)
    newest, damaged = storage.newest()
    assert newest.checkpoint_id == 10
    assert damaged == []


def test_without_any_there_is_none(storage):
    assert storage.newest() == (None, [])


def test_state_without_metadata_is_no_checkpoint(storage):
    stored(storage, 1, LARGE)
    writer = storage.writer(storage.folder_of(2), 0)
    writer.add(LARGE)
    writer.close()
    newest, damaged = storage.newest()
    assert (newest.checkpoint_id, damaged) == (1, [])


# ---------------------------------------------------------------------- damage


def damage_of(storage, path, change):
    path = Path(path)
    path.write_bytes(change(path.read_bytes()))
    newest, (text,) = storage.newest()
    assert newest.checkpoint_id == 1
    assert text.startswith("checkpoint 2: ")
    assert str(path) in text
    return text


def flipped(data):
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


@pytest.fixture
def two(storage):
    stored(storage, 1, LARGE)
    return stored(storage, 2, LARGE)


def state_file(checkpoint):
    return checkpoint.operators[0].subtasks[0].keyed[0].handle.path


def test_an_altered_state_file_is_named_and_the_checkpoint_before_is_used(storage, two):
    text = damage_of(storage, state_file(two), flipped)
    assert "altered" in text
    assert "checksum" in text


def test_a_truncated_state_file_is_named_and_the_checkpoint_before_is_used(storage, two):
    assert "too short" in damage_of(storage, state_file(two), lambda data: data[:-1])


def test_a_missing_state_file_is_named_and_the_checkpoint_before_is_used(storage, two):
    Path(state_file(two)).unlink()
    newest, (text,) = storage.newest()
    assert newest.checkpoint_id == 1
    assert f"{state_file(two)} is missing" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (flipped, "incomplete or altered"),
        (lambda data: data[:-1], "incomplete or altered"),
        (lambda data: data[:25], "incomplete"),
        (lambda _: b"", "not the metadata"),
        (lambda data: data.replace(b"CHECKPOINT\n\x00\x02", b"CHECKPOINT\n\x00\x09"), "version 9"),
    ],
)
def test_metadata_that_is_not_whole_is_named_and_not_used(storage, two, change, says):
    assert says in damage_of(storage, two.location, change)


# ---------------------------------------------------------------------- failures while writing


class Full:
    """A sink on a disk without room."""

    def write(self, data):
        raise CheckpointIoError("cannot write") from OSError(
            errno.ENOSPC, "No space left on device"
        )

    def close(self):
        """Nothing is open."""


def test_a_full_disk_fails_the_write_and_leaves_the_checkpoint_unfinished(storage, monkeypatch):
    stored(storage, 1, LARGE)
    monkeypatch.setattr(LocalFiles, "create", lambda _self, _path: Full())
    writer = storage.writer(storage.folder_of(2), 0)
    with pytest.raises(CheckpointIoError, match="cannot write"):
        writer.add(LARGE)
    writer.abandon()
    with pytest.raises(CheckpointIoError):
        storage.complete(checkpoint(2), storage.folder_of(2))
    assert storage.newest()[0].checkpoint_id == 1


def test_metadata_is_seen_whole_or_not_at_all(storage, monkeypatch):
    seen = []

    def rename(_self, source, target):
        seen.append((Path(source).exists(), Path(target).exists()))
        raise CheckpointIoError("the driver died here")

    monkeypatch.setattr(LocalFiles, "publish", rename)
    with pytest.raises(CheckpointIoError, match="died here"):
        stored(storage, 1, LARGE)
    assert seen == [(True, False)]
    assert storage.newest() == (None, [])


def test_an_abandoned_writer_leaves_no_file(storage):
    writer = storage.writer(storage.folder_of(1), 0)
    writer.add(LARGE)
    writer.abandon()
    assert list(Path(storage.folder_of(1)).iterdir()) == []


# ---------------------------------------------------------------------- removing


def test_a_discarded_checkpoint_leaves_nothing(storage, two):
    storage.discard(two)
    assert not Path(storage.folder_of(2)).exists()
    assert storage.newest()[0].checkpoint_id == 1


def test_a_sweep_removes_what_is_not_kept_and_says_so(storage, two):
    orphan = storage.writer(storage.folder_of(9), 0)
    orphan.add(b"orphan")
    orphan.close()
    assert storage.sweep(keep=[2]) == [storage.folder_of(1), storage.folder_of(9)]
    assert contents(storage, storage.newest()[0]) == [LARGE]
    assert storage.sweep(keep=[2]) == []


# ---------------------------------------------------------------------- places


def test_any_arrow_file_system_will_do(tmp_path):
    files = ArrowFiles(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    sink = files.create("a/b/file")
    sink.write(b"data")
    sink.close()
    files.publish("a/b/file", "a/b/other")
    assert list(files.list("a")) == [("b", True)]
    assert files.read("a/b/other", 1, 2) == b"at"
    with pytest.raises(CheckpointDamaged, match="missing"):
        files.read("a/b/file")
    with pytest.raises(CheckpointDamaged, match="too short"):
        files.read("a/b/other", 2, 9)
    files.remove("a")
    files.remove("a")
    assert list(files.list("a")) == []


@pytest.mark.parametrize("uri", ["/base/dir", "file:///base/dir", "file:/base/dir"])
def test_local_directories_are_told_as_path_or_uri(uri):
    files, path = open_files(uri)
    assert isinstance(files, LocalFiles)
    assert path == "/base/dir"


@pytest.mark.parametrize("uri", ["", "  ", "nonsense://x/y"])
def test_a_directory_that_cannot_be_is_a_configuration_error(uri):
    with pytest.raises(ConfigurationError, match="checkpoint"):
        open_files(uri)


@pytest.mark.parametrize("job_id", ["../other", "a/b", "..", ""])
def test_a_job_id_cannot_lead_out_of_the_directory(tmp_path, job_id):
    with pytest.raises(CheckpointIoError, match="cannot be the name of a folder"):
        CheckpointStorage(str(tmp_path), JobId(job_id))


def test_savepoints_get_a_folder_of_their_own_each_time(storage, tmp_path):
    first, second = (storage.new_savepoint(str(tmp_path / "saved")) for _ in range(2))
    assert first != second
    assert first.startswith(str(tmp_path / "saved" / "savepoint-job-1-"))


def test_every_write_of_a_checkpoint_goes_to_a_file_of_its_own(storage):
    paths = set()
    for _ in range(3):
        writer = storage.writer(storage.folder_of(1), 0)
        paths.add(writer.add(b"x").path)
        writer.close()
    assert len(paths) == 3


# ---------------------------------------------------------------------- metadata

HANDLES = st.one_of(
    st.binary(max_size=30).map(lambda data: InlineHandle(data, 1)),
    st.builds(FileHandle, st.text("abc/", min_size=1).map("/at/there/{}".format), st.integers(0, 2**40), st.integers(0, 9),
              st.integers(0, 2**32 - 1)),
)  # fmt: skip
OFFSETS = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
TYPES = st.sampled_from([
    text_with_defaults(one)
    for one in (Types.LONG(), Types.ROW_NAMED(["ü"], [Types.LIST(Types.INT())]))
])
SUBTASKS = st.one_of(
    st.none(),
    st.builds(
        OperatorSubtaskState,
        st.lists(st.builds(KeyedStateHandle, st.integers(0, 9), st.integers(0, 9), OFFSETS, HANDLES),
                 max_size=2).map(tuple),
        st.lists(st.builds(ListStateHandle, st.text(), st.sampled_from(RedistributionMode), OFFSETS,
                           HANDLES, st.none() | TYPES), max_size=2).map(tuple),
        st.lists(st.builds(ChannelStateHandle, st.integers(0, 3), st.integers(0, 3), HANDLES),
                 max_size=2).map(tuple),
        st.lists(st.builds(ChannelStateHandle, st.integers(0, 3), st.integers(0, 3), HANDLES),
                 max_size=2).map(tuple),
        keys=st.none() | st.builds(KeyType, TYPES, st.booleans(), st.text()),
    ),
)  # fmt: skip


@given(st.lists(SUBTASKS, max_size=3), st.one_of(st.none(), st.binary(max_size=9)), st.booleans())
def test_metadata_comes_back_as_it_was(subtasks, coordinator, is_finished):
    operator = OperatorCheckpoint("u", "ü", 3, 128, tuple(subtasks), is_finished, coordinator)
    whole = CompletedCheckpoint(5, JOB, CheckpointType.SAVEPOINT, -3, (operator,), "/at/there/m")
    for folder in ("", "/at/there"):
        assert decode_metadata(encode_metadata(whole, folder), "/at/there/m") == whole


def test_the_structure_of_metadata_is_plain_json(storage):
    data = encode_metadata(checkpoint(4, OperatorSubtaskState(), coordinator=b"splits"))
    start = data.index(b"{")
    assert json.loads(data[start : data.rindex(b"}") + 1])["checkpoint_id"] == 4
    assert storage_module.METADATA == "_metadata"
