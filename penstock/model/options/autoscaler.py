"""Options of the autoscaler, which gives running jobs more or fewer subtasks.

Does not know their readers. Source: the autoscaler of Flink's Kubernetes operator (AutoScalerOptions); its keys are also taken with
`kubernetes.operator.` before them. Differs: `penstock.*` keys are Penstock's own, and `penstock/model/elastic/elastic_profile.py` has other
defaults, because a rescale takes about a second here.
"""

from typing import Any, Final, TypeVar

from penstock.model.options.option import (
    Kind,
    Option,
    OptionGroup,
    duration,
    flag,
    number,
    size,
    text,
    texts,
    whole,
)

T = TypeVar("T")

_PREFIX: Final = "job.autoscaler."
_FORMER_PREFIX: Final = "kubernetes.operator."


def _of(kind: Kind[Any], name: str, default: str | None, doc: str, *, used: bool = True) -> Any:
    """An option of the autoscaler, which may also be called by the operator's name."""
    key = _PREFIX + name
    former = (_FORMER_PREFIX + key,)
    option: Option[Any] = Option(key, kind, default, doc, used, former)
    return option


class AutoscalerOptions(OptionGroup, title="Autoscaler"):
    """Whether jobs are rescaled, when, and what is remembered of that."""

    ENABLED: Final[Option[bool]] = _of(
        flag, "enabled", "false", "Whether jobs are measured, and their parallelism is evaluated."
    )
    SCALING_ENABLED: Final[Option[bool]] = _of(
        flag,
        "scaling.enabled",
        "true",
        "Whether decisions are carried out. `false`: they are only told, as recommendations.",
    )
    INTERVAL: Final[Option[int]] = _of(
        duration, "interval", "10 s", "Time between two measurements of a job."
    )
    EXCLUDED_PERIODS: Final[Option[str | None]] = _of(
        text,
        "excluded.periods",
        None,
        (
            "Times in UTC without rescales, with semicolons between them: `9:30-10:50` on every "
            "day, a cron expression of Quartz, or both with `&&`: `9:30-10:50 && * * * ? * 2,5`."
        ),
    )
    VERTEX_EXCLUDE_IDS: Final[Option[list[str] | None]] = _of(
        texts, "vertex.exclude.ids", None, "Ids of vertices that keep their parallelism."
    )
    QUOTA_CPU: Final[Option[float | None]] = _of(
        number, "quota.cpu", None, "A job does not grow above so many cores."
    )
    QUOTA_MEMORY: Final[Option[int | None]] = _of(
        size, "quota.memory", None, "A job does not grow above so much memory."
    )
    GC_PRESSURE_THRESHOLD: Final[Option[float]] = _of(
        number,
        "memory.gc-pressure.threshold",
        "1.0",
        "Nothing is rescaled while garbage collection takes a larger share of the time.",
    )
    HEAP_USAGE_THRESHOLD: Final[Option[float]] = _of(
        number,
        "memory.heap-usage.threshold",
        "1.0",
        "Nothing is rescaled while a larger share of the memory is in use.",
    )
    HISTORY_MAX_COUNT: Final[Option[int]] = _of(
        whole, "history.max.count", "3", "How many rescales of each vertex are remembered."
    )
    HISTORY_MAX_AGE: Final[Option[int]] = _of(
        duration, "history.max.age", "24 h", "How long a rescale is remembered."
    )
    EVENT_INTERVAL: Final[Option[int]] = _of(
        duration, "scaling.event.interval", "30 min", "Time before the same event is told again."
    )


class AutoscalerMetricOptions(OptionGroup, title="Autoscaler: measurements"):
    """What counts of the measurements of a job."""

    METRICS_WINDOW: Final[Option[int]] = _of(
        duration, "metrics.window", "15 min", "How far back the measurements of a decision reach."
    )
    STABILIZATION_INTERVAL: Final[Option[int]] = _of(
        duration,
        "stabilization.interval",
        "5 min",
        "How long a job runs after each start before measurements count.",
    )
    BUSY_TIME_AGGREGATOR: Final[Option[str]] = _of(
        text,
        "metrics.busy-time.aggregator",
        "MAX",
        "Which subtask's busy time counts for its vertex: MAX, MIN or AVG.",
    )
    OBSERVED_LAG_THRESHOLD: Final[Option[int]] = _of(
        duration,
        "observed-true-processing-rate.lag-threshold",
        "30 s",
        "With more waiting than it reads in this time, a source shows how fast it can be.",
    )
    OBSERVED_SWITCH_THRESHOLD: Final[Option[float]] = _of(
        number,
        "observed-true-processing-rate.switch-threshold",
        "0.15",
        "What a source has shown counts if its busy time promises so much more.",
    )
    OBSERVED_MIN_OBSERVATIONS: Final[Option[int]] = _of(
        whole,
        "observed-true-processing-rate.min-observations",
        "2",
        "How often a source must have shown it in the window.",
    )


