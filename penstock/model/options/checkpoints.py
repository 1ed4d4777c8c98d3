"""Options of checkpoints, savepoints and recovery.

Knows no reader. Source: Flink CheckpointingOptions, StateRecoveryOptions.
Differs: `penstock.*` keys are ours.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, size, text, whole


class CheckpointOptions(OptionGroup, title="Checkpoints"):
    """When checkpoints are taken, where they lie, and how many are kept."""

    OLD_INCREMENTAL: Final = flag(
        "state.backend.incremental",
        "false",
        "Old name of execution.checkpointing.incremental.",
    )
    ALIGNED_CHECKPOINT_TIMEOUT: Final = duration(
        "execution.checkpointing.aligned-checkpoint-timeout",
        "0 ms",
        "After so long an aligned checkpoint goes on unaligned; 0: unaligned from the start.",
        former_keys=("execution.checkpointing.alignment-timeout",),
    )
    AFTER_TASKS_FINISH: Final = flag(
        "execution.checkpointing.checkpoints-after-tasks-finish",
        "true",
        "Whether checkpoints go on when some tasks have ended.",
    )
    OLD_DATA_INLINE_THRESHOLD: Final = size(
        "state.storage.fs.memory-threshold",
        "20 kb",
        "Old name of execution.checkpointing.data-inline-threshold.",
    )
    DATA_INLINE_THRESHOLD: Final = size(
        "execution.checkpointing.data-inline-threshold",
        "20 kb",
        "State smaller than this lies in the metadata.",
        fallback=OLD_DATA_INLINE_THRESHOLD,
    )
    OLD_DIR: Final = text("state.checkpoints.dir", None, "Old name of execution.checkpointing.dir.")
    DIR: Final = text(
        "execution.checkpointing.dir",
        None,
        "Where checkpoints are kept: a directory that driver and executors share.",
        fallback=OLD_DIR,
    )
    RETENTION: Final = text(
        "execution.checkpointing.externalized-checkpoint-retention",
        "NO_EXTERNALIZED_CHECKPOINTS",
        "What stays of a job that ends: NO_EXTERNALIZED_CHECKPOINTS, DELETE_ON_CANCELLATION, "
        "RETAIN_ON_CANCELLATION.",
    )
    INCREMENTAL: Final = flag(
        "execution.checkpointing.incremental",
        "false",
        (
            "RocksDB: of the files of a database only those are written that no earlier "
            "checkpoint has."
        ),
        fallback=OLD_INCREMENTAL,
    )
    INTERVAL: Final = duration(
        "execution.checkpointing.interval",
        None,
        "Time between two checkpoints; none: only savepoints are taken.",
    )
    MAX_CONCURRENT: Final = whole(
        "execution.checkpointing.max-concurrent-checkpoints",
        "1",
        "How many may be under way at once.",
    )
    MIN_PAUSE: Final = duration(
        "execution.checkpointing.min-pause",
        "0 ms",
        "Least time from the end of one to the start of the next.",
    )
    MODE: Final = text(
        "execution.checkpointing.mode",
        "EXACTLY_ONCE",
        "EXACTLY_ONCE or AT_LEAST_ONCE.",
    )
    OLD_NUM_RETAINED: Final = whole(
        "state.checkpoints.num-retained",
        "1",
        "Old name of execution.checkpointing.num-retained.",
    )
    NUM_RETAINED: Final = whole(
        "execution.checkpointing.num-retained",
        "1",
        "How many completed ones are kept.",
        fallback=OLD_NUM_RETAINED,
    )
    OLD_SAVEPOINT_DIR: Final = text(
        "state.savepoints.dir",
        None,
        "Old name of execution.checkpointing.savepoint-dir.",
    )
    SAVEPOINT_DIR: Final = text(
        "execution.checkpointing.savepoint-dir",
        None,
        "Where savepoints go for which no directory is named.",
        fallback=OLD_SAVEPOINT_DIR,
    )
    TIMEOUT: Final = duration(
        "execution.checkpointing.timeout",
        "10 min",
        "One that takes longer is given up.",
    )
    TOLERABLE_FAILURES: Final = whole(
        "execution.checkpointing.tolerable-failed-checkpoints",
        "0",
        "How many may fail one after the other before the job does.",
    )
    UNALIGNED_ENABLED: Final = flag(
        "execution.checkpointing.unaligned.enabled",
        "false",
        "Barriers overtake data in flight, which becomes part of the checkpoint.",
        former_keys=("execution.checkpointing.unaligned",),
    )
    SNAPSHOT_COMPRESSION: Final = flag(
        "execution.checkpointing.snapshot-compression",
        "false",
        "Kept for ExecutionConfig; snapshots are written as they are.",
        is_used=False,
    )


class RecoveryOptions(OptionGroup, title="Recovery"):
    """What a job begins with."""

    OLD_IGNORE_UNCLAIMED_STATE: Final = flag(
        "execution.savepoint.ignore-unclaimed-state",
        "false",
        "Old name of execution.state-recovery.ignore-unclaimed-state.",
    )
    IGNORE_UNCLAIMED_STATE: Final = flag(
        "execution.state-recovery.ignore-unclaimed-state",
        "false",
        "Start from a savepoint without the state that no operator claims.",
        fallback=OLD_IGNORE_UNCLAIMED_STATE,
    )
    OLD_PATH: Final = text(
        "execution.savepoint.path",
        None,
        "Old name of execution.state-recovery.path.",
    )
    PATH: Final = text(
        "execution.state-recovery.path",
        None,
        "Begin with this savepoint, or retained checkpoint.",
        fallback=OLD_PATH,
    )
    OLD_CLAIM_MODE: Final = text(
        "execution.savepoint-restore-mode",
        "NO_CLAIM",
        "Old name of execution.state-recovery.claim-mode.",
    )
    CLAIM_MODE: Final = text(
        "execution.state-recovery.claim-mode",
        "NO_CLAIM",
        (
            "CLAIM: what the job began with is its own, and goes when it is not needed any more. "
            "NO_CLAIM: it stays."
        ),
        fallback=OLD_CLAIM_MODE,
    )
    FROM_LOCAL: Final = flag(
        "execution.state-recovery.from-local",
        "false",
        "State is kept on the TaskManagers too, and tasks that start again prefer the slots "
        "that they had.",
    )
    OLD_FROM_LOCAL: Final = flag(
        "state.backend.local-recovery",
        "false",
        "Old name of execution.state-recovery.from-local.",
    )
