"""Compression of single buffers, each independent of the others. Source: Flink BufferCompressor, BufferDecompressor.

The first four bytes hold the uncompressed size.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from penstock.engine.model.errors import ConfigurationError, ResultDataLost
from penstock.engine.runtime.codecs.events import Part

_SIZE: Final = struct.Struct("=i")
_CODECS: Final = {"LZ4": "lz4_raw", "ZSTD": "zstd"}


class BufferCompressor:
    """`codec`: LZ4 or ZSTD."""

    def __init__(self, codec: str) -> None:
        """Raises: ConfigurationError: the codec is unknown, or not available in this pyarrow."""
        name = _CODECS.get(codec.upper())
        if name is None or not pa.Codec.is_available(name):
            raise ConfigurationError(
                f"option 'taskmanager.network.compression.codec' is {codec!r}, but it takes one of "
                f"{', '.join(_CODECS)}. Change it, or set "
                "'taskmanager.network.batch-shuffle.compression.enabled' to false."
            )
        self._codec = pa.Codec(name)

    def compress(self, data: Part) -> bytes | None:
        """The compressed buffer; None if it would not become smaller."""
        size = memoryview(data).nbytes
        packed: bytes = self._codec.compress(data, asbytes=True)
        return _SIZE.pack(size) + packed if len(packed) + _SIZE.size < size else None

    def decompress(self, data: Part) -> bytes:
        """The uncompressed buffer. Raises: ResultDataLost: it is damaged."""
        view = memoryview(data)
        try:
            size: int = _SIZE.unpack_from(view)[0]
            unpacked: bytes = self._codec.decompress(view[_SIZE.size :], size, asbytes=True)
        except (OSError, ValueError, struct.error) as error:
            raise ResultDataLost(f"a compressed buffer of a result is damaged: {error}") from error
        return unpacked
