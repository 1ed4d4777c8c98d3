"""Options of slots, restarts, history, errors and the console.

Source: Flink JobManagerOptions, BatchExecutionOptions, RestartStrategyOptions, WebOptions.
"""

from enum import StrEnum

from penstock.engine.model.key_groups import MAX_PARALLELISM_LIMIT
from penstock.engine.model.options.option import (
    OptionGroup,
    duration,
    flag,
    number,
    one_of,
    size,
    strategy_name,
    whole,
    within,
)

_PARALLELISM = within(whole, 1, MAX_PARALLELISM_LIMIT)


class Scheduler(StrEnum):
    """What jobmanager.scheduler takes."""

    DEFAULT = "Default"
    ADAPTIVE = "Adaptive"
    ADAPTIVE_BATCH = "AdaptiveBatch"


class FailoverMode(StrEnum):
    """What restarts after a failure: the regions concerned, or the whole job."""

    REGION = "region"
    FULL = "full"


class ConsumeConstraint(StrEnum):
    """How much of a hybrid input must be there before its consumer starts. Blocking inputs must always be complete."""

    UNFINISHED_PRODUCERS = "UNFINISHED_PRODUCERS"
    """All its producers are scheduled."""
    ONLY_FINISHED_PRODUCERS = "ONLY_FINISHED_PRODUCERS"
    """One of its producers has finished."""
    ALL_PRODUCERS_FINISHED = "ALL_PRODUCERS_FINISHED"
    """All its producers have finished."""


class SchedulingOptions(OptionGroup, title="Slots and scheduling"):
    """How the tasks of a job get their slots, and what restarts after a failure."""

    DEFAULT_PARALLELISM = whole("parallelism.default")
    """Parallelism of operators that set none. Without it: what the cluster offers."""
    SLOT_REQUEST_TIMEOUT = duration("slot.request.timeout", "5 min")
    """How long the slots that a job requests together may be impossible to provide."""
    SLOT_IDLE_TIMEOUT = duration("slot.idle.timeout", "50 s")
    """Slots that a job does not need are given back after this time."""
    SCHEDULER = one_of(Scheduler)("jobmanager.scheduler", "Default")
    """`Adaptive`: a streaming job runs with the slots that there are, and its parallelism follows them. `AdaptiveBatch`:
    BATCH jobs are scheduled subtask by subtask. `Default`: neither."""
    HYBRID_CONSUME_CONSTRAINT = one_of(ConsumeConstraint)(
        "jobmanager.partition.hybrid.partition-data-consume-constraint"
    )
    """When AdaptiveBatch may read hybrid results. Without it: UNFINISHED_PRODUCERS."""
    RELEASE_RESULTS_DURING_JOB = flag("jobmanager.partition.release-during-job-execution", "true")
    """Whether a blocking result is removed as soon as all its readers have finished, instead of at the end of the
    job."""
    FAILOVER_STRATEGY = one_of(FailoverMode, str.lower)(
        "jobmanager.execution.failover-strategy", "region"
    )
    """What restarts after a failure: `region` (the affected part of the job) or `full` (the whole job)."""


class AdaptiveBatchOptions(OptionGroup, title="Parallelism by AdaptiveBatch"):
    """How AdaptiveBatch chooses the parallelism of a vertex."""

    ENABLED = flag("execution.batch.adaptive.auto-parallelism.enabled", "true")
    """Whether AdaptiveBatch chooses the parallelism of vertices that set none, by the bytes that they read."""
    MIN_PARALLELISM = _PARALLELISM(
        "execution.batch.adaptive.auto-parallelism.min-parallelism",
        "1",
        former="jobmanager.adaptive-batch-scheduler.min-parallelism",
    )
    """Smallest number of subtasks that it chooses for a vertex."""
    MAX_PARALLELISM = _PARALLELISM(
        "execution.batch.adaptive.auto-parallelism.max-parallelism",
        "128",
        former="jobmanager.adaptive-batch-scheduler.max-parallelism",
    )
    """Largest number of subtasks that it chooses for a vertex."""
    DEFAULT_SOURCE_PARALLELISM = _PARALLELISM(
        "execution.batch.adaptive.auto-parallelism.default-source-parallelism",
        former="jobmanager.adaptive-batch-scheduler.default-source-parallelism",
    )
    """Subtasks of a source. Without it: as many as the cluster runs at once, up to the maximum."""
    AVG_DATA_VOLUME_PER_TASK = within(size, 1)(
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task",
        "16 mb",
        former="jobmanager.adaptive-batch-scheduler.avg-data-volume-per-task",
    )
    """Bytes that one subtask should read."""


