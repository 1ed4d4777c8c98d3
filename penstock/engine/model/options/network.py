"""Options of the data exchange: memory, buffers, results on disk. Source: Flink NettyShuffleEnvironmentOptions, TaskManagerOptions."""

from penstock.engine.model.options.option import (
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

    FRAME_SIZE = size("penstock.exchange.frame-size", "1 mb")
    """Largest frame between two tasks. One credit stands for one frame."""
    SWITCH_INTERVAL = fine_duration("penstock.exchange.switch-interval")
    """`sys.setswitchinterval` of a TaskManager: how long a thread keeps the GIL while others want it. Without it:
    Python's own 5 ms. With 1 ms, records wait less next to a function that computes, and all functions are slower by
    a few per cent."""
    EXCLUSIVE_BUFFERS_PER_GATE = whole("penstock.exchange.exclusive-buffers-per-gate", "0")
    """A gate with few channels divides this many buffers among them, if each then gets more than
    buffers-per-channel."""
    IN_FLIGHT_TIME = duration("penstock.exchange.in-flight-time", "250 ms")
    """How long a task may take for the records that wait for it. If its function is slow, its
    producers send fewer records ahead, so that barriers and savepoints do not wait for many of
    them. At least one record for each channel may wait. `0 ms`: only the size of buffers limits
    what waits.
    """
    LOCAL_SOCKETS = flag("penstock.exchange.local-sockets", "true")
    """On Linux, TaskManagers on the same machine (and in the same network namespace) exchange data over Unix sockets
    instead of TCP."""


class NetworkMemoryOptions(OptionGroup, title="Network memory"):
    """Memory of the data exchange in a TaskManager."""

    NETWORK_SIZE = size("taskmanager.memory.network", "256 mb")
    """Memory for frames between tasks in one TaskManager. If this is not set but the size of the TaskManager is, the
    fraction of that size is taken, within min and max."""
    NETWORK_FRACTION = number(
        "taskmanager.memory.network.fraction", "0.1", former="taskmanager.network.memory.fraction"
    )
    """Share of taskmanager.memory.flink.size that becomes network memory."""
    NETWORK_MIN = size(
        "taskmanager.memory.network.min", "64 mb", former="taskmanager.network.memory.min"
    )
    """Smallest network memory."""
    NETWORK_MAX = size(
        "taskmanager.memory.network.max",
        "9223372036854775807 bytes",
        former="taskmanager.network.memory.max",
    )
    """Largest network memory."""
    FLINK_SIZE = size("taskmanager.memory.flink.size")
    """Size of a TaskManager. The share of network memory is taken from it."""
    PROCESS_SIZE = size("taskmanager.memory.process.size")
    """Used if taskmanager.memory.flink.size is not set."""
    SEGMENT_SIZE = size("taskmanager.memory.segment-size", "32 kb")
    """Smallest size of a network buffer. If there are few tasks, buffers are larger, up to the frame size."""
    MIN_SEGMENT_SIZE = size("taskmanager.memory.min-segment-size", "256 bytes")
    """Smallest size to which debloating may shrink a buffer."""


class NetworkOptions(OptionGroup, title="Network buffers"):
    """Buffers and requests of the data exchange."""

    BUFFERS_PER_CHANNEL = whole("taskmanager.network.memory.buffers-per-channel", "2")
    """Buffers that each remote channel has for itself."""
    FLOATING_BUFFERS_PER_GATE = whole("taskmanager.network.memory.floating-buffers-per-gate", "8")
    """Buffers that the channels of a gate share."""
    MAX_BUFFERS_PER_CHANNEL = whole("taskmanager.network.memory.max-buffers-per-channel", "10")
    """A task is held back when one of its subpartitions has this many buffers. Four full buffers hold it back in any
    case."""
    MAX_OVERDRAFT_BUFFERS_PER_GATE = whole(
        "taskmanager.network.memory.max-overdraft-buffers-per-gate", "5"
    )
    """Extra buffers that a task without free buffers may take to complete a record."""
    MAX_REQUIRED_PER_GATE = whole("taskmanager.network.memory.read-buffer.required-per-gate.max")
    """Largest number of buffers that a gate requires. Without it: 1000 for blocking inputs, and as many as needed for
    others."""
    REQUEST_BACKOFF_INITIAL = whole(
        "taskmanager.network.request-backoff.initial",
        "100",
        former="taskmanager.net.request-backoff.initial",
    )
    """Milliseconds before a missing partition is requested again for the first time."""
    REQUEST_BACKOFF_MAX = whole(
        "taskmanager.network.request-backoff.max",
        "10000",
        former="taskmanager.net.request-backoff.max",
    )
    """Most milliseconds between two such requests."""
    PARTITION_REQUEST_TIMEOUT = duration("taskmanager.network.partition-request-timeout", "10 s")
    """How long a request waits at the producer's TaskManager for its partition."""
    DEBLOAT_ENABLED = flag("taskmanager.network.memory.buffer-debloat.enabled", "false")
    """Whether buffers become smaller when the data in flight takes longer than the target."""
    DEBLOAT_PERIOD = duration("taskmanager.network.memory.buffer-debloat.period", "200 ms")
    """How often the size of buffers is adjusted."""
    DEBLOAT_TARGET = duration("taskmanager.network.memory.buffer-debloat.target", "1 s")
    """How long it should take to process the data in flight."""
    DEBLOAT_SAMPLES = whole("taskmanager.network.memory.buffer-debloat.samples", "20")
    """How many measurements are averaged."""
    DEBLOAT_THRESHOLD_PERCENT = whole(
        "taskmanager.network.memory.buffer-debloat.threshold-percentages", "25"
    )
    """Smaller changes of the size, in percent, are not announced."""


class BlockingShuffleOptions(OptionGroup, title="Results on disk"):
    """Results that are kept on disk until they are read."""

    TYPE = text("taskmanager.network.blocking-shuffle.type", "file")
    """How blocking results are kept: `file`, `mmap` (a mapped file) or `auto` (written as a file, mapped for
    reading)."""
    COMPRESSION_ENABLED = flag("taskmanager.network.batch-shuffle.compression.enabled", "true")
    """Whether blocking results are compressed."""
    COMPRESSION_CODEC = text("taskmanager.network.compression.codec", "LZ4")
    """Codec of blocking results: LZ4 or ZSTD."""
    TMP_DIRS = text("io.tmp.dirs", former="taskmanager.tmp.dirs")
    """Directories for blocking results, separated by commas. Without it: the system's directory for temporary files."""
