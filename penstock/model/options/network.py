"""Options of the data exchange: memory, buffers, results on disk.

Knows no reader. Source: Flink NettyShuffleEnvironmentOptions, TaskManagerOptions.
Differs: `penstock.*` keys are ours.
"""

from typing import Final

from penstock.model.options.option import (
    OptionGroup,
    duration,
    fine_duration,
    flag,
    number,
    size,
    text,
    whole,
)


class ExchangeOptions(OptionGroup, title="Data exchange"):
    """How frames travel between the tasks of TaskManagers."""

    FRAME_SIZE: Final = size(
        "penstock.exchange.frame-size",
        "1 mb",
        "Largest frame between two tasks; one credit is one frame.",
    )
    SWITCH_INTERVAL: Final = fine_duration(
        "penstock.exchange.switch-interval",
        "1 ms",
        "sys.setswitchinterval of a TaskManager.",
    )
    EXCLUSIVE_BUFFERS_PER_GATE: Final = whole(
        "penstock.exchange.exclusive-buffers-per-gate",
        "0",
        "A gate of few channels gives each an equal part of so many buffers, where that is "
        "more than buffers-per-channel.",
    )
    LOCAL_SOCKETS: Final = flag(
        "penstock.exchange.local-sockets",
        "true",
        "Linux: TaskManagers of one machine (and network namespace) exchange data over Unix "
        "sockets instead of TCP.",
    )


class NetworkMemoryOptions(OptionGroup, title="Network memory"):
    """Memory of the data exchange in a TaskManager."""

    NETWORK_SIZE: Final = size(
        "taskmanager.memory.network",
        "256 mb",
        "What the frames between tasks may fill in one TaskManager. If it is not set, but the "
        "size of the TaskManager is: the fraction of that, within min and max.",
    )
    NETWORK_FRACTION: Final = number(
        "taskmanager.memory.network.fraction",
        "0.1",
        "Share of taskmanager.memory.flink.size.",
    )
    NETWORK_MIN: Final = size("taskmanager.memory.network.min", "64 mb", "Least network memory.")
    NETWORK_MAX: Final = size(
        "taskmanager.memory.network.max",
        "9223372036854775807 bytes",
        "Most network memory.",
    )
    FLINK_SIZE: Final = size(
        "taskmanager.memory.flink.size",
        None,
        "Size of a TaskManager of which that share is taken.",
    )
    PROCESS_SIZE: Final = size(
        "taskmanager.memory.process.size",
        None,
        "The same, where flink.size is not set.",
    )
    SEGMENT_SIZE: Final = size(
        "taskmanager.memory.segment-size",
        "32 kb",
        "Least size of a network buffer; few tasks have larger ones, up to the frame size.",
    )
    MIN_SEGMENT_SIZE: Final = size(
        "taskmanager.memory.min-segment-size",
        "256 bytes",
        "Smallest debloated buffer.",
    )


class NetworkOptions(OptionGroup, title="Network buffers"):
    """Buffers and requests of the data exchange."""

    BUFFERS_PER_CHANNEL: Final = whole(
        "taskmanager.network.memory.buffers-per-channel",
        "2",
        "Exclusive buffers per remote channel.",
    )
    FLOATING_BUFFERS_PER_GATE: Final = whole(
        "taskmanager.network.memory.floating-buffers-per-gate",
        "8",
        "Buffers that channels share.",
    )
    MAX_BUFFERS_PER_CHANNEL: Final = whole(
        "taskmanager.network.memory.max-buffers-per-channel",
        "10",
        "A task is held back when one of its subpartitions has so many buffers; at four full "
        "ones in any case.",
    )
    MAX_OVERDRAFT_BUFFERS_PER_GATE: Final = whole(
        "taskmanager.network.memory.max-overdraft-buffers-per-gate",
        "5",
        "Buffers that a task without any may still take to complete a record.",
    )
    MAX_REQUIRED_PER_GATE: Final = whole(
        "taskmanager.network.memory.read-buffer.required-per-gate.max",
        None,
        "Most buffers that a gate requires; none: 1000 for blocking inputs, as many as it "
        "needs for others.",
    )
    REQUEST_BACKOFF_INITIAL: Final = whole(
        "taskmanager.network.request-backoff.initial",
        "100",
        "First wait before a partition is asked for again, ms.",
    )
    REQUEST_BACKOFF_MAX: Final = whole(
        "taskmanager.network.request-backoff.max",
        "10000",
        "Longest such wait, ms.",
    )
    PARTITION_REQUEST_TIMEOUT: Final = duration(
        "taskmanager.network.partition-request-timeout",
        "10 s",
        "How long a request waits at the producer's TaskManager for its partition.",
    )
    DEBLOAT_ENABLED: Final = flag(
        "taskmanager.network.memory.buffer-debloat.enabled",
        "false",
        "Smaller buffers when they take longer than the target to be worked off.",
    )
    DEBLOAT_PERIOD: Final = duration(
        "taskmanager.network.memory.buffer-debloat.period",
        "200 ms",
        "How often that is looked at.",
    )
    DEBLOAT_TARGET: Final = duration(
        "taskmanager.network.memory.buffer-debloat.target",
        "1 s",
        "How long the data in flight should take.",
    )
    DEBLOAT_SAMPLES: Final = whole(
        "taskmanager.network.memory.buffer-debloat.samples",
        "20",
        "Measurements that are averaged.",
    )
    DEBLOAT_THRESHOLD_PERCENT: Final = whole(
        "taskmanager.network.memory.buffer-debloat.threshold-percentages",
        "25",
        "Smaller changes are not announced.",
    )


class BlockingShuffleOptions(OptionGroup, title="Results on disk"):
    """Results that lie on disk until they are read."""

    TYPE: Final = text(
        "taskmanager.network.blocking-shuffle.type",
        "file",
        "Blocking results: file, mmap (a mapped file), or auto (a file that is mapped for "
        "reading).",
    )
    COMPRESSION_ENABLED: Final = flag(
        "taskmanager.network.batch-shuffle.compression.enabled",
        "true",
        "Compress blocking results.",
    )
    COMPRESSION_CODEC: Final = text("taskmanager.network.compression.codec", "LZ4", "LZ4 or ZSTD.")
    TMP_DIRS: Final = text(
        "io.tmp.dirs",
        None,
        "Directories for blocking results, separated by commas; none: the system's for "
        "temporary files.",
    )
