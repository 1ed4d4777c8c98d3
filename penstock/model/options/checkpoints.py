"""Options of checkpoints, savepoints and recovery.

Does not know their readers. Source: Flink CheckpointingOptions, StateRecoveryOptions. Differs: `penstock.*` keys are
Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, size, text, whole


class CheckpointOptions(OptionGroup, title="Checkpoints"):
    """When checkpoints are taken, where they are stored, and how many are kept."""

    OLD_INCREMENTAL: Final = flag(
        "state.backend.incremental",
        "false",
        "Older key of execution.checkpointing.incremental. Used when that is not set.",
    )
    ALIGNED_CHECKPOINT_TIMEOUT: Final = duration(
        "execution.checkpointing.aligned-checkpoint-timeout",
        "0 ms",
        (
            "An aligned checkpoint that takes longer than this becomes unaligned. 0: it is "
            "unaligned from the start."
        ),
        former_keys=("execution.checkpointing.alignment-timeout",),
    )
    AFTER_TASKS_FINISH: Final = flag(
        "execution.checkpointing.checkpoints-after-tasks-finish",
        "true",
        "Whether checkpoints go on after some tasks have finished.",
        former_keys=("execution.checkpointing.checkpoints-after-tasks-finish.enabled",),
    )
    OLD_DATA_INLINE_THRESHOLD: Final = size(
        "state.storage.fs.memory-threshold",
        "20 kb",
        ("Older key of execution.checkpointing.data-inline-threshold. Used when that is not set."),
    )
    DATA_INLINE_THRESHOLD: Final = size(
        "execution.checkpointing.data-inline-threshold",
        "20 kb",
        "State smaller than this is stored in the metadata of the checkpoint.",
        fallback=OLD_DATA_INLINE_THRESHOLD,
        former_keys=("state.backend.fs.memory-threshold",),
    )
    OLD_DIR: Final = text(
        "state.checkpoints.dir",
        None,
        "Older key of execution.checkpointing.dir. Used when that is not set.",
    )
    DIR: Final = text(
        "execution.checkpointing.dir",
        None,
        "Directory of checkpoints. Driver and executors must share it.",
        fallback=OLD_DIR,
        former_keys=("state.backend.fs.checkpointdir",),
    )
    RETENTION: Final = text(
        "execution.checkpointing.externalized-checkpoint-retention",
        "NO_EXTERNALIZED_CHECKPOINTS",
        (
            "What is kept when a job ends: NO_EXTERNALIZED_CHECKPOINTS (nothing), "
            "DELETE_ON_CANCELLATION or RETAIN_ON_CANCELLATION. Where it is not set, and there is a "
            "checkpoint directory, a job that FAILED keeps its newest checkpoint."
        ),
    )
    INCREMENTAL: Final = flag(
        "execution.checkpointing.incremental",
        "false",
        (
            "With RocksDB: a checkpoint writes only the files of a database that no earlier "
            "checkpoint has."
        ),
        fallback=OLD_INCREMENTAL,
    )
    INTERVAL: Final = duration(
        "execution.checkpointing.interval",
        None,
        "Time between two checkpoints. Without it: only savepoints are taken.",
    )
    MAX_CONCURRENT: Final = whole(
        "execution.checkpointing.max-concurrent-checkpoints",
        "1",
        "How many checkpoints may be in progress at once.",
    )
    MIN_PAUSE: Final = duration(
        "execution.checkpointing.min-pause",
        "0 ms",
        "Least time from the end of one checkpoint to the start of the next.",
    )
    MODE: Final = text(
        "execution.checkpointing.mode",
        "EXACTLY_ONCE",
        "EXACTLY_ONCE or AT_LEAST_ONCE.",
    )
    OLD_NUM_RETAINED: Final = whole(
        "state.checkpoints.num-retained",
        "1",
        "Older key of execution.checkpointing.num-retained. Used when that is not set.",
    )
    NUM_RETAINED: Final = whole(
        "execution.checkpointing.num-retained",
        "1",
        "How many completed checkpoints are kept.",
        fallback=OLD_NUM_RETAINED,
    )
    OLD_SAVEPOINT_DIR: Final = text(
        "state.savepoints.dir",
        None,
        "Older key of execution.checkpointing.savepoint-dir. Used when that is not set.",
    )
    SAVEPOINT_DIR: Final = text(
        "execution.checkpointing.savepoint-dir",
        None,
        "Directory of savepoints for which none is named.",
        fallback=OLD_SAVEPOINT_DIR,
        former_keys=("savepoints.state.backend.fs.dir",),
    )
    TIMEOUT: Final = duration(
        "execution.checkpointing.timeout",
        "10 min",
        "A checkpoint that takes longer is aborted.",
    )
    TOLERABLE_FAILURES: Final = whole(
        "execution.checkpointing.tolerable-failed-checkpoints",
        "0",
        "How many checkpoints in a row may fail before the job does.",
    )
    UNALIGNED_ENABLED: Final = flag(
        "execution.checkpointing.unaligned.enabled",
        "false",
        "Whether barriers overtake data in flight, which then becomes part of the checkpoint.",
        former_keys=("execution.checkpointing.unaligned",),
    )
    SNAPSHOT_COMPRESSION: Final = flag(
        "execution.checkpointing.snapshot-compression",
        "false",
        "Kept for ExecutionConfig; snapshots are written as they are.",
        is_used=False,
    )


class RecoveryOptions(OptionGroup, title="Recovery"):
    """The state with which a job begins."""

    OLD_IGNORE_UNCLAIMED_STATE: Final = flag(
        "execution.savepoint.ignore-unclaimed-state",
        "false",
        (
            "Older key of execution.state-recovery.ignore-unclaimed-state. Used when that is not "
            "set."
        ),
    )
    IGNORE_UNCLAIMED_STATE: Final = flag(
        "execution.state-recovery.ignore-unclaimed-state",
        "false",
        (
            "Whether a job may start from a savepoint with state that no operator claims. That "
            "state is dropped."
        ),
        fallback=OLD_IGNORE_UNCLAIMED_STATE,
    )
    ALLOW_INT_TO_DOUBLE: Final = flag(
        "penstock.state-recovery.allow-int-to-double",
        "false",
        (
            "Whether state that was declared as BYTE, SHORT, INT or LONG may be restored as "
            "DOUBLE. A "
            "LONG above 2^53 is rounded."
        ),
    )
    OLD_PATH: Final = text(
        "execution.savepoint.path",
        None,
        "Older key of execution.state-recovery.path. Used when that is not set.",
    )
    PATH: Final = text(
        "execution.state-recovery.path",
        None,
        "Savepoint or retained checkpoint that the job begins with.",
        fallback=OLD_PATH,
    )
    OLD_CLAIM_MODE: Final = text(
        "execution.savepoint-restore-mode",
        "NO_CLAIM",
        "Older key of execution.state-recovery.claim-mode. Used when that is not set.",
    )
    CLAIM_MODE: Final = text(
        "execution.state-recovery.claim-mode",
        "NO_CLAIM",
        (
            "CLAIM: the job owns the checkpoint that it begins with, and deletes it when it is no "
            "longer needed. NO_CLAIM: it is left alone."
        ),
        fallback=OLD_CLAIM_MODE,
    )
    FROM_LOCAL: Final = flag(
        "execution.state-recovery.from-local",
        "false",
        (
            "TaskManagers keep a copy of their state, and tasks that restart prefer the slots "
            "that they had."
        ),
    )
    OLD_FROM_LOCAL: Final = flag(
        "state.backend.local-recovery",
        "false",
        "Older key of execution.state-recovery.from-local. Either of them turns it on.",
    )
