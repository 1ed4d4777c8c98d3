"""Options of jobs whose parallelism changes while they run, and of the autoscaler, which changes it.

Source: the autoscaler of Flink's Kubernetes operator (AutoScalerOptions); Flink JobManagerOptions, WebOptions (docs/spec/elasticity.md#options).
Differs: where nothing is set, `penstock/engine/model/elastic.py` may have other values, because a rescale takes about a
second here.
"""

from enum import StrEnum

from penstock.engine.model.options.option import (
    OptionGroup,
    duration,
    flag,
    number,
    one_of,
    signed_duration,
    size,
    text,
    texts,
    whole,
    within,
)


class AutoscalerOptions(OptionGroup, title="Autoscaler"):
    """Whether jobs are rescaled, when, and what is remembered of that. Keys that begin with `job.autoscaler.` may also
    have the name that Flink's Kubernetes operator gave them, with `kubernetes.operator.` before."""

    ENABLED = flag("job.autoscaler.enabled", "false")
    """Whether jobs are measured, and their parallelism is evaluated."""
    SCALING_ENABLED = flag("job.autoscaler.scaling.enabled", "true")
    """Whether decisions are carried out. `false`: they are only reported, as recommendations."""
    INTERVAL = duration("job.autoscaler.interval", "10 s")
    """Time between two measurements of a job."""
    VERTEX_EXCLUDE_IDS = texts("job.autoscaler.vertex.exclude.ids")
    """Ids of vertices that keep their parallelism."""
    QUOTA_CPU = number("job.autoscaler.quota.cpu")
    """The most cores that a job may grow to."""
    QUOTA_MEMORY = size("job.autoscaler.quota.memory")
    """A job does not grow above so much memory."""
    GC_PRESSURE_THRESHOLD = number("job.autoscaler.memory.gc-pressure.threshold", "1.0")
    """Nothing is rescaled while garbage collection takes a larger share of the time."""
    HEAP_USAGE_THRESHOLD = number("job.autoscaler.memory.heap-usage.threshold", "1.0")
    """Nothing is rescaled while a larger share of the memory is in use."""
    HISTORY_MAX_COUNT = whole("job.autoscaler.history.max.count", "3")
    """How many rescales of each vertex are remembered."""
    HISTORY_MAX_AGE = duration("job.autoscaler.history.max.age", "24 h")
    """How long a rescale is remembered."""
    EVENT_INTERVAL = duration("job.autoscaler.scaling.event.interval", "30 min")
    """Time before the same event is reported again."""


class AutoscalerMetricOptions(OptionGroup, title="Autoscaler: measurements"):
    """What counts of the measurements of a job."""

    METRICS_WINDOW = duration("job.autoscaler.metrics.window", "15 min")
    """How far back the measurements of a decision reach."""
    STABILIZATION_INTERVAL = duration("job.autoscaler.stabilization.interval", "5 min")
    """How long a job runs after each start before measurements count."""
    BUSY_TIME_AGGREGATOR = text("job.autoscaler.metrics.busy-time.aggregator", "MAX")
    """Which subtask's busy time counts for its vertex: MAX, MIN or AVG."""
    OBSERVED_LAG_THRESHOLD = duration(
        "job.autoscaler.observed-true-processing-rate.lag-threshold", "30 s"
    )
    """With more waiting than it reads in this time, a source shows how fast it can be."""
    OBSERVED_SWITCH_THRESHOLD = number(
        "job.autoscaler.observed-true-processing-rate.switch-threshold", "0.15"
    )
    """What a source has shown counts if its busy time promises so much more."""
    OBSERVED_MIN_OBSERVATIONS = whole(
        "job.autoscaler.observed-true-processing-rate.min-observations", "2"
    )
    """How often a source must have shown it in the window."""


class AutoscalerTargetOptions(OptionGroup, title="Autoscaler: targets"):
    """What a vertex should be able to do, and when it is left alone."""

    UTILIZATION_TARGET = number("job.autoscaler.utilization.target", "0.7")
    """Share of its time that a vertex should be busy, above 0 and at most 1."""
    UTILIZATION_MAX = number("job.autoscaler.utilization.max")
    """A vertex that would be busier than this grows. Without it: the target and the boundary."""
    UTILIZATION_MIN = number("job.autoscaler.utilization.min")
    """A vertex that is less busy than this shrinks. Without it: the target less the boundary."""
    UTILIZATION_BOUNDARY = number("job.autoscaler.target.utilization.boundary", "0.3")
    """How far the bounds lie from the target, where they are not set."""
    CATCH_UP_DURATION = duration("job.autoscaler.catch-up.duration", "30 min")
    """In this time a job should work off what waits in its sources. 0: no room for that."""
    RESTART_TIME = duration("job.autoscaler.restart.time", "5 min")
    """Expected time of a rescale, before one was measured."""
    RESTART_TIME_TRACKING = flag("job.autoscaler.restart.time-tracking.enabled", "false")
    """Whether the longest rescale that was measured replaces the expected time."""
    RESTART_TIME_LIMIT = duration("job.autoscaler.restart.time-tracking.limit", "15 min")
    """Longest time of a rescale that counts."""
    BACKLOG_LAG_THRESHOLD = duration("job.autoscaler.backlog-processing.lag-threshold", "5 min")
    """While a source has more waiting than it reads in this time, nothing shrinks, and a vertex grows only if it cannot
    follow."""


