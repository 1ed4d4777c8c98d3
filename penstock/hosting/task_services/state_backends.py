"""Makes keyed state backends on a TaskManager: of the kind that the job has, with what the tasks of a slot share.

Source: Flink StateBackendLoader, RocksDBSharedResources.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable

from penstock.hosting.shipping.pickling import dumps_records, loads_records
from penstock.hosting.task_services.io_directories import IoDirectories
from penstock.model.ids import AllocationId
from penstock.runtime.state.checked import CheckedKeyedStateBackend
from penstock.runtime.state.contract import MakeKeyedStateBackend
from penstock.runtime.state.heap import HeapKeyedStateBackend
from penstock.runtime.state.rocks.backend import RocksKeyedStateBackend, RocksSettings
from penstock.runtime.state.rocks.database import SlotMemory, slot_memory
from penstock.runtime.state.settings import StateBackendSettings


class StateBackends:
    """Of a TaskManager. Any thread."""

    def __init__(self, settings: StateBackendSettings, directories: IoDirectories) -> None:
        self._settings = settings
        self._directories = directories
        self._lock = threading.Lock()
        self._memories: weakref.WeakValueDictionary[AllocationId, SlotMemory] = (
            weakref.WeakValueDictionary()
        )

    def of_slot(
        self, allocation_id: AllocationId, check: Callable[[], None] | None = None
    ) -> MakeKeyedStateBackend:
        """`check`: called whenever state on the heap is touched.

        Raises: UserError: the backend's package is missing on this machine.
        """
        if not self._settings.is_rocks:
            if check is None:
                return HeapKeyedStateBackend
            return functools.partial(CheckedKeyedStateBackend, check=check)
        settings = RocksSettings(
            self._directories.new_path,
            self._memory_of(allocation_id),
            dumps_records,
            loads_records,
            threading.Lock,
            self._settings.has_rocks_timers,
        )
        return functools.partial(RocksKeyedStateBackend, settings=settings)

    def _memory_of(self, allocation_id: AllocationId) -> SlotMemory:
        """Lives as long as a database that uses it."""
        with self._lock:
            memory = self._memories.get(allocation_id)
            if memory is None:
                memory = slot_memory(self._settings.rocks_memory_bytes)
                self._memories[allocation_id] = memory
            return memory
