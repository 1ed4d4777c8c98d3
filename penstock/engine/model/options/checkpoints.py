"""Options of checkpoints, savepoints, recovery and keyed state.

Source: Flink CheckpointingOptions, StateRecoveryOptions, StateBackendOptions, RocksDBOptions.
"""

from enum import StrEnum
from typing import Final

from penstock.engine.model.options.option import (
    OptionGroup,
    duration,
    flag,
    one_of,
    size,
    text,
    whole,
    within,
)

EXACTLY_ONCE: Final = "EXACTLY_ONCE"
CLAIM: Final = "CLAIM"


class Retention(StrEnum):
    """What becomes of completed checkpoints when the job ends."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"


class CheckpointOptions(OptionGroup, title="Checkpoints"):
    """When checkpoints are taken, where they are stored, and how many are kept."""

    ALIGNED_CHECKPOINT_TIMEOUT = duration(
        "execution.checkpointing.aligned-checkpoint-timeout",
        "0 ms",
        former="execution.checkpointing.alignment-timeout",
    )
    """An aligned checkpoint that takes longer than this becomes unaligned. 0: it is unaligned from the start."""
    AFTER_TASKS_FINISH = flag(
        "execution.checkpointing.checkpoints-after-tasks-finish",
        "true",
        former="execution.checkpointing.checkpoints-after-tasks-finish.enabled",
    )
    """Whether checkpoints go on after some tasks have finished."""
    DATA_INLINE_THRESHOLD = within(size, 0, 1 << 20)(
        "execution.checkpointing.data-inline-threshold",
        "20 kb",
        former="state.backend.fs.memory-threshold",
        older="state.storage.fs.memory-threshold",
    )
    """State smaller than this is stored in the metadata of the checkpoint. At most 1 mb, because it passes through the driver."""
    DIR = text(
        "execution.checkpointing.dir",
        former="state.backend.fs.checkpointdir",
        older="state.checkpoints.dir",
    )
    """Directory of checkpoints. Driver and executors must share it."""
    RETENTION = one_of(Retention)(
        "execution.checkpointing.externalized-checkpoint-retention", "NO_EXTERNALIZED_CHECKPOINTS"
    )
    """What is kept when a job ends: NO_EXTERNALIZED_CHECKPOINTS (nothing), DELETE_ON_CANCELLATION or
    RETAIN_ON_CANCELLATION. Where it is not set, and there is a checkpoint directory, a job that FAILED keeps its
    newest checkpoint."""
    INCREMENTAL = flag(
        "execution.checkpointing.incremental", "false", older="state.backend.incremental"
    )
    """With RocksDB: a checkpoint writes only the files of a database that no earlier checkpoint has."""
    INTERVAL = duration("execution.checkpointing.interval")
    """Time between two checkpoints. Without it: only savepoints are taken."""
    MAX_CONCURRENT = within(whole, 1)("execution.checkpointing.max-concurrent-checkpoints", "1")
    """How many checkpoints may be in progress at once."""
    MIN_PAUSE = duration("execution.checkpointing.min-pause", "0 ms")
    """Least time from the end of one checkpoint to the start of the next."""
    MODE = one_of((EXACTLY_ONCE, "AT_LEAST_ONCE"))("execution.checkpointing.mode", EXACTLY_ONCE)
    """EXACTLY_ONCE or AT_LEAST_ONCE."""
    NUM_RETAINED = within(whole, 1)(
        "execution.checkpointing.num-retained", "1", older="state.checkpoints.num-retained"
    )
    """How many completed checkpoints are kept."""
    SAVEPOINT_DIR = text(
        "execution.checkpointing.savepoint-dir",
        former="savepoints.state.backend.fs.dir",
        older="state.savepoints.dir",
    )
    """Directory of savepoints for which none is named."""
    TIMEOUT = within(duration, 10)("execution.checkpointing.timeout", "10 min")
    """A checkpoint that takes longer is aborted."""
    TOLERABLE_FAILURES = within(whole, 0)(
        "execution.checkpointing.tolerable-failed-checkpoints", "0"
    )
    """How many checkpoints in a row may fail before the job does."""
    UNALIGNED_ENABLED = flag(
        "execution.checkpointing.unaligned.enabled",
        "false",
        former="execution.checkpointing.unaligned",
    )
    """Whether barriers overtake data in flight, which then becomes part of the checkpoint."""
    SNAPSHOT_COMPRESSION = flag(
        "execution.checkpointing.snapshot-compression", "false", is_used=False
    )
    """Kept for ExecutionConfig; snapshots are written as they are."""
    UNALIGNED_FORCED = flag("execution.checkpointing.unaligned.forced", "false", is_used=False)
    """Kept for CheckpointConfig; unaligned checkpoints are never forced."""


class RecoveryOptions(OptionGroup, title="Recovery"):
    """The state with which a job begins."""

    IGNORE_UNCLAIMED_STATE = flag(
        "execution.state-recovery.ignore-unclaimed-state",
        "false",
        older="execution.savepoint.ignore-unclaimed-state",
    )
    """Whether a job may start from a savepoint with state that no operator claims. That state is dropped."""
    ALLOW_INT_TO_DOUBLE = flag("penstock.state-recovery.allow-int-to-double", "false")
    """Whether state that was declared as BYTE, SHORT, INT or LONG may be restored as DOUBLE. A LONG above 2^53 is
    rounded."""
    PATH = text("execution.state-recovery.path", older="execution.savepoint.path")
    """Savepoint or retained checkpoint that the job begins with."""
    CLAIM_MODE = one_of((CLAIM, "NO_CLAIM"), str.upper)(
        "execution.state-recovery.claim-mode", "NO_CLAIM", older="execution.savepoint-restore-mode"
    )
    """CLAIM: the job owns the checkpoint that it begins with, and deletes it when it is no longer needed. NO_CLAIM: it
    is left alone."""
    FROM_LOCAL = flag("execution.state-recovery.from-local", "false")
    """TaskManagers keep a copy of their state, and tasks that restart prefer the slots that they had."""
    OLD_FROM_LOCAL = flag("state.backend.local-recovery", "false")
    """Older key of execution.state-recovery.from-local. Either of them turns it on."""


class StateBackendOptions(OptionGroup, title="Keyed state"):
    """Where keyed state is stored."""

    TYPE = text("state.backend.type", "hashmap", former="state.backend")
    """Keyed state: `hashmap` (objects in memory) or `rocksdb` (on the disks of the TaskManagers; needs the package
    rocksdict)."""
    ROCKSDB_TIMERS = text("state.backend.rocksdb.timer-service.factory", "ROCKSDB")
    """Timers with RocksDB: `ROCKSDB` (on disk, with the state) or `HEAP` (in memory: faster, as long as they fit)."""
    ROCKSDB_MEMORY_PER_SLOT = size("state.backend.rocksdb.memory.fixed-per-slot", "128 mb")
    """Block cache and write buffers of all RocksDBs of a slot."""
