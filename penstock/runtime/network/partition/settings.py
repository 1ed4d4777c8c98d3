"""How blocking results are kept. Plain data.

Source: Flink NettyShuffleEnvironmentOptions; keys and defaults stand in `model/options/network.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.model.options.network import BlockingShuffleOptions, NetworkMemoryOptions
from penstock.model.options.option import Option
from penstock.runtime.network.network_memory import SEGMENT_BYTES
from penstock.runtime.network.partition.bounded_data import (
    BoundedData,
    FileData,
    MappedFileData,
    MemoryMappedData,
)
from penstock.runtime.network.partition.buffer_builder import SortMerge
from penstock.runtime.network.partition.compression import BufferCompressor

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
    in a file; a reader of kind `file` has two of them in memory. Results with at least `sort_min_parallelism` subpartitions are
    sort-merge, whichever the kind; each of them gathers `sort_min_buffers` segments of `segment_bytes`, or more, in memory.
    """

    kind: str = "file"
    codec: str | None = "LZ4"
    tmp_dirs: tuple[str, ...] = ()
    buffer_bytes: int = _LEAST_BUFFER
    sort_min_parallelism: int = 1
    sort_min_buffers: int = 512
    segment_bytes: int = SEGMENT_BYTES

    def make_data(self, path: str) -> BoundedData:
        """Raises: ResultWriteError: the file cannot be made."""
        return _KINDS[self.kind](path)

    def sort_merge(self, new_path: Callable[[], str]) -> SortMerge:
        """`new_path`: gives the path of a new file."""
        return SortMerge(
            new_path, self.sort_min_parallelism, self.sort_min_buffers, self.segment_bytes
        )

    def make_compressor(self) -> BufferCompressor | None:
        return None if self.codec is None else BufferCompressor(self.codec)


def blocking_settings_of(settings: Settings) -> BlockingSettings:
    """The settings from the options. Raises: ConfigurationError: an unknown kind or codec, a number below 1."""
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
    segment_bytes = settings.get(NetworkMemoryOptions.SEGMENT_SIZE)
    return BlockingSettings(
        kind,
        codec,
        _directories(settings.get(BlockingShuffleOptions.TMP_DIRS)),
        max(segment_bytes, _LEAST_BUFFER),
        _at_least_one(settings, BlockingShuffleOptions.SORT_MIN_PARALLELISM),
        _at_least_one(settings, BlockingShuffleOptions.SORT_MIN_BUFFERS),
        segment_bytes,
    )


def _at_least_one(settings: Settings, option: Option[int]) -> int:
    value = settings.get(option)
    if value < 1:
        raise ConfigurationError(
            f"option '{option.key}' is {value}, but it takes at least 1. Change the setting."
        )
    return value


def _directories(text: str | None) -> tuple[str, ...]:
    """The directories, separated by a comma, a bar, or the path separator of this system."""
    parts = re.split(rf"[,|{re.escape(os.pathsep)}]", text or "")
    return tuple(part.strip() for part in parts if part.strip())
