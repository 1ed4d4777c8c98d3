"""Keyed state backends of every kind, and the way of their snapshots through bytes."""

import pickle
import threading
import zlib
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from penstock.engine.model.checkpoints import InlineHandle, OperatorRestore
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from penstock.engine.runtime.state.rocks.backend import RocksKeyedStateBackend, RocksSettings
from penstock.engine.runtime.state.rocks.database import slot_memory
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.state.snapshot_reader import read_operator
from penstock.engine.runtime.state.snapshot_writer import write_operator

KINDS = ("heap", "rocks")
MEMORY = 8 << 20
GROUPS = 128


class Backends:
    """Makes backends of one kind; `clock`: the time in ms, for TTL."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.clock = [0]
        self._names = count()
        self._directory = directory
        self._memory = slot_memory(MEMORY) if kind == "rocks" else None
        self._stack = ExitStack()
        self.has_timers = True

    def new(self, *, is_int32: bool = False):
        return self.make(GROUPS, lambda: self.clock[0], is_int32=is_int32)

    def make(self, max_parallelism, now_ms, *, is_int32: bool):
        """As a job's operators are given it."""
        if self._memory is None:
            return HeapKeyedStateBackend(max_parallelism, now_ms, is_int32=is_int32)
        settings = RocksSettings(
            self._new_directory,
            self._memory,
            plain_dumps,
            pickle.loads,
            threading.Lock,
            self.has_timers,
        )
        made = RocksKeyedStateBackend(max_parallelism, now_ms, is_int32=is_int32, settings=settings)
        self._stack.callback(made.close)
        return made

    def close(self) -> None:
        self._stack.close()
        assert not list(self._directory.iterdir()), "databases are left behind"

    def _new_directory(self) -> str:
        return str(self._directory / f"db-{next(self._names)}")


def through_bytes(snapshot, groups=(0, GROUPS - 1)):
    """What a subtask of these key groups restores of a backend's snapshot, as another thread writes and reads it."""
    whole = OperatorSnapshot()
    whole.add("state", snapshot)
    whole.freeze(plain_dumps)
    written = write_operator(whole, _inline, plain_dumps, pickle.loads)
    whole.close(is_kept=True)
    restored = OperatorRestore(keyed=written.keyed)
    read = read_operator(restored, lambda handle: handle.data, groups, pickle.loads)
    return read.take("state/")


def _inline(data: bytes) -> InlineHandle:
    return InlineHandle(data, zlib.crc32(data))


class Average:
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]
