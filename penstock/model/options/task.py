"""Options of tasks and of what is measured in them.

Knows no reader. Source: Flink TaskManagerOptions, MetricOptions.
Differs: `penstock.*` keys are ours.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, fine_duration, flag, text


class TaskOptions(OptionGroup, title="Tasks"):
    """How a task takes its turns and how it is cancelled."""

    MAX_STEP_TIME: Final = fine_duration(
        "penstock.task.max-step-time",
        "5 ms",
        "Longest stretch of user code between two looks at the mailbox.",
    )
    CHECK_THREADS: Final = flag(
        "penstock.task.check-threads",
        "false",
        "Debugging: an error when another thread than a task's own touches its state. Always "
        "so on a MiniCluster.",
    )
    SLOW_CALL: Final = duration(
        "penstock.task.slow-call",
        "10 s",
        "A function that has not come back for so long is named, with its stack; 0: never.",
    )
    CANCELLATION_INTERVAL: Final = duration(
        "task.cancellation.interval",
        "30 s",
        "Between two attempts to interrupt a cancelled task.",
    )
    CANCELLATION_TIMEOUT: Final = duration(
        "task.cancellation.timeout",
        "3 min",
        "A cancelled task that lives longer ends its TaskManager; 0: never.",
    )


class MetricOptions(OptionGroup, title="Metrics"):
    """What is measured."""

    LATENCY_INTERVAL: Final = duration(
        "metrics.latency.interval",
        "0 ms",
        "How often sources send latency markers; 0: never.",
    )
    LATENCY_GRANULARITY: Final = text(
        "metrics.latency.granularity",
        "operator",
        "What has a histogram of its own: single, operator (each source), subtask (of each "
        "source).",
    )
