"""The settings of a TaskManager for the data exchange between tasks. Plain data.

Source: Flink NettyShuffleEnvironmentConfiguration; keys and defaults stand in `engine/model/options/network.py`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.options.network import (
    BlockingShuffleOptions,
    ExchangeOptions,
    NetworkMemoryOptions,
    NetworkOptions,
)
from penstock.engine.runtime.network.partition.bounded_data import (
    BoundedData,
    FileData,
    MappedFileData,
    MemoryMappedData,
)
from penstock.engine.runtime.network.partition.buffer_builder import BufferCompressor

_MAX_REQUIRED_OF_BLOCKING = 1000
_LEAST_GATES = 128  # They must fit into the memory, even if gates would like more.


@dataclass(frozen=True, slots=True)
class DebloatSettings:
    """Times in ms; `threshold_percent`: smaller changes of a buffer's size are not announced."""

    is_enabled: bool = False
    period_ms: int = 200
    target_ms: int = 1000
    samples: int = 20
    threshold_percent: int = 25


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Sizes in bytes, times in ms, all others are numbers of buffers.

    `max_required_per_gate` None: depends on the type. `exclusive_per_gate`: the channels of a gate
    share this number of exclusive buffers evenly, if each then gets more than
    `buffers_per_channel`. With more credit a gate of few channels sends fewer credit messages, each
    of which wakes a thread. `in_flight_ms`: how long a task may take for the records that wait for
    it; 0: they are not counted.

    Example: 256 MiB hold 250 buffers of 1 MiB, which is about ten exchanges at full speed. Or they
    hold 8,000 buffers of 32 KiB, which is an all-to-all exchange of some 40 subtasks here with as
    many elsewhere. A Python TaskManager itself needs 100 MiB.
    """

    memory_bytes: int = 256 << 20
    segment_bytes: int = 32 << 10
    min_segment_bytes: int = 256
    buffers_per_channel: int = 2
    exclusive_per_gate: int = 0
    floating_per_gate: int = 8
    max_per_subpartition: int = 10
    max_overdraft: int = 5
    max_required_per_gate: int | None = None
    initial_backoff_ms: int = 100
    max_backoff_ms: int = 10_000
    request_timeout_ms: int = 10_000
    uses_local_sockets: bool = True
    in_flight_ms: int = 250
    debloat: DebloatSettings = DebloatSettings()

    def exclusive_of(self, channels: int) -> int:
        """The exclusive buffers of each channel of a gate; 0 if so configured."""
        if not self.buffers_per_channel or not channels:
            return self.buffers_per_channel
        affordable = self.memory_bytes // self.segment_bytes // _LEAST_GATES
        return max(self.buffers_per_channel, min(self.exclusive_per_gate, affordable) // channels)

    def required_cap(self, result_type: ResultPartitionType) -> int | None:
        """The most buffers that a gate of this type requires; None: as many as it needs."""
        if self.max_required_per_gate is not None:
            return self.max_required_per_gate
        is_pipelined = result_type.name.startswith("PIPELINED")
        return None if is_pipelined else _MAX_REQUIRED_OF_BLOCKING


def network_settings_of(settings: Settings) -> NetworkSettings:
    """The settings from the options. Raises: ConfigurationError: a value is out of range."""
    found = NetworkSettings(
        memory_bytes=network_memory_bytes(settings),
        segment_bytes=settings.get(NetworkMemoryOptions.SEGMENT_SIZE),
        min_segment_bytes=settings.get(NetworkMemoryOptions.MIN_SEGMENT_SIZE),
        buffers_per_channel=settings.get(NetworkOptions.BUFFERS_PER_CHANNEL),
        exclusive_per_gate=_exclusive_per_gate(settings),
        floating_per_gate=settings.get(NetworkOptions.FLOATING_BUFFERS_PER_GATE),
        max_per_subpartition=settings.get(NetworkOptions.MAX_BUFFERS_PER_CHANNEL),
        max_overdraft=settings.get(NetworkOptions.MAX_OVERDRAFT_BUFFERS_PER_GATE),
        max_required_per_gate=settings.get(NetworkOptions.MAX_REQUIRED_PER_GATE),
        initial_backoff_ms=settings.get(NetworkOptions.REQUEST_BACKOFF_INITIAL),
        max_backoff_ms=settings.get(NetworkOptions.REQUEST_BACKOFF_MAX),
        request_timeout_ms=settings.get(NetworkOptions.PARTITION_REQUEST_TIMEOUT),
        uses_local_sockets=settings.get(ExchangeOptions.LOCAL_SOCKETS),
        in_flight_ms=settings.get(ExchangeOptions.IN_FLIGHT_TIME),
        debloat=DebloatSettings(
            settings.get(NetworkOptions.DEBLOAT_ENABLED),
            settings.get(NetworkOptions.DEBLOAT_PERIOD),
            settings.get(NetworkOptions.DEBLOAT_TARGET),
            settings.get(NetworkOptions.DEBLOAT_SAMPLES),
            settings.get(NetworkOptions.DEBLOAT_THRESHOLD_PERCENT),
        ),
    )
    _check(found)
    return found


def _exclusive_per_gate(settings: Settings) -> int:
    """If the program sets the buffers per channel, channels get exactly those."""
    if settings.is_set(NetworkOptions.BUFFERS_PER_CHANNEL):
        return 0
    return settings.get(ExchangeOptions.EXCLUSIVE_BUFFERS_PER_GATE)


def network_memory_bytes(settings: Settings) -> int:
    """The exact size if it is set, else the TaskManager's fraction, else the default; within min and max."""
    exact = NetworkMemoryOptions.NETWORK_SIZE
    if settings.is_set(exact):
        return settings.get(exact)
    total = settings.get(NetworkMemoryOptions.FLINK_SIZE)
    if total is None:
        total = settings.get(NetworkMemoryOptions.PROCESS_SIZE)
    wanted = (
        settings.get(exact)
        if total is None
        else int(total * settings.get(NetworkMemoryOptions.NETWORK_FRACTION))
    )
    smallest, largest = NetworkMemoryOptions.NETWORK_MIN, NetworkMemoryOptions.NETWORK_MAX
    least, most = settings.get(smallest), settings.get(largest)
    if least > most:
        raise ConfigurationError(
            f"options '{smallest.key}' and '{largest.key}' are {least:,} and {most:,} bytes, but min must not be "
            "above max. Change one of them."
        )
    return min(max(wanted, least), most)


