"""Options of tasks and their metrics.

Does not know their readers. Source: Flink TaskManagerOptions, MetricOptions. Differs: `penstock.*` keys are Penstock's
own.
"""

from typing import Final

from penstock.model.options.option import (
    OptionGroup,
    duration,
    fine_duration,
    flag,
    text,
    texts,
    whole,
)


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
        "Older way to set penstock.task.progress-timeout. Used when that is not set.",
    )
    PROGRESS_TIMEOUT: Final = duration(
        "penstock.task.progress-timeout",
        "10 s",
        (
            "When a call of a user function has not returned for this long, or input waits for "
            "this long and the task takes none of it, the driver prints a warning with the "
            "operator, the subtask and the stack of its thread, once. 0 turns this off."
        ),
        fallback=SLOW_CALL,
    )
    FAIL_WITHOUT_PROGRESS: Final = flag(
        "penstock.task.fail-without-progress",
        "false",
        (
            "Whether a task fails after penstock.task.progress-timeout, with that stack as the "
            "reason. If its call still does not return, its TaskManager ends after "
            "task.cancellation.timeout."
        ),
    )
    FUNCTIONS_AS_COLUMNS: Final = flag(
        "penstock.task.functions-as-columns",
        "true",
        (
            "Whether row functions may run on columns where their records come in columns, and key "
            "selectors and reduces without a call for each record, as the guide [Speed of row "
            "functions](../guides/row-functions.md) says. Set it to false to see each call in a "
            "debugger, or if results differ."
        ),
    )
    PARSE_UNREAD_FIELDS: Final = flag(
        "penstock.task.parse-unread-fields",
        "false",
        (
            "Whether a source of JSON reads all declared fields where the functions behind it read "
            "only some. false: a field that nobody reads is not checked against its type, as the "
            "guide [Speed of row functions](../guides/row-functions.md) says."
        ),
    )
    COLUMN_ROWS: Final = whole(
        "python.fn-execution.arrow.batch.size",
        None,
        (
            "How many rows a task that has a function or an aggregate of columns processes at most "
            "at once. Barriers and savepoints wait for one such call, so set it where the function "
            "is slow. Not set: as many as come together."
        ),
    )
    CANCELLATION_INTERVAL: Final = duration(
        "task.cancellation.interval",
        "30 s",
        "Time between two attempts to interrupt a cancelled task.",
        former_keys=("task.cancellation-interval",),
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
    """What is measured, and how it is named. The guide [Metrics](../guides/metrics.md) lists all metrics."""

    UPDATE_INTERVAL: Final = duration(
        "metrics.fetcher.update-interval",
        "10 s",
        (
            "How often TaskManagers report their metrics to the driver. A task reports at its end "
            "too. 0: never, so REST and reporters show none."
        ),
    )
    SYSTEM_RESOURCE: Final = flag(
        "metrics.system-resource",
        "false",
        "Whether TaskManagers measure their machine too: cores, memory, network.",
    )
    SYSTEM_RESOURCE_INTERVAL: Final = duration(
        "metrics.system-resource-probing-interval",
        "5 s",
        "How often they do. Shorter than 5 s counts as 5 s.",
    )
    NETWORK_DETAILS: Final = flag(
        "taskmanager.network.detailed-metrics",
        "false",
        "Whether the queues of each input gate and result partition have their own metrics.",
    )
    PYTHON: Final = flag(
        "python.metric.enabled",
        "true",
        "Whether functions have metrics of their own. If not, `get_metrics_group()` gives None.",
    )
    JOB_STATUS: Final = texts(
        "metrics.job.status.enable",
        "CURRENT_TIME",
        (
            "What the driver measures of each state of a job: `STATE` (1 in that state, else 0), "
            "`CURRENT_TIME` (ms since the job entered it), `TOTAL_TIME` (ms in it altogether)."
        ),
    )
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
    LATENCY_HISTORY: Final = whole(
        "metrics.latency.history-size", "128", "How many values each latency histogram keeps."
    )


class ScopeOptions(OptionGroup, title="Names of metrics"):
    """How reporters without tags name metrics. `<variable>` is replaced where it stands between two dots; `*` at the beginning stands for the format around it."""

    DELIMITER: Final = text(
        "metrics.scope.delimiter",
        ".",
        "What stands between the parts of an identifier. Only the first character counts.",
    )
    JOBMANAGER: Final = text(
        "metrics.scope.jm", "<host>.jobmanager", "Identifiers of metrics of the driver's process."
    )
    JM_JOB: Final = text(
        "metrics.scope.jm-job",
        "<host>.jobmanager.<job_name>",
        "Identifiers of metrics of a job on the driver.",
        former_keys=("metrics.scope.jm.job",),
    )
    JM_OPERATOR: Final = text(
        "metrics.scope.jm-operator",
        "<host>.jobmanager.<job_name>.<operator_name>",
        "Identifiers of metrics of coordinators.",
    )
    TASKMANAGER: Final = text(
        "metrics.scope.tm",
        "<host>.taskmanager.<tm_id>",
        "Identifiers of metrics of a TaskManager's process.",
    )
    TM_JOB: Final = text(
        "metrics.scope.tm-job",
        "<host>.taskmanager.<tm_id>.<job_name>",
        "Identifiers of metrics of a job on a TaskManager.",
        former_keys=("metrics.scope.tm.job",),
    )
    TASK: Final = text(
        "metrics.scope.task",
        "<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>",
        "Identifiers of metrics of tasks.",
    )
    OPERATOR: Final = text(
        "metrics.scope.operator",
        "<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>",
        "Identifiers of metrics of operators.",
    )
