"""Options of keyed state.

Does not know their readers. Source: Flink StateBackendOptions, RocksDBOptions. Differs: `penstock.*` keys are
Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, size, text


class StateBackendOptions(OptionGroup, title="Keyed state"):
    """Where keyed state is stored."""

    TYPE: Final = text(
        "state.backend.type",
        "hashmap",
        (
            "Keyed state: `hashmap` (objects in memory) or `rocksdb` (on the disks of the "
            "TaskManagers; needs the package rocksdict)."
        ),
        former_keys=("state.backend",),
    )
    ROCKSDB_TIMERS: Final = text(
        "state.backend.rocksdb.timer-service.factory",
        "ROCKSDB",
        (
            "Timers with RocksDB: `ROCKSDB` (on disk, with the state) or `HEAP` (in memory: "
            "faster, as long as they fit)."
        ),
    )
    ROCKSDB_MEMORY_PER_SLOT: Final = size(
        "state.backend.rocksdb.memory.fixed-per-slot",
        "128 mb",
        "Block cache and write buffers of all RocksDBs of a slot.",
    )