def _check(network: NetworkSettings) -> None:
    """Check that values which must not be 0 are at least 1, and the options that limit each other."""
    rules = (
        (NetworkMemoryOptions.SEGMENT_SIZE, network.segment_bytes, 256),
        (NetworkMemoryOptions.NETWORK_SIZE, network.memory_bytes, network.segment_bytes),
        (NetworkOptions.BUFFERS_PER_CHANNEL, network.buffers_per_channel, 0),
        (ExchangeOptions.EXCLUSIVE_BUFFERS_PER_GATE, network.exclusive_per_gate, 0),
        (NetworkOptions.FLOATING_BUFFERS_PER_GATE, network.floating_per_gate, 1),
        (NetworkOptions.MAX_BUFFERS_PER_CHANNEL, network.max_per_subpartition, 1),
        (NetworkOptions.MAX_OVERDRAFT_BUFFERS_PER_GATE, network.max_overdraft, 0),
        (NetworkOptions.REQUEST_BACKOFF_INITIAL, network.initial_backoff_ms, 0),
        (NetworkOptions.REQUEST_BACKOFF_MAX, network.max_backoff_ms, network.initial_backoff_ms),
        (NetworkOptions.DEBLOAT_PERIOD, network.debloat.period_ms, 1),
        (NetworkOptions.DEBLOAT_TARGET, network.debloat.target_ms, 1),
        (NetworkOptions.DEBLOAT_SAMPLES, network.debloat.samples, 1),
    )
    for option, value, least in rules:
        if value < least:
            raise ConfigurationError(
                f"option '{option.key}' is {value}, but it takes at least {least}. Change the setting."
            )


_KINDS: dict[str, type[FileData | MappedFileData | MemoryMappedData]] = {
    "file": FileData,
    "mmap": MemoryMappedData,
    "auto": MappedFileData,
}
_LEAST_BUFFER = 256 << 10


@dataclass(frozen=True, slots=True)
class BlockingSettings:
    """How blocking results are kept. Plain data.

    Source: Flink NettyShuffleEnvironmentOptions; keys and defaults stand in `engine/model/options/network.py`.

    How blocking results are stored. `kind`: file, mmap (mapped for writing and reading) or auto (written as a file,
    mapped for reading).

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
