"""State backends as objects: `env.set_state_backend(...)` sets their options.

Source: pyflink.datastream.state_backend; differs: they hold settings, and no Java object. A setting that RocksDB does not have here is
kept, and refused when the backend is set.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.common.absent import absent
from penstock.common.configuration import Configuration
from penstock.connectors.former_names import OF_STATE_BACKENDS
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import CheckpointOptions, StateBackendOptions
from penstock.engine.model.setting_checks import check_kind, check_whole

TRANSFER_THREADS: Final = 4
"""Flink's default."""


class StateBackend:
    """The base of state backends."""

    def configure(self, configuration: Configuration) -> None:
        """Set the options of this backend. `env.set_state_backend` calls it.

        Raises:
            ConfigurationError: it has a setting that does not exist here.
        """
        raise NotImplementedError


class HashMapStateBackend(StateBackend):
    """Keeps keyed state as objects in memory: `state.backend.type: hashmap`."""

    def configure(self, configuration: Configuration) -> None:
        """Set the option."""
        configuration.set_string(StateBackendOptions.TYPE.key, "hashmap")

    def __str__(self) -> str:
        return "HashMapStateBackend"


class PredefinedOptions(Enum):
    """Settings of RocksDB for kinds of disks. Only DEFAULT can be used here."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend(StateBackend):
    """Keeps keyed state on the disks of the TaskManagers: `state.backend.type: rocksdb`.

    Args:
        enable_incremental_checkpointing: `execution.checkpointing.incremental`; None: as configured.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing not in (None, True, False):
            raise TypeError(
                "enable_incremental_checkpointing is True, False or None, got "
                f"{enable_incremental_checkpointing!r}."
            )
        self._is_incremental = enable_incremental_checkpointing
        self._storage_paths: list[str] = []
        self._predefined = PredefinedOptions.DEFAULT
        self._factory: str | None = None
        self._threads = TRANSFER_THREADS

    def configure(self, configuration: Configuration) -> None:
        """Set the options of RocksDB.

        Raises:
            ConfigurationError: directories, predefined options, a factory or a number of threads are set.
        """
        is_set = {
            "set_db_storage_paths": bool(self._storage_paths),
            "set_predefined_options": self._predefined is not PredefinedOptions.DEFAULT,
            "set_options": self._factory is not None,
            "set_number_of_transfer_threads": self._threads != TRANSFER_THREADS,
        }
        setters = [name for name, found in is_set.items() if found]
        if setters:
            raise ConfigurationError(
                f"EmbeddedRocksDBStateBackend: {' and '.join(setters)} set what RocksDB has no "
                "option for here. Leave the calls out. The options that there are: "
                f"{StateBackendOptions.ROCKSDB_MEMORY_PER_SLOT.key}, "
                f"{StateBackendOptions.ROCKSDB_TIMERS.key}, {CheckpointOptions.INCREMENTAL.key}."
            )
        configuration.set_string(StateBackendOptions.TYPE.key, "rocksdb")
        if self._is_incremental is not None:
            configuration.set_boolean(CheckpointOptions.INCREMENTAL.key, self._is_incremental)

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local directories of the databases; none: temporary ones of the TaskManager."""
        self._storage_paths = [_local_path(path) for path in paths if path is not None]

    def get_db_storage_paths(self) -> list[str]:
        """Return the local directories that are set."""
        return list(self._storage_paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Return whether the program has turned on incremental checkpoints with this backend."""
        return bool(self._is_incremental)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Set one of the settings for kinds of disks."""
        example = "PredefinedOptions.DEFAULT"
        check_kind("set_predefined_options", options, PredefinedOptions, example)
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        """Return what was set (DEFAULT: nothing)."""
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Set the name of the Java class that makes RocksDB's options."""
        self._factory = options_factory_class_name

    def get_options(self) -> str | None:
        """Return the name of that class; None: there is none."""
        return self._factory

    def get_number_of_transfer_threads(self) -> int:
        """Return the number of threads that copy files for snapshots."""
        return self._threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set the number of threads that copy files for snapshots."""
        check_whole("number of transfer threads", number_of_transfering_threads, 1)
        self._threads = number_of_transfering_threads

    def __str__(self) -> str:
        return "EmbeddedRocksDBStateBackend"


class CustomStateBackend(StateBackend):
    """Wraps a Java object in PyFlink. It cannot be made here."""

    def __init__(self, j_custom_state_backend: Any) -> None:
        raise NotImplementedError(
            "CustomStateBackend wraps a state backend in Java, which Penstock cannot run. Use "
            "HashMapStateBackend or EmbeddedRocksDBStateBackend."
        )


def _local_path(path: str) -> str:
    """The path of a directory without scheme, host and last slash, as Flink stores it."""
    parts = urlsplit(path)
    return (parts.path if parts.scheme else path).rstrip("/") or "/"


__getattr__ = absent(__name__, OF_STATE_BACKENDS)
