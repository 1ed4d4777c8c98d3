"""Makes keyed state backends on a TaskManager: of the job's kind, with memory that the tasks of a
slot share.

Source: Flink StateBackendLoader, RocksDBSharedResources.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from penstock.engine.hosting.os.interrupts import UninterruptibleLock
from penstock.engine.hosting.shipping.main_classes import unreadable_state
from penstock.engine.hosting.shipping.pickling import dumps_records, loads_state
from penstock.engine.hosting.taskmanager.services.io_directories import IoDirectories
from penstock.engine.model.errors import PenstockError
from penstock.engine.model.ids import AllocationId
from penstock.engine.runtime.state.contract import MakeKeyedStateBackend
from penstock.engine.runtime.state.heap import CheckedKeyedStateBackend, HeapKeyedStateBackend
from penstock.engine.runtime.state.rocks.backend import RocksKeyedStateBackend, RocksSettings
from penstock.engine.runtime.state.rocks.database import SlotMemory, slot_memory
from penstock.engine.runtime.state.settings import StateBackendSettings


class StateBackends:
    """The backends of a TaskManager. Any thread."""

    def __init__(self, settings: StateBackendSettings, directories: IoDirectories) -> None:
        self._settings = settings
        self._directories = directories
        self._lock = UninterruptibleLock()
        self._memories: weakref.WeakValueDictionary[AllocationId, SlotMemory] = (
            weakref.WeakValueDictionary()
        )

    def of_slot(
        self, allocation_id: AllocationId, check: Callable[[], None] | None = None
    ) -> MakeKeyedStateBackend:
        """Return the backend for tasks of a slot. `check`: called whenever state on the heap is
        used.

        Raises: UserError: the backend's package is missing on this machine.
        """
        if not self._settings.is_rocks:
            if check is None:
                return HeapKeyedStateBackend
            return functools.partial(CheckedKeyedStateBackend, check=check)
        settings = RocksSettings(
            self._directories.new_directory,
            self._memory_of(allocation_id),
            dumps_records,
            _loads_stored,
            UninterruptibleLock,
            self._settings.has_rocks_timers,
            self._directories.remove,
        )
        return functools.partial(RocksKeyedStateBackend, settings=settings)

    @property
    def memory_used(self) -> int:
        """Bytes that the databases of all slots use of their memory. Any thread."""
        with self._lock:
            memories = list(self._memories.values())
        return sum(int(memory.cache.get_usage()) for memory in memories)

    @property
    def memory_of_slot(self) -> int:
        """The most bytes that the databases of a slot use; 0: state is on the heap."""
        return self._settings.rocks_memory_bytes if self._settings.is_rocks else 0

    def _memory_of(self, allocation_id: AllocationId) -> SlotMemory:
        """Return the slot's shared memory. It lives as long as a database that uses it."""
        with self._lock:
            memory = self._memories.get(allocation_id)
            if memory is None:
                memory = slot_memory(self._settings.rocks_memory_bytes)
                self._memories[allocation_id] = memory
            return memory


def _loads_stored(data: bytes | bytearray | memoryview) -> Any:
    """Read a value of a database, which may be that of a checkpoint. Raises: UserError: it cannot be unpickled."""
    try:
        return loads_state(data)
    except PenstockError:
        raise
    except Exception as error:  # Classes of users may raise anything.
        raise unreadable_state("a value of the state in RocksDB", error) from error
