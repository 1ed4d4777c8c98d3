"""Snapshots of RocksDB by files: what is shared, what a restored subtask takes. Source:
docs/spec/checkpoints.md#local-recovery-and-shared-files.
"""

import pickle
import zlib

import pytest

from penstock.engine.model.checkpoints import (
    DatabaseHandle,
    FileHandle,
    InlineHandle,
    OperatorRestore,
)
from penstock.engine.model.errors import UserError
from penstock.engine.model.types import Types
from penstock.engine.runtime.keys.hashing import key_group
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.contract import ListStateDescriptor, ValueStateDescriptor
from penstock.engine.runtime.state.migration import StateOwner
from penstock.engine.runtime.state.rocks.database import Database, slot_memory
from penstock.engine.runtime.state.rocks.restore import fetch
from penstock.engine.runtime.state.snapshot import OperatorSnapshot, RestoredDatabase, Sharing
from penstock.engine.runtime.state.snapshot_reader import OtherParts, read_operator
from penstock.engine.runtime.state.snapshot_writer import write_operator
from tests.tools.permissions import open_to_others, umask
from tests.tools.runtime.keyed_backends import GROUPS, MEMORY, Backends

ALL = (0, GROUPS - 1)


class Store:
    """Files by path; what was shared lies in a folder of that name."""

    def __init__(self) -> None:
        self.files = {}

    def add(self, data):
        return InlineHandle(data, zlib.crc32(data))

    def share(self, data):
        path = f"/job/shared/{len(self.files)}"
        self.files[path] = data
        return FileHandle(path, 0, len(data), zlib.crc32(data))

    def read(self, handle):
        return handle.data if isinstance(handle, InlineHandle) else self.files[handle.path]

    def write(self, backend, groups=ALL, *, is_kept=True, is_ours=lambda handle: True):
        snapshot = OperatorSnapshot()
        snapshot.add("state", backend.snapshot())
        snapshot.freeze(plain_dumps)
        sharing = Sharing(groups, self.share, is_ours)
        written = write_operator(snapshot, self.add, plain_dumps, pickle.loads, sharing)
        snapshot.close(is_kept=is_kept)
        return written

    def restore(self, backend, states, groups=ALL):
        databases = tuple(one for state in states for one in state.databases)
        restored = read_operator(
            OperatorRestore(databases=databases), self.read, groups, pickle.loads
        )
        backend.restore_databases(restored.take_databases("state/"))
        assert not restored


def shared_of(state):
    return {
        name: handle.path
        for one in state.databases
        for name, handle in one.files
        if isinstance(handle, FileHandle)
    }


@pytest.fixture
def backends(tmp_path):
    made = Backends("rocks", tmp_path)
    yield made
    made.close()


@pytest.fixture
def store():
    return Store()


def put(backend, keys, value):
    state = backend.get_state(ValueStateDescriptor("v"))
    for key in keys:
        backend.set_key(key)
        state.update(value)


def values(backend, keys):
    state = backend.get_state(ValueStateDescriptor("v"))
    found = {}
    for key in keys:
        backend.set_key(key)
        if state.value() is not None:
            found[key] = state.value()
    return found


def test_a_second_snapshot_writes_new_files_only(backends, store):
    backend = backends.new()
    put(backend, range(100), "first")
    first = shared_of(store.write(backend))
    put(backend, range(5), "second")
    second = shared_of(store.write(backend))
    assert first
    assert first.items() < second.items()
    assert len(store.files) == len(second)


def test_files_of_a_snapshot_that_is_not_kept_are_written_again(backends, store):
    backend = backends.new()
    put(backend, range(100), "first")
    lost = shared_of(store.write(backend, is_kept=False))
    again = shared_of(store.write(backend))
    assert lost.keys() == again.keys()
    assert not set(lost.values()) & set(again.values())


def test_a_backend_goes_on_from_the_files_and_shares_them(backends, store):
    backend = backends.new()
    put(backend, range(100), "first")
    written = store.write(backend)
    restored = backends.new()
    store.restore(restored, [written])
    assert values(restored, range(101)) == dict.fromkeys(range(100), "first")
    put(restored, [7], "changed")
    again = store.write(restored)
    assert shared_of(written).items() <= shared_of(again).items()


