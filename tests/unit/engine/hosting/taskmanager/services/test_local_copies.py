"""Local recovery. Expectations: docs/spec/checkpoints.md#local-recovery-and-shared-files."""

import zlib
from itertools import count

import pytest

from penstock.engine.hosting.taskmanager.services.local_copies import LocalCopies, Owner
from penstock.engine.model.checkpoints import FileHandle
from penstock.engine.model.ids import AllocationId, ExecutionVertexId, VertexId
from tests.tools.output_files import files_below
from tests.tools.permissions import open_to_others, umask
from tests.tools.programs.checkpoint_programs import (
    FailsOnce,
    HeldSource,
    Stage,
    Watcher,
    expected_sums,
    lines_of,
    restarting_environment,
    sums_to_file,
)

OWNER = Owner(AllocationId("a"), ExecutionVertexId(VertexId("v"), 0))
OTHER = Owner(AllocationId("b"), ExecutionVertexId(VertexId("v"), 1))


@pytest.fixture
def copies(tmp_path):
    names = count()
    return LocalCopies(lambda: str(tmp_path / f"{next(names)}"))


def put(copies, path, *pieces):
    handles, offset = [], 0
    for data in pieces:
        handles.append(FileHandle(path, offset, len(data), zlib.crc32(data)))
        copies.write(handles[-1], data)
        offset += len(data)
    return handles


def left(tmp_path):
    return len(list(tmp_path.iterdir()))


def test_what_was_written_is_read_piece_by_piece(copies):
    one, two = put(copies, "chk-1/x", b"first", b"second")
    assert (copies.read(one), copies.read(two)) == (b"first", b"second")
    assert copies.read(FileHandle("chk-1/y", 0, 1, 0)) is None


def test_a_damaged_or_truncated_copy_is_not_used(copies, tmp_path):
    one, two = put(copies, "chk-1/x", b"first", b"second")
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"First")
    assert (copies.read(one), copies.read(two)) == (None, None)


def test_a_copy_in_the_place_of_ours_is_not_used(copies, tmp_path):
    """Also if it is of the same length and checksum."""
    (one,) = put(copies, "chk-1/x", b"first")
    (file,) = tmp_path.iterdir()
    (tmp_path / "other").write_bytes(b"first")
    (tmp_path / "other").replace(file)
    assert copies.read(one) is None
    copies.write(FileHandle("chk-1/x", 5, 6, 0), b"second")
    assert file.read_bytes() == b"first"


def test_copies_are_this_users_alone(copies, tmp_path):
    with umask(0):
        put(copies, "chk-1/x", b"first", b"second")
    assert left(tmp_path) == 1
    assert open_to_others(tmp_path) == {}


def test_a_copy_stays_while_a_checkpoint_may_be_begun_with(copies, tmp_path):
    first, second = put(copies, "chk-1/x", b"1"), put(copies, "chk-2/x", b"2")
    copies.keep(OWNER, 1, first)
    copies.keep(OWNER, 2, second)
    copies.forget(OTHER, lambda one: True)
    assert left(tmp_path) == 2
    copies.forget(OWNER, lambda one: one < 2)
    assert (copies.read(*first), copies.read(*second)) == (None, b"2")
    copies.release(OWNER.allocation_id)
    assert left(tmp_path) == 0


def test_a_shared_file_stays_as_long_as_a_later_checkpoint_has_it(copies, tmp_path):
    shared = put(copies, "shared/1-x", b"table")
    copies.keep(OWNER, 1, shared)
    copies.keep(OWNER, 2, shared)
    copies.forget(OWNER, lambda one: one < 2)
    assert copies.read(*shared) == b"table"
    copies.forget(OWNER, lambda one: one < 3)
    assert left(tmp_path) == 0


def test_what_is_abandoned_goes_unless_another_snapshot_has_it(copies, tmp_path):
    lost, kept = put(copies, "chk-1/x", b"1"), put(copies, "shared/1-x", b"2")
    copies.keep(OWNER, 1, kept)
    copies.abandon(["chk-1/x", "shared/1-x", "unknown"])
    assert (copies.read(*lost), copies.read(*kept)) == (None, b"2")
    assert left(tmp_path) == 1


def test_without_a_disk_there_are_no_copies_and_no_errors():
    def full():
        raise OSError("the disk is full")

    copies = LocalCopies(full)
    (handle,) = put(copies, "chk-1/x", b"1")
    copies.keep(OWNER, 1, [handle])
    assert copies.read(handle) is None


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_task_that_starts_again_in_its_slot_reads_nothing_from_afar(
    tmp_path, request, backend, is_local
):
    stage = Stage(request.node.name)
    watcher = Watcher(stage, opens_after=2)
    (tmp_path / "io").mkdir()
    env = restarting_environment(
        watcher,
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        execution__checkpointing__incremental="true",
        execution__checkpointing__data_inline_threshold="0 kb",
        execution__state_recovery__from_local=str(is_local),
        state__backend__type=backend,
        io__tmp__dirs=str(tmp_path / "io"),
    )
    source = HeldSource(stage.name, splits=3, count=40, hold=20)
    sums_to_file(env, tmp_path / "out", source, FailsOnce(stage.name, 30))
    client = env.execute_async("sums")
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(3, 40)
    metrics = [io for _, _, io in client.get_task_metrics().result()]
    local = sum(io.restored_local_bytes for io in metrics)
    remote = sum(io.restored_remote_bytes for io in metrics)
    assert (local > 0, remote > 0) == (is_local, not is_local)
    assert not files_below(tmp_path / "io")
