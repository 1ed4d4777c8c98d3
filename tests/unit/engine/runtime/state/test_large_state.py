"""State and windows that are several times as large as the memory they are given, with RocksDB.
Source: docs/spec/state.md#backends.
"""

import hashlib
import os
import pickle
import zlib
from collections import Counter
from pathlib import Path

import pytest

from penstock.common import Duration
from penstock.engine.model.checkpoints import FileHandle, InlineHandle, OperatorRestore
from penstock.engine.runtime.elements import MAX_WATERMARK, RowBatch, Watermark
from penstock.engine.runtime.operators import ListContents
from penstock.engine.runtime.operators.keyed import restore_backend
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.contract import ValueStateDescriptor
from penstock.engine.runtime.state.snapshot import OperatorSnapshot, RestoredDatabase, Sharing
from penstock.engine.runtime.state.snapshot_reader import OtherParts, read_operator
from penstock.engine.runtime.state.snapshot_writer import write_operator
from penstock.engine.runtime.windowing import TumblingEventTimeWindows
from tests.tools.runtime.keyed_backends import GROUPS, Backends
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restored_subtasks import window

pytestmark = pytest.mark.slow

VALUE_BYTES = 1000
KEYS = 100_000
STATE_MIB = KEYS * VALUE_BYTES / (1 << 20)
MAY_GROW_MIB = STATE_MIB / 2
"""Cache and write buffers are 8 MB; the rest is what RocksDB and the allocator keep for themselves."""


def content(number):
    """Bytes that cannot be compressed, and can be made again."""
    return hashlib.shake_128(b"%d" % number).digest(VALUE_BYTES)


def resident_mib():
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Files:
    """Of checkpoints, outside of memory."""

    def __init__(self, folder):
        self.folder = folder
        self.sizes = []
        folder.mkdir()

    def write(self, data):
        path = self.folder / str(len(self.sizes))
        path.write_bytes(data)
        self.sizes.append(len(data))
        return FileHandle(str(path), 0, len(data), zlib.crc32(data))

    def read(self, handle):
        return handle.data if isinstance(handle, InlineHandle) else Path(handle.path).read_bytes()


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "files")


@pytest.fixture
def backends(tmp_path):
    (tmp_path / "databases").mkdir()
    made = Backends("rocks", tmp_path / "databases")
    yield made
    made.close()


def snapshot_of(backend, files, *, is_incremental):
    snapshot = OperatorSnapshot()
    snapshot.add("state", backend.snapshot())
    snapshot.freeze(plain_dumps)
    sharing = Sharing((0, GROUPS - 1), files.write, lambda handle: True)
    written = write_operator(
        snapshot, files.write, plain_dumps, pickle.loads, sharing if is_incremental else None
    )
    snapshot.close(is_kept=True)
    return written


def test_keyed_state_goes_through_checkpoints_without_being_in_memory(backends, files):
    before = resident_mib()
    backend = backends.new()
    state = backend.get_state(ValueStateDescriptor("v"))
    for key in range(KEYS):
        backend.set_key(key)
        state.update(content(key))
    # Else it might be done between the checkpoints, and the second have new files for that reason.
    backend.database.family("v").compact_range(None, None)
    first = snapshot_of(backend, files, is_incremental=True)
    assert first.size_bytes > KEYS * VALUE_BYTES
    written = len(files.sizes)
    for key in range(0, KEYS, 1000):
        backend.set_key(key)
        state.update(content(-key))
    second = snapshot_of(backend, files, is_incremental=True)
    assert sum(files.sizes[written:]) < first.size_bytes / 20 < second.size_bytes

    whole = snapshot_of(backend, files, is_incremental=False)
    backend.close()
    read = read_operator(
        OperatorRestore(whole.keyed),
        files.read,
        (0, GROUPS - 1),
        pickle.loads,
        OtherParts.READ_AGAIN,
    )
    again = backends.new()
    restore_backend(again, read, "state")
    state = again.get_state(ValueStateDescriptor("v"))
    for key in range(KEYS):
        again.set_key(key)
        assert state.value() == content(-key if key % 1000 == 0 else key)
    assert resident_mib() - before < MAY_GROW_MIB


def test_windows_hold_and_fire_what_is_larger_than_memory(backends):
    before = most = resident_mib()
    op = OperatorHarness(
        window(TumblingEventTimeWindows.of(Duration.of_millis(KEYS)), ListContents()),
        keyed_state=backends.make,
    )
    step = 500
    for first in range(0, KEYS, step):
        numbers = range(first, first + step)
        op.feed([(number % 5000, content(number)) for number in numbers], numbers)
    most = max(most, resident_mib())
    seen = Counter()
    for batch in op.operator.process_watermark(Watermark(MAX_WATERMARK), 0):
        if isinstance(batch, RowBatch):
            seen.update(zlib.crc32(value) % 1009 for _, value in batch.values)
            most = max(most, resident_mib())
    assert seen == Counter(zlib.crc32(content(number)) % 1009 for number in range(KEYS))
    op.operator.close()
    assert most - before < MAY_GROW_MIB


TIMERS = 400_000
TIMER_MIB = 200e-6
"""Of one in memory: a triple, a place in a dict and in a heap."""


@pytest.mark.long
def test_timers_need_not_be_in_memory(backends, files):
    before = resident_mib()
    backend = backends.new()
    queue = backend.timer_queue("timers/event")
    for number in range(TIMERS):
        queue.add(number * 7919 % TIMERS, number, None)
    written = snapshot_of(backend, files, is_incremental=True)
    again = backends.new()
    restored = OperatorSnapshot()
    restored.databases = [
        RestoredDatabase(one, (0, GROUPS - 1), files.read) for one in written.databases
    ]
    restore_backend(again, restored, "state")
    queue = again.timer_queue("timers/event")
    assert [queue.pop_due(TIMERS)[0] for _ in range(TIMERS)] == list(range(TIMERS))
    assert resident_mib() - before < TIMERS * TIMER_MIB / 2
