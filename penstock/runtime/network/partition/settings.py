"""How blocking results are kept. Plain data, JSON both ways.

Source: Flink NettyShuffleEnvironmentOptions; keys and defaults stand in `model/config_options.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.runtime.network.partition.bounded_data import (
    BoundedData,
    FileData,
    MappedFileData,
    MemoryMappedData,
)
from penstock.runtime.network.partition.compression import BufferCompressor

_TYPE = "taskmanager.network.blocking-shuffle.type"
_KINDS: dict[str, type[FileData | MappedFileData | MemoryMappedData]] = {
    "file": FileData,
    "mmap": MemoryMappedData,
    "auto": MappedFileData,
}
_LEAST_BUFFER = 256 << 10


@dataclass(frozen=True, slots=True)
class BlockingSettings:
    """`kind`: file, mmap (mapped for writing and reading) or auto (written as a file, mapped for reading).

    `codec`: LZ4 or ZSTD, None: not compressed. `tmp_dirs`: empty for the system's. `buffer_bytes`: of the buffers
    in a file; two of them are the memory of a reader of kind `file`.
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
    """Raises: ConfigurationError: a kind or a codec that there is not."""
    kind = str(settings.get_str(_TYPE)).lower()
    if kind not in _KINDS:
        raise ConfigurationError(
            f"option '{_TYPE}' is {kind!r}, but it takes one of {', '.join(_KINDS)}. Change it."
        )
    is_compressed = settings.get_bool("taskmanager.network.batch-shuffle.compression.enabled")
    codec = settings.get_str("taskmanager.network.compression.codec") if is_compressed else None
    if codec is not None:
        BufferCompressor(codec)  # refused here, not on a TaskManager
    segment_bytes = settings.get_int("taskmanager.memory.segment-size")
    return BlockingSettings(
        kind,
        codec,
        _directories(settings.get_str("io.tmp.dirs")),
        max(segment_bytes, _LEAST_BUFFER),
    )


def blocking_settings_from(told: Mapping[str, Any]) -> BlockingSettings:
    """Of what `dataclasses.asdict` made, perhaps after a way through JSON."""
    return BlockingSettings(**{**told, "tmp_dirs": tuple(told["tmp_dirs"])})


def _directories(text: str | None) -> tuple[str, ...]:
    """Separated by a comma, a bar, or what separates paths on this system."""
    parts = re.split(rf"[,|{re.escape(os.pathsep)}]", text or "")
    return tuple(part.strip() for part in parts if part.strip())