class AutoscalerStepOptions(OptionGroup, title="Autoscaler: steps"):
    """How far a rescale goes, and when a vertex shrinks or stops growing."""

    VERTEX_MIN_PARALLELISM = whole("job.autoscaler.vertex.min-parallelism", "1")
    """A vertex does not shrink below this parallelism."""
    VERTEX_MAX_PARALLELISM = whole("job.autoscaler.vertex.max-parallelism", "200")
    """A vertex does not grow above this parallelism."""
    SCALE_DOWN_MAX_FACTOR = number("job.autoscaler.scale-down.max-factor", "0.6")
    """Largest share of its subtasks that a vertex loses in one step."""
    SCALE_UP_MAX_FACTOR = number("job.autoscaler.scale-up.max-factor", "100000")
    """By how many times its parallelism a vertex grows in one step; 1.0 doubles it."""
    SCALE_DOWN_INTERVAL = duration("job.autoscaler.scale-down.interval", "1 h")
    """A vertex shrinks when it has been asked to for this long, to the largest parallelism that was asked for in this
    time."""
    ALIGNMENT_MODE = text("job.autoscaler.scaling.parallelism-alignment.mode", "BALANCED")
    """How a parallelism is made to fit partitions of sources and key groups: EVENLY_SPREAD (divisors only), BALANCED
    (also if the largest share gets smaller) or OFF."""
    ALIGNMENT_MAX_ADDED = number("penstock.autoscaler.alignment.max-added", "inf")
    """A parallelism is aligned only if that adds less than this share to it."""
    AT_MOST_PARTITIONS = flag("penstock.autoscaler.at-most-partitions", "false")
    """Whether a source gets no more subtasks than it has partitions."""
    EFFECTIVENESS_ENABLED = flag("job.autoscaler.scaling.effectiveness.detection.enabled", "false")
    """Whether a vertex stops growing when growing has not helped. Without it: only an event."""
    EFFECTIVENESS_THRESHOLD = number("job.autoscaler.scaling.effectiveness.threshold", "0.1")
    """Share of the expected gain that an increase must bring."""
    TOLERATED_INEFFECTIVE = whole("penstock.autoscaler.tolerated-ineffective-scalings", "0")
    """With detection enabled: how many increases in a row may fail to help before the next one is
    blocked. Each of them is reported as an event.
    """
    SCALABILITY_ENABLED = flag("job.autoscaler.observed-scalability.enabled", "false")
    """Whether the gain of a further subtask is estimated from former rescales."""
    SCALABILITY_MIN_OBSERVATIONS = whole(
        "job.autoscaler.observed-scalability.min-observations", "3"
    )
    """How many rescales that takes."""
    SCALABILITY_COEFFICIENT_MIN = number(
        "job.autoscaler.observed-scalability.coefficient-min", "0.5"
    )
    """Smallest share of a subtask's rate that a further one is expected to bring."""


class ElasticProfile(StrEnum):
    """The defaults of elastic jobs: of Penstock, or of Flink.

    `penstock.elastic.profile` chooses between them, for options that nobody sets. Does not know the readers of options.
    Source: none in Flink. Flink's defaults are made for rescales that take minutes.

    Whose defaults count.
    """

    PENSTOCK = "penstock"
    FLINK = "flink"


class ElasticOptions(OptionGroup, title="Elastic jobs"):
    """When the parallelism of a running job changes: one of the Adaptive scheduler, a reactive one, one with an autoscaler, or any other since
    somebody has first asked to rescale it."""

    PROFILE = one_of(ElasticProfile, str.lower)("penstock.elastic.profile", "penstock")
    """Values of the options of this table and of the autoscaler's that are not set: `penstock`, or `flink` for Flink's
    where they differ. A rescale takes about a second here, so the times are shorter."""
    MODE = one_of(("REACTIVE",), str.upper)("scheduler-mode")
    """`reactive`: the job uses all slots that there are, up to the max parallelism of its vertices."""
    WAIT_TIMEOUT = signed_duration(
        "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
        "5 min",
        older="jobmanager.adaptive-scheduler.resource-wait-timeout",
    )
    """How long a job waits for enough slots before it continues with what there is, or fails.
    Negative: for ever, as in reactive mode if it is not set.
    """
    SUBMISSION_STABILIZATION = duration(
        "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
        "10 s",
        older="jobmanager.adaptive-scheduler.resource-stabilization-timeout",
    )
    """How long a job that could start waits for the rest of the slots that it wants. In reactive mode not at all, if it
    is not set."""
    COOLDOWN = duration(
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
        "30 s",
        older="jobmanager.adaptive-scheduler.scaling-interval.min",
    )
    """How long the parallelism stays as it is after a job has begun to run, also after a failure."""
    EXECUTING_STABILIZATION = duration(
        "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout", "1 min"
    )
    """How long a job that could change waits for the rest of the slots that it wants. In the profile `penstock` only
    while TaskManagers are starting, if it is not set."""
    MAX_CHECKPOINT_FAILURES = within(whole, 1)(
        "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures", "2"
    )
    """A change waits for the next completed checkpoint, or for this number of failed ones."""
    MAX_TRIGGER_DELAY = duration("jobmanager.adaptive-scheduler.rescale-trigger.max-delay")
    """How long a change waits for a checkpoint. Flink without it: one interval of checkpoints more than failed ones
    are waited for. Not at all if the job takes none and it is not set."""
    PREFERS_FEW_TASKMANAGERS = flag(
        "jobmanager.adaptive-scheduler.prefer-minimal-taskmanagers", "true"
    )
    """Whether slots that are not needed are left together, so that whole TaskManagers become idle."""
    HISTORY_SIZE = within(whole, 0)("web.adaptive-scheduler.rescale-history.size", "0")
    """How many rescales of a job are kept."""
    KEPT_STATE = size("penstock.elastic.kept-state", "128 mb")
    """How much of the state that its subtasks write for a planned change a TaskManager keeps in memory. Subtasks of the
    next generation take it from there; the rest from the checkpoint directory. It is kept until the next checkpoint
    is complete, at most for a minute. `0`: all state is read from the checkpoint directory."""
