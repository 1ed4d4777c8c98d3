"""Options of slots, restarts, history and the console.

Knows no reader. Source: Flink JobManagerOptions, BatchExecutionOptions, RestartStrategyOptions, WebOptions.
Differs: `penstock.*` keys are ours.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, number, size, text, whole


class SchedulingOptions(OptionGroup, title="Slots and scheduling"):
    """How the tasks of a job get their slots, and what restarts after a failure."""

    DEFAULT_PARALLELISM: Final = whole(
        "parallelism.default",
        None,
        "Parallelism of operators that set none; none: what the cluster gives.",
    )
    SLOT_REQUEST_TIMEOUT: Final = duration(
        "slot.request.timeout",
        "5 min",
        "How long a bulk of slot requests may be without a way to be served.",
    )
    SLOT_IDLE_TIMEOUT: Final = duration(
        "slot.idle.timeout",
        "50 s",
        "Free slots above the need are given back after this.",
    )
    SCHEDULER: Final = text(
        "jobmanager.scheduler",
        "Default",
        "Default, or AdaptiveBatch: BATCH jobs go subtask by subtask. Adaptive is taken as "
        "Default.",
    )
    HYBRID_CONSUME_CONSTRAINT: Final = text(
        "jobmanager.partition.hybrid.partition-data-consume-constraint",
        None,
        "When AdaptiveBatch may read hybrid results; none: UNFINISHED_PRODUCERS.",
    )
    RELEASE_RESULTS_DURING_JOB: Final = flag(
        "jobmanager.partition.release-during-job-execution",
        "true",
        "Remove blocking results as soon as all that read them have finished, not at the "
        "job's end.",
    )
    FAILOVER_STRATEGY: Final = text(
        "jobmanager.execution.failover-strategy",
        "region",
        "region or full.",
    )


class AdaptiveBatchOptions(OptionGroup, title="Parallelism by AdaptiveBatch"):
    """How AdaptiveBatch chooses the parallelism of a vertex."""

    ENABLED: Final = flag(
        "execution.batch.adaptive.auto-parallelism.enabled",
        "true",
        "AdaptiveBatch: whether vertices that set no parallelism get theirs by the bytes that "
        "they read.",
    )
    MIN_PARALLELISM: Final = whole(
        "execution.batch.adaptive.auto-parallelism.min-parallelism",
        "1",
        "Fewest subtasks that it gives a vertex.",
    )
    MAX_PARALLELISM: Final = whole(
        "execution.batch.adaptive.auto-parallelism.max-parallelism",
        "128",
        "Most subtasks that it gives a vertex.",
    )
    DEFAULT_SOURCE_PARALLELISM: Final = whole(
        "execution.batch.adaptive.auto-parallelism.default-source-parallelism",
        None,
        "Subtasks of sources; none: as many as the cluster runs at once, up to the maximum.",
    )
    AVG_DATA_VOLUME_PER_TASK: Final = size(
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task",
        "16 mb",
        "Bytes that one subtask should read.",
    )


class RestartOptions(OptionGroup, title="Restarts"):
    """What happens after a failure."""

    INFRASTRUCTURE_DELAY: Final = duration(
        "penstock.restart.infrastructure-delay",
        "100 ms",
        "Wait before the restart after a lost TaskManager.",
    )
    TYPE: Final = text(
        "restart-strategy.type",
        None,
        (
            "none, fixed-delay, failure-rate or exponential-delay; with checkpoints the last if "
            "none is named."
        ),
        former_keys=("restart-strategy",),
    )
    FIXED_DELAY_ATTEMPTS: Final = whole(
        "restart-strategy.fixed-delay.attempts",
        "1",
        "How many failures may be followed by a restart.",
    )
    FIXED_DELAY: Final = duration(
        "restart-strategy.fixed-delay.delay",
        "1 s",
        "Wait before a restart.",
    )
    EXPONENTIAL_ATTEMPTS_BEFORE_RESET: Final = whole(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        "infinite",
        "Restarts before giving up.",
    )
    EXPONENTIAL_MULTIPLIER: Final = number(
        "restart-strategy.exponential-delay.backoff-multiplier",
        "1.5",
        "Growth of the wait per restart.",
    )
    EXPONENTIAL_INITIAL_BACKOFF: Final = duration(
        "restart-strategy.exponential-delay.initial-backoff",
        "1 s",
        "First wait.",
    )
    EXPONENTIAL_JITTER_FACTOR: Final = number(
        "restart-strategy.exponential-delay.jitter-factor",
        "0.1",
        "Random share of the wait.",
    )
    EXPONENTIAL_MAX_BACKOFF: Final = duration(
        "restart-strategy.exponential-delay.max-backoff",
        "1 min",
        "Longest wait.",
    )
    EXPONENTIAL_RESET_THRESHOLD: Final = duration(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        "1 h",
        "Quiet time after which the wait starts anew.",
    )
    FAILURE_RATE_DELAY: Final = duration(
        "restart-strategy.failure-rate.delay",
        "1 s",
        "Wait before a restart.",
    )
    FAILURE_RATE_INTERVAL: Final = duration(
        "restart-strategy.failure-rate.failure-rate-interval",
        "1 min",
        "Interval in which failures are counted.",
    )
    FAILURE_RATE_MAX_FAILURES: Final = whole(
        "restart-strategy.failure-rate.max-failures-per-interval",
        "1",
        "Failures allowed per interval.",
    )


class HistoryOptions(OptionGroup, title="History"):
    """How much of a job's past is kept."""

    EXCEPTIONS: Final = whole(
        "web.exception-history-size",
        "16",
        "Failures of a job that are kept, each with those beside it.",
    )
    CHECKPOINTS: Final = whole(
        "web.checkpoints.history",
        "10",
        "Checkpoints that have ended that a job's statistics show.",
    )
    STORY: Final = whole(
        "penstock.story.size",
        "1000",
        "State changes of a job that are kept for its story.",
    )
    ATTEMPTS: Final = whole(
        "jobmanager.execution.attempts-history-size",
        "16",
        "Past attempts kept per subtask.",
    )


class ConsoleOptions(OptionGroup, title="Console"):
    """What the driver prints."""

    PROGRESS: Final = flag(
        "penstock.console.progress",
        "true",
        "Whether the driver shows progress.",
    )
    PROGRESS_INTERVAL: Final = duration(
        "penstock.console.progress-interval",
        "1 s",
        "How often the progress is drawn.",
    )