def test_files_of_another_job_are_not_referred_to(backends, store):
    backend = backends.new()
    put(backend, range(10), "first")
    written = store.write(backend)
    restored = backends.new()
    store.restore(restored, [written])
    again = store.write(restored, is_ours=lambda handle: False)
    assert not set(shared_of(written).values()) & set(shared_of(again).values())


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_two_subtasks_become_any_number(backends, store, parallelism):
    old = [(0, 63), (64, 127)]
    written = []
    for low, high in old:
        backend = backends.new()
        mine = [key for key in range(300) if low <= key_group(key, GROUPS) <= high]
        put(backend, mine, f"of {low}")
        elements = backend.get_list_state(ListStateDescriptor("l"))
        for key in mine:
            backend.set_key(key)
            elements.add_all([key, 1])
            elements.add(2)
        written.append(store.write(backend, (low, high)))
    seen = {}
    for index in range(parallelism):
        groups = (index * GROUPS // parallelism, (index + 1) * GROUPS // parallelism - 1)
        backend = backends.new()
        met = [
            s
            for s, (low, high) in zip(written, old, strict=True)
            if low <= groups[1] and high >= groups[0]
        ]
        store.restore(backend, met, groups)
        found = values(backend, range(300))
        assert all(groups[0] <= key_group(key, GROUPS) <= groups[1] for key in found)
        assert not seen.keys() & found.keys()
        seen |= found
        elements = backend.get_list_state(ListStateDescriptor("l"))
        for key in found:
            backend.set_key(key)
            elements.add(3)  # behind those that were restored, not over them
            assert elements.get() == [key, 1, 2, 3]
    assert len(seen) == 300
    assert set(seen.values()) == {"of 0", "of 64"}


def test_what_nobody_asked_for_since_it_was_restored_is_in_the_next_snapshot(backends, store):
    backend = backends.new()
    put(backend, range(100), "first")
    restored = backends.new()
    store.restore(restored, [store.write(backend)])
    again = backends.new()
    store.restore(again, [store.write(restored)])
    assert values(again, range(101)) == dict.fromkeys(range(100), "first")


def test_a_state_of_another_type_is_refused_when_files_were_restored(backends, store):
    backend = backends.new()
    backend.set_key(7)
    backend.get_state(ValueStateDescriptor("v", Types.LONG())).update(1)
    restored = backends.new()
    restored.owner = StateOwner("sums")
    store.restore(restored, [store.write(backend)])
    with pytest.raises(UserError, match=r"'sums' cannot restore its state 'v'.*Long.*String"):
        restored.get_state(ValueStateDescriptor("v", Types.STRING()))


def test_a_backend_without_a_state_leaves_no_files_of_its_snapshots(backends, tmp_path):
    backend = backends.new()
    assert backend.snapshot() == {}
    backend.close()
    assert list(tmp_path.iterdir()) == []


def test_rows_of_any_backend_are_restored_piece_by_piece(backends, store, tmp_path):
    """Not more than one chunk of the checkpoint is in memory at a time."""
    (tmp_path / "other").mkdir()
    heap = Backends("heap", tmp_path / "other").new()
    put(heap, range(5000), "x" * 1000)
    snapshot = OperatorSnapshot()
    snapshot.add("state", heap.snapshot())
    snapshot.freeze(plain_dumps)
    written = write_operator(snapshot, store.add, plain_dumps, pickle.loads)
    read = read_operator(
        OperatorRestore(written.keyed), store.read, ALL, pickle.loads, OtherParts.READ_AGAIN
    )
    assert not read.keyed
    rows = []
    restored = backends.new()
    for piece in read.take_in_pieces("state/"):
        rows.append(len(piece["v"].keys))
        restored.restore(piece)
    (tmp_path / "other").rmdir()
    assert len(rows) > 3
    assert sum(rows) == 5000
    assert max(rows) < 2500
    assert values(restored, range(5001)) == dict.fromkeys(range(5000), "x" * 1000)


def test_a_damaged_database_is_an_error_and_not_an_empty_one(tmp_path):
    memory = slot_memory(MEMORY)
    first = Database(str(tmp_path / "first"), memory)
    first.family("count")[b"key"] = b"value"
    first.checkpoint(str(tmp_path / "copy"))
    first.close()
    (manifest,) = (tmp_path / "copy").glob("MANIFEST-*")
    manifest.write_bytes(b"not what it was")
    with pytest.raises(Exception, match=r"(?i)corruption"):
        Database(str(tmp_path / "copy"), memory)


def test_files_that_are_fetched_are_this_users_alone(tmp_path):
    files = Store()
    handles = tuple((name, files.share(name.encode())) for name in ("1.sst", "CURRENT"))
    restored = RestoredDatabase(DatabaseHandle("", *ALL, handles), ALL, files.read)
    with umask(0):
        fetch(restored, str(tmp_path / "db"))
    assert (tmp_path / "db" / "CURRENT").read_bytes() == b"CURRENT"
    assert len(list((tmp_path / "db").iterdir())) == 2
    assert open_to_others(tmp_path) == {}
