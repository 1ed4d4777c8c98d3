"""Options of slots, restarts, history and the console.

Does not know their readers. Source: Flink JobManagerOptions, BatchExecutionOptions, RestartStrategyOptions, WebOptions.
Differs: `penstock.*` keys are Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, number, size, text, whole


class SchedulingOptions(OptionGroup, title="Slots and scheduling"):
    """How the tasks of a job get their slots, and what restarts after a failure."""

    DEFAULT_PARALLELISM: Final = whole(
        "parallelism.default",
        None,
        "Parallelism of operators that set none. Without it: what the cluster offers.",
    )
    SLOT_REQUEST_TIMEOUT: Final = duration(
        "slot.request.timeout",
        "5 min",
        "How long the slots that a job requests together may be impossible to provide.",
    )
    SLOT_IDLE_TIMEOUT: Final = duration(
        "slot.idle.timeout",
        "50 s",
        "Slots that a job does not need are given back after this time.",
    )
    SCHEDULER: Final = text(
        "jobmanager.scheduler",
        "Default",
        (
            "`Default`, or `AdaptiveBatch`: BATCH jobs are scheduled subtask by subtask. "
            "`Adaptive` means `Default`."
        ),
    )
    HYBRID_CONSUME_CONSTRAINT: Final = text(
        "jobmanager.partition.hybrid.partition-data-consume-constraint",
        None,
        "When AdaptiveBatch may read hybrid results. Without it: UNFINISHED_PRODUCERS.",
    )
    RELEASE_RESULTS_DURING_JOB: Final = flag(
        "jobmanager.partition.release-during-job-execution",
        "true",
        (
            "Whether a blocking result is removed as soon as all its readers have finished, "
            "instead of at the end of the job."
        ),
    )
    FAILOVER_STRATEGY: Final = text(
        "jobmanager.execution.failover-strategy",
        "region",
        (
            "What restarts after a failure: `region` (the affected part of the job) or `full` "
            "(the whole job)."
        ),
    )


class AdaptiveBatchOptions(OptionGroup, title="Parallelism by AdaptiveBatch"):
    """How AdaptiveBatch chooses the parallelism of a vertex."""

    ENABLED: Final = flag(
        "execution.batch.adaptive.auto-parallelism.enabled",
        "true",
        (
            "Whether AdaptiveBatch chooses the parallelism of vertices that set none, by the "
            "bytes that they read."
        ),
    )
    MIN_PARALLELISM: Final = whole(
        "execution.batch.adaptive.auto-parallelism.min-parallelism",
        "1",
        "Smallest number of subtasks that it chooses for a vertex.",
        former_keys=("jobmanager.adaptive-batch-scheduler.min-parallelism",),
    )
    MAX_PARALLELISM: Final = whole(
        "execution.batch.adaptive.auto-parallelism.max-parallelism",
        "128",
        "Largest number of subtasks that it chooses for a vertex.",
        former_keys=("jobmanager.adaptive-batch-scheduler.max-parallelism",),
    )
    DEFAULT_SOURCE_PARALLELISM: Final = whole(
        "execution.batch.adaptive.auto-parallelism.default-source-parallelism",
        None,
        (
            "Subtasks of a source. Without it: as many as the cluster runs at once, up to the "
            "maximum."
        ),
        former_keys=("jobmanager.adaptive-batch-scheduler.default-source-parallelism",),
    )
    AVG_DATA_VOLUME_PER_TASK: Final = size(
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task",
        "16 mb",
        "Bytes that one subtask should read.",
        former_keys=("jobmanager.adaptive-batch-scheduler.avg-data-volume-per-task",),
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
            "`none`, `fixed-delay`, `failure-rate` or `exponential-delay`. Without it: "
            "`exponential-delay` if the job takes checkpoints; else only lost TaskManagers cause "
            "a restart."
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
        "How many restarts are tried before the job fails.",
    )
    EXPONENTIAL_MULTIPLIER: Final = number(
        "restart-strategy.exponential-delay.backoff-multiplier",
        "1.5",
        "Factor by which the wait grows with each restart.",
    )
    EXPONENTIAL_INITIAL_BACKOFF: Final = duration(
        "restart-strategy.exponential-delay.initial-backoff",
        "1 s",
        "Wait before the first restart.",
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
        "After this time without a failure, the wait starts again at its initial length.",
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
        "How many failures are allowed per interval.",
    )


class HistoryOptions(OptionGroup, title="History"):
    """How much of a job's past is kept."""

    EXCEPTIONS: Final = whole(
        "web.exception-history-size",
        "16",
        (
            "How many failures of a job are kept. Failures at the same time are kept with each of "
            "them."
        ),
    )
    CHECKPOINTS: Final = whole(
        "web.checkpoints.history",
        "10",
        "How many ended checkpoints the statistics of a job show.",
        former_keys=("jobmanager.web.checkpoints.history",),
    )
    STORY: Final = whole(
        "penstock.story.size",
        "1000",
        "How many state changes of a job are kept.",
    )
    ATTEMPTS: Final = whole(
        "jobmanager.execution.attempts-history-size",
        "16",
        "How many past attempts of a subtask are kept.",
        former_keys=("job-manager.max-attempts-history-size",),
    )


class ErrorOptions(OptionGroup, title="Errors"):
    """What an error tells."""

    FULL: Final = flag(
        "penstock.errors.full",
        "false",
        (
            "Whether errors have Penstock's own frames too. They are always in the logs of driver "
            "and TaskManagers."
        ),
    )


class ConsoleOptions(OptionGroup, title="Console"):
    """What the driver prints."""

    PROGRESS: Final = flag(
        "penstock.console.progress",
        "true",
        "Whether the driver shows the progress of the job: a live table where stderr is a "
        "terminal, elsewhere lines.",
    )
    PROGRESS_INTERVAL: Final = duration(
        "penstock.console.progress-interval",
        "1 s",
        "How often the live table gets new figures.",
    )
    LINE_INTERVAL: Final = duration(
        "penstock.console.line-interval",
        "10 s",
        "How often a line tells the progress where stderr is no terminal.",
    )