class RestartOptions(OptionGroup, title="Restarts"):
    """What happens after a failure."""

    INFRASTRUCTURE_DELAY = duration("penstock.restart.infrastructure-delay", "100 ms")
    """Wait before the restart after a lost TaskManager."""
    TYPE = one_of(("none", "fixed-delay", "failure-rate", "exponential-delay"), strategy_name)(
        "restart-strategy.type", former="restart-strategy"
    )
    """`none`, `fixed-delay`, `failure-rate` or `exponential-delay`. Without it: `exponential-delay` if the job takes
    checkpoints; else only lost TaskManagers cause a restart. Those that were killed for their memory wait as with
    `exponential-delay` in both cases."""
    FIXED_DELAY_ATTEMPTS = within(whole, 0)("restart-strategy.fixed-delay.attempts", "1")
    """How many failures may be followed by a restart."""
    FIXED_DELAY = duration("restart-strategy.fixed-delay.delay", "1 s")
    """Wait before a restart."""
    EXPONENTIAL_ATTEMPTS_BEFORE_RESET = within(whole, 1)(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff", "infinite"
    )
    """How many restarts are tried before the job fails."""
    EXPONENTIAL_MULTIPLIER = number("restart-strategy.exponential-delay.backoff-multiplier", "1.5")
    """Factor by which the wait grows with each restart."""
    EXPONENTIAL_INITIAL_BACKOFF = within(duration, 1)(
        "restart-strategy.exponential-delay.initial-backoff", "1 s"
    )
    """Wait before the first restart."""
    EXPONENTIAL_JITTER_FACTOR = within(number, 0, 1)(
        "restart-strategy.exponential-delay.jitter-factor", "0.1"
    )
    """Random share of the wait."""
    EXPONENTIAL_MAX_BACKOFF = duration("restart-strategy.exponential-delay.max-backoff", "1 min")
    """Longest wait."""
    EXPONENTIAL_RESET_THRESHOLD = within(duration, 1)(
        "restart-strategy.exponential-delay.reset-backoff-threshold", "1 h"
    )
    """After this time without a failure, the wait starts again at its initial length."""
    FAILURE_RATE_DELAY = duration("restart-strategy.failure-rate.delay", "1 s")
    """Wait before a restart."""
    FAILURE_RATE_INTERVAL = within(duration, 1)(
        "restart-strategy.failure-rate.failure-rate-interval", "1 min"
    )
    """Interval in which failures are counted."""
    FAILURE_RATE_MAX_FAILURES = within(whole, 1)(
        "restart-strategy.failure-rate.max-failures-per-interval", "1"
    )
    """How many failures are allowed per interval."""


class HistoryOptions(OptionGroup, title="History"):
    """How much of a job's past is kept."""

    EXCEPTIONS = whole("web.exception-history-size", "16")
    """How many failures of a job are kept. Failures at the same time are kept with each of them."""
    CHECKPOINTS = whole(
        "web.checkpoints.history", "10", former="jobmanager.web.checkpoints.history"
    )
    """How many ended checkpoints the statistics of a job show."""
    STORY = whole("penstock.story.size", "1000")
    """How many state changes of a job are kept."""
    ATTEMPTS = whole(
        "jobmanager.execution.attempts-history-size",
        "16",
        former="job-manager.max-attempts-history-size",
    )
    """How many past attempts of a subtask are kept."""


class ErrorOptions(OptionGroup, title="Errors"):
    """What an error contains."""

    FULL = flag("penstock.errors.full", "false")
    """Whether errors have Penstock's own frames too. They are always in the logs of driver and TaskManagers."""


class ConsoleOptions(OptionGroup, title="Console"):
    """What the driver prints."""

    PROGRESS = flag("penstock.console.progress", "true")
    """Whether the driver shows the progress of the job: lines, or a live view."""
    LIVE = flag("penstock.console.live", "false")
    """Show the progress as tables below the output of the program, where stderr is a terminal; `penstock run --live` sets it. What
    Spark's JVM writes there meanwhile may be drawn over."""
    PROGRESS_INTERVAL = duration("penstock.console.progress-interval", "1 s")
    """How often the live view gets new figures."""
    LINE_INTERVAL = duration("penstock.console.line-interval", "10 s")
    """How often a line shows the progress."""
