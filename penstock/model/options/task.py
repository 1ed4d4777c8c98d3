"""Options of tasks and their metrics.

Does not know their readers. Source: Flink TaskManagerOptions, MetricOptions. Differs: `penstock.*` keys are Penstock's
own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, fine_duration, flag, text


class TaskOptions(OptionGroup, title="Tasks"):
    """How a task takes its turns and how it is cancelled."""

    MAX_STEP_TIME: Final = fine_duration(
        "penstock.task.max-step-time",
        "5 ms",
        (
            "How long user code may run before the task looks at its mailbox again. Longer "
            "batches are sliced."
        ),
    )
    CHECK_THREADS: Final = flag(
        "penstock.task.check-threads",
        "false",
        (
            "For debugging: raises an error when a thread other than the task's own touches its "
            "state. A MiniCluster always checks."
        ),
    )
    SLOW_CALL: Final = duration(
        "penstock.task.slow-call",
        "10 s",
        (
            "When a call of a user function takes longer than this, the driver prints its name "
            "and its stack. 0 turns this off."
        ),
    )
    CANCELLATION_INTERVAL: Final = duration(
        "task.cancellation.interval",
        "30 s",
        "Time between two attempts to interrupt a cancelled task.",
    )
    CANCELLATION_TIMEOUT: Final = duration(
        "task.cancellation.timeout",
        "3 min",
        (
            "A cancelled task that still runs after this time ends its TaskManager. 0 turns this "
            "off."
        ),
    )


class MetricOptions(OptionGroup, title="Metrics"):
    """What is measured."""

    LATENCY_INTERVAL: Final = duration(
        "metrics.latency.interval",
        "0 ms",
        "How often sources send latency markers. 0 turns them off.",
    )
    LATENCY_GRANULARITY: Final = text(
        "metrics.latency.granularity",
        "operator",
        (
            "What has a latency histogram of its own: `single` (one for everything), `operator` "
            "(each source) or `subtask` (each subtask of a source)."
        ),
    )
