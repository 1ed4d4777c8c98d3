"""Where checkpoints go, as objects: `env.get_checkpoint_config().set_checkpoint_storage(...)` sets their options.

Source: pyflink.datastream.checkpoint_storage; differs: they hold settings, and no Java object. Checkpoints are always files.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.common.configuration import Configuration
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import CheckpointOptions

_AS_CONFIGURED: Final = -1
_THRESHOLD: Final = 20 << 10
_WRITE_BUFFER: Final = 4 << 10


class CheckpointStorage:
    """The base of what says where checkpoints go."""

    _checkpoint_path: str | None = None

    def configure(self, configuration: Configuration) -> None:
        """Set the options of this storage. `set_checkpoint_storage` calls it.

        Raises:
            ConfigurationError: it has a setting that does not exist here.
        """
        if self._checkpoint_path is not None:
            configuration.set_string(CheckpointOptions.DIR.key, self._checkpoint_path)

    def get_savepoint_path(self) -> str | None:
        """Return the directory of savepoints: None, because no storage has one of its own."""
        return None


class JobManagerCheckpointStorage(CheckpointStorage):
    """Keeps checkpoints in the memory of the JobManager in Flink. Here they are files, and without a directory files of the driver.

    Args:
        checkpoint_path: `execution.checkpointing.dir`; None: as configured.
        max_state_size: the most bytes of one state. There is no such limit here.
    """

    DEFAULT_MAX_STATE_SIZE: Final = 5 << 20

    def __init__(
        self, checkpoint_path: str | None = None, max_state_size: int | None = None
    ) -> None:
        self._checkpoint_path = None if checkpoint_path is None else _tidy(checkpoint_path)
        self._max_state_size = max_state_size or self.DEFAULT_MAX_STATE_SIZE

    def configure(self, configuration: Configuration) -> None:
        """Set the directory.

        Raises:
            ConfigurationError: a largest state size is set.
        """
        if self._max_state_size != self.DEFAULT_MAX_STATE_SIZE:
            raise ConfigurationError(
                f"JobManagerCheckpointStorage has max_state_size={self._max_state_size}, but "
                "checkpoints are files here, and their size is not limited. Leave it out."
            )
        super().configure(configuration)

    def get_checkpoint_path(self) -> str | None:
        """Return the directory of checkpoints; None: as configured."""
        return self._checkpoint_path

    def get_max_state_size(self) -> int:
        """Return the most bytes of one state."""
        return self._max_state_size

    def __str__(self) -> str:
        return f"JobManagerCheckpointStorage(checkpoint path: {self._checkpoint_path})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Stores checkpoints as files.

    Args:
        checkpoint_path: `execution.checkpointing.dir`, which driver and executors share.
        file_state_size_threshold: state of fewer bytes is stored in the metadata
            (`execution.checkpointing.data-inline-threshold`), at most 1 MiB; None or -1: as configured.
        write_buffer_size: bytes of a writer's buffer. There is no such option here.
    """

    MAX_FILE_STATE_THRESHOLD: Final = 1 << 20

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = _AS_CONFIGURED,
    ) -> None:
        if checkpoint_path is None:
            raise ValueError("checkpoint_path must not be None")
        threshold = (
            _AS_CONFIGURED if file_state_size_threshold is None else file_state_size_threshold
        )
        if not _AS_CONFIGURED <= threshold <= self.MAX_FILE_STATE_THRESHOLD:
            raise ValueError(
                "file_state_size_threshold must be -1 (as configured) or in [0, "
                f"{self.MAX_FILE_STATE_THRESHOLD}] bytes, got {threshold}."
            )
        if write_buffer_size < _AS_CONFIGURED:
            raise ValueError(
                f"write_buffer_size must be -1 (as configured) or more, got {write_buffer_size}."
            )
        self._checkpoint_path = _tidy(checkpoint_path)
        self._threshold = threshold
        self._write_buffer = write_buffer_size

    def configure(self, configuration: Configuration) -> None:
        """Set directory and threshold.

        Raises:
            ConfigurationError: the size of the write buffer is set.
        """
        if self._write_buffer != _AS_CONFIGURED:
            raise ConfigurationError(
                f"FileSystemCheckpointStorage has write_buffer_size={self._write_buffer}, but "
                "the buffers of checkpoint files have no option here. Leave it out."
            )
        super().configure(configuration)
        if self._threshold != _AS_CONFIGURED:
            key = CheckpointOptions.DATA_INLINE_THRESHOLD.key
            configuration.set_string(key, f"{self._threshold} bytes")

    def get_checkpoint_path(self) -> str:
        """Return the directory of checkpoints."""
        assert self._checkpoint_path is not None
        return self._checkpoint_path

    def get_min_file_size_threshold(self) -> int:
        """Return the bytes below which state is stored in the metadata."""
        return _THRESHOLD if self._threshold == _AS_CONFIGURED else self._threshold

    def get_write_buffer_size(self) -> int:
        """Return the bytes of a writer's buffer."""
        return _WRITE_BUFFER if self._write_buffer == _AS_CONFIGURED else self._write_buffer

    def __str__(self) -> str:
        return f"FileSystemCheckpointStorage(checkpoint path: {self._checkpoint_path})"


class CustomCheckpointStorage(CheckpointStorage):
    """Wraps a Java object in PyFlink. It cannot be made here."""

    def __init__(self, j_custom_checkpoint_storage: Any) -> None:
        raise NotImplementedError(
            "CustomCheckpointStorage wraps a checkpoint storage in Java, which Penstock cannot "
            "run. Use FileSystemCheckpointStorage(path)."
        )


def _tidy(path: str) -> str:
    """The path without slashes at its end, as Flink shows it."""
    return path.rstrip("/") or path
