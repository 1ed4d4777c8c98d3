"""Which keyed state backend a job's operators have. Plain data. Source: Flink StateBackendOptions, RocksDBOptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import StateBackendOptions

_TYPE: Final = StateBackendOptions.TYPE
_MEMORY: Final = StateBackendOptions.ROCKSDB_MEMORY_PER_SLOT
_TIMERS: Final = StateBackendOptions.ROCKSDB_TIMERS
_LEAST_MEMORY: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class StateBackendSettings:
    """`rocks_memory_bytes`: block cache and write buffers of all databases of a slot. `has_rocks_timers`: timers
    are in RocksDB too.
    """

    is_rocks: bool = False
    rocks_memory_bytes: int = 128 << 20
    has_rocks_timers: bool = True


def state_backend_settings_of(settings: Settings) -> StateBackendSettings:
    """The settings from the options. Raises: ConfigurationError: an unknown backend, or too little memory for it."""
    kind = settings.get(_TYPE).lower()
    if kind not in ("hashmap", "rocksdb"):
        raise ConfigurationError(
            f"option '{_TYPE.key}' is {kind!r}, but it takes 'hashmap' (keyed state in memory) or 'rocksdb' (on the "
            "TaskManagers' disks). Change it."
        )
    memory = settings.get(_MEMORY)
    if memory < _LEAST_MEMORY:
        raise ConfigurationError(
            f"option '{_MEMORY.key}' is {memory:,} bytes, but RocksDB needs {_LEAST_MEMORY:,} at least. Change it."
        )
    timers = settings.get(_TIMERS).upper()
    if timers not in ("ROCKSDB", "HEAP"):
        raise ConfigurationError(
            f"option '{_TIMERS.key}' is {timers!r}, but it takes 'ROCKSDB' (timers on disk, with the state) or 'HEAP' (in "
            "memory). Change it."
        )
    return StateBackendSettings(kind == "rocksdb", memory, timers == "ROCKSDB")