class AutoscalerTargetOptions(OptionGroup, title="Autoscaler: targets"):
    """What a vertex should be able to do, and when it is left alone."""

    UTILIZATION_TARGET: Final[Option[float]] = _of(
        number,
        "utilization.target",
        "0.7",
        "Share of its time that a vertex should be busy, above 0 and at most 1.",
    )
    UTILIZATION_MAX: Final[Option[float | None]] = _of(
        number,
        "utilization.max",
        None,
        "A vertex that would be busier than this grows. Without it: the target and the boundary.",
    )
    UTILIZATION_MIN: Final[Option[float | None]] = _of(
        number,
        "utilization.min",
        None,
        "A vertex that is less busy than this shrinks. Without it: the target less the boundary.",
    )
    UTILIZATION_BOUNDARY: Final[Option[float]] = _of(
        number,
        "target.utilization.boundary",
        "0.3",
        "How far the bounds lie from the target, where they are not set.",
    )
    CATCH_UP_DURATION: Final[Option[int]] = _of(
        duration,
        "catch-up.duration",
        "30 min",
        "In this time a job should work off what waits in its sources. 0: no room for that.",
    )
    RESTART_TIME: Final[Option[int]] = _of(
        duration, "restart.time", "5 min", "Expected time of a rescale, before one was measured."
    )
    RESTART_TIME_TRACKING: Final[Option[bool]] = _of(
        flag,
        "restart.time-tracking.enabled",
        "false",
        "Whether the longest rescale that was measured replaces the expected time.",
    )
    RESTART_TIME_LIMIT: Final[Option[int]] = _of(
        duration, "restart.time-tracking.limit", "15 min", "Longest time of a rescale that counts."
    )
    BACKLOG_LAG_THRESHOLD: Final[Option[int]] = _of(
        duration,
        "backlog-processing.lag-threshold",
        "5 min",
        (
            "While a source has more waiting than it reads in this time, nothing shrinks, and a "
            "vertex grows only if it cannot follow."
        ),
    )


class AutoscalerStepOptions(OptionGroup, title="Autoscaler: steps"):
    """How far a rescale goes, and when a vertex shrinks or stops growing."""

    VERTEX_MIN_PARALLELISM: Final[Option[int]] = _of(
        whole, "vertex.min-parallelism", "1", "A vertex does not shrink below this parallelism."
    )
    VERTEX_MAX_PARALLELISM: Final[Option[int]] = _of(
        whole, "vertex.max-parallelism", "200", "A vertex does not grow above this parallelism."
    )
    SCALE_DOWN_MAX_FACTOR: Final[Option[float]] = _of(
        number,
        "scale-down.max-factor",
        "0.6",
        "Largest share of its subtasks that a vertex loses in one step.",
    )
    SCALE_UP_MAX_FACTOR: Final[Option[float]] = _of(
        number,
        "scale-up.max-factor",
        "100000",
        "By how many times its parallelism a vertex grows in one step; 1.0 doubles it.",
    )
    SCALE_DOWN_INTERVAL: Final[Option[int]] = _of(
        duration,
        "scale-down.interval",
        "1 h",
        (
            "A vertex shrinks when it has been asked to for this long, to the largest parallelism "
            "that was asked for in this time."
        ),
    )
    ALIGNMENT_MODE: Final[Option[str]] = _of(
        text,
        "scaling.parallelism-alignment.mode",
        "BALANCED",
        (
            "How a parallelism is made to fit partitions of sources and key groups: EVENLY_SPREAD "
            "(divisors only), BALANCED (also if the largest share gets smaller) or OFF."
        ),
    )
    ALIGNMENT_MAX_ADDED: Final = number(
        "penstock.autoscaler.alignment.max-added",
        "inf",
        "A parallelism is aligned only if that adds less than this share to it.",
    )
    AT_MOST_PARTITIONS: Final = flag(
        "penstock.autoscaler.at-most-partitions",
        "false",
        "Whether a source gets no more subtasks than it has partitions.",
    )
    EFFECTIVENESS_ENABLED: Final[Option[bool]] = _of(
        flag,
        "scaling.effectiveness.detection.enabled",
        "false",
        "Whether a vertex stops growing when growing has not helped. Without it: only an event.",
    )
    EFFECTIVENESS_THRESHOLD: Final[Option[float]] = _of(
        number,
        "scaling.effectiveness.threshold",
        "0.1",
        "Share of the expected gain that an increase must bring.",
    )
    TOLERATED_INEFFECTIVE: Final = whole(
        "penstock.autoscaler.tolerated-ineffective-scalings",
        "0",
        (
            "With detection enabled: so many increases in a row may fail to help before the next "
            "one is blocked. Each of them is told as an event."
        ),
    )
    SCALABILITY_ENABLED: Final[Option[bool]] = _of(
        flag,
        "observed-scalability.enabled",
        "false",
        "Whether former rescales tell how much a further subtask brings.",
    )
    SCALABILITY_MIN_OBSERVATIONS: Final[Option[int]] = _of(
        whole, "observed-scalability.min-observations", "3", "How many rescales that takes."
    )
    SCALABILITY_COEFFICIENT_MIN: Final[Option[float]] = _of(
        number,
        "observed-scalability.coefficient-min",
        "0.5",
        "Smallest share of a subtask's rate that a further one is expected to bring.",
    )


class AutoscalerMemoryOptions(OptionGroup, title="Autoscaler: memory"):
    """How the memory of Java processes follows their number."""

    MEMORY_TUNING: Final[Option[bool]] = _of(
        flag, "memory.tuning.enabled", "false", "For memory of Java processes.", used=False
    )
    MEMORY_TUNING_OVERHEAD: Final[Option[float]] = _of(
        number, "memory.tuning.overhead", "0.2", "For memory of Java processes.", used=False
    )
    MEMORY_TUNING_MAXIMIZE: Final[Option[bool]] = _of(
        flag,
        "memory.tuning.maximize-managed-memory",
        "false",
        "For memory of Java processes.",
        used=False,
    )
    MEMORY_TUNING_COMPENSATION: Final[Option[bool]] = _of(
        flag,
        "memory.tuning.scale-down-compensation.enabled",
        "true",
        "For memory of Java processes.",
        used=False,
    )
