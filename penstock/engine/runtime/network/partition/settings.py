"""How blocking results are kept. Plain data.

Source: Flink NettyShuffleEnvironmentOptions; keys and defaults stand in `engine/model/options/network.py`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.network import BlockingShuffleOptions, NetworkMemoryOptions
from penstock.engine.runtime.network.partition.bounded_data import (
    BoundedData,
    FileData,
    MappedFileData,
    MemoryMappedData,
)
from penstock.engine.runtime.network.partition.buffer_builder import BufferCompressor

_KINDS: dict[str, type[FileData | MappedFileData | MemoryMappedData]] = {
    "file": FileData,
    "mmap": MemoryMappedData,
    "auto": MappedFileData,
}
_LEAST_BUFFER = 256 << 10


@dataclass(frozen=True, slots=True)
class BlockingSettings:
    """How blocking results are stored. `kind`: file, mmap (mapped for writing and reading) or auto (written as a file, mapped
    for reading).

    `codec`: LZ4 or ZSTD; None: not compressed. `tmp_dirs`: empty for the system's. `buffer_bytes`: size of the buffers
    in a file; a reader of kind `file` has two of them in memory.
    """

    kind: str = "file"
    codec: str | None = "LZ4"
    tmp_dirs: tuple[str, ...] = ()
    buffer_bytes: int = _LEAST_BUFFER

    def make_data(self, path: str) -> BoundedData:
        """Raises: ResultWriteError: the file cannot be made."""
        return _KINDS[self.kind](path)

    def make_compressor(self) -> BufferCompressor | None:
        return None if self.codec is None else BufferCompressor(self.codec)


def blocking_settings_of(settings: Settings) -> BlockingSettings:
    """The settings from the options. Raises: ConfigurationError: an unknown kind or codec."""
    kind = settings.get(BlockingShuffleOptions.TYPE).lower()
    if kind not in _KINDS:
        raise ConfigurationError(
            f"option '{BlockingShuffleOptions.TYPE.key}' is {kind!r}, but it takes one of {', '.join(_KINDS)}. Change it."
        )
    is_compressed = settings.get(BlockingShuffleOptions.COMPRESSION_ENABLED)
    codec = settings.get(BlockingShuffleOptions.COMPRESSION_CODEC) if is_compressed else None
    if codec is not None:
        # Raises here, at submission, instead of on a TaskManager.
        BufferCompressor(codec)
    return BlockingSettings(
        kind,
        codec,
        _directories(settings.get(BlockingShuffleOptions.TMP_DIRS)),
        max(settings.get(NetworkMemoryOptions.SEGMENT_SIZE), _LEAST_BUFFER),
    )


def _directories(text: str | None) -> tuple[str, ...]:
    """The directories, separated by a comma, a bar, or the path separator of this system."""
    parts = re.split(rf"[,|{re.escape(os.pathsep)}]", text or "")
    return tuple(part.strip() for part in parts if part.strip())
