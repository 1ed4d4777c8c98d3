"""Options of tasks, their metrics and their logs, of thread dumps and flame graphs.

Source: Flink TaskManagerOptions, MetricOptions, CoreOptions (env.log.*), RestOptions, ClusterOptions.
"""

from penstock.engine.model.options.option import (
    OptionGroup,
    duration,
    fine_duration,
    flag,
    one_of,
    size,
    text,
    texts,
    whole,
    within,
)


class TaskOptions(OptionGroup, title="Tasks"):
    """How a task takes its turns and how it is cancelled."""

    MAX_STEP_TIME = fine_duration("penstock.task.max-step-time", "5 ms")
    """How long user code may run before the task looks at its mailbox again. Longer batches are sliced."""
    CHECK_THREADS = flag("penstock.task.check-threads", "false")
    """For debugging: raises an error when a thread other than the task's own touches its state. A MiniCluster always
    checks."""
    PROGRESS_TIMEOUT = duration("penstock.task.progress-timeout", "10 s")
    """When a call of a user function has not returned for this long, or input waits for this long and the task takes
    none of it, the driver prints a warning with the operator, the subtask and the stack of its thread, once. 0 turns
    this off."""
    FAIL_WITHOUT_PROGRESS = flag("penstock.task.fail-without-progress", "false")
    """Whether a task fails after penstock.task.progress-timeout, with that stack as the reason. If its call still does
    not return, its TaskManager ends after task.cancellation.timeout."""
    FUNCTIONS_AS_COLUMNS = flag("penstock.task.functions-as-columns", "true")
    """Whether row functions and key selectors may run on columns where their records come in columns, as the guide
    [Speed of row functions](../guides/row-functions.md) says. Results are the same; set it to false to see each call
    with its record."""
    PARSE_UNREAD_FIELDS = flag("penstock.task.parse-unread-fields", "false")
    """Whether a source of JSON reads all declared fields where the functions after it read only some. false: a field
    that nobody reads is not checked against its type, as the guide [Speed of row
    functions](../guides/row-functions.md) says."""
    COLUMN_ROWS = within(whole, 1)("python.fn-execution.arrow.batch.size")
    """How many rows a task that has a function or an aggregate of columns processes at most at once. Barriers and
    savepoints wait for one such call, so set it where the function is slow. Not set: as many as come together."""
    CANCELLATION_INTERVAL = duration(
        "task.cancellation.interval", "30 s", former="task.cancellation-interval"
    )
    """Time between two attempts to interrupt a cancelled task."""
    CANCELLATION_TIMEOUT = duration("task.cancellation.timeout", "3 min")
    """A cancelled task that still runs after this time ends its TaskManager. 0 turns this off."""


class MetricOptions(OptionGroup, title="Metrics"):
    """What is measured, and how it is named. The guide [Metrics](../guides/metrics.md) lists all metrics."""

    UPDATE_INTERVAL = duration("metrics.fetcher.update-interval", "10 s")
    """How often TaskManagers report their metrics to the driver. A task reports at its beginning and end too. 0: never, so REST and
    reporters show none."""
    SYSTEM_RESOURCE = flag("metrics.system-resource", "false")
    """Whether TaskManagers measure their machine too: cores, memory, network."""
    SYSTEM_RESOURCE_INTERVAL = duration("metrics.system-resource-probing-interval", "5 s")
    """How often they do. Shorter than 5 s counts as 5 s."""
    NETWORK_DETAILS = flag("taskmanager.network.detailed-metrics", "false")
    """Whether the queues of each input gate and result partition have their own metrics."""
    PYTHON = flag("python.metric.enabled", "true")
    """Whether functions have metrics of their own. If not, `get_metrics_group()` gives None."""
    JOB_STATUS = texts("metrics.job.status.enable", "CURRENT_TIME")
    """What the driver measures of each state of a job: `STATE` (1 in that state, else 0), `CURRENT_TIME` (ms since the
    job entered it), `TOTAL_TIME` (ms in it altogether)."""
    LATENCY_INTERVAL = duration("metrics.latency.interval", "0 ms")
    """How often sources send latency markers. 0 turns them off."""
    LATENCY_GRANULARITY = one_of(("single", "operator", "subtask"), str.lower)(
        "metrics.latency.granularity", "operator"
    )
    """What has a latency histogram of its own: `single` (one for everything), `operator` (each source) or `subtask`
    (each subtask of a source)."""
    LATENCY_HISTORY = within(whole, 1)("metrics.latency.history-size", "128")
    """How many values each latency histogram keeps."""


class ScopeOptions(OptionGroup, title="Names of metrics"):
    """How reporters without tags name metrics. `<variable>` is replaced where it stands between two dots; `*` at the
    beginning stands for the format around it."""

    DELIMITER = text("metrics.scope.delimiter", ".")
    """What stands between the parts of an identifier. Only the first character counts."""
    JOBMANAGER = text("metrics.scope.jm", "<host>.jobmanager")
    """Identifiers of metrics of the driver's process."""
    JM_JOB = text(
        "metrics.scope.jm-job", "<host>.jobmanager.<job_name>", former="metrics.scope.jm.job"
    )
    """Identifiers of metrics of a job on the driver."""
    JM_OPERATOR = text("metrics.scope.jm-operator", "<host>.jobmanager.<job_name>.<operator_name>")
    """Identifiers of metrics of coordinators."""
    TASKMANAGER = text("metrics.scope.tm", "<host>.taskmanager.<tm_id>")
    """Identifiers of metrics of a TaskManager's process."""
    TM_JOB = text(
        "metrics.scope.tm-job",
        "<host>.taskmanager.<tm_id>.<job_name>",
        former="metrics.scope.tm.job",
    )
    """Identifiers of metrics of a job on a TaskManager."""
    TASK = text(
        "metrics.scope.task", "<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>"
    )
    """Identifiers of metrics of tasks."""
    OPERATOR = text(
        "metrics.scope.operator",
        "<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>",
    )
    """Identifiers of metrics of operators."""


class LogOptions(OptionGroup, title="Logs"):
    """Where the driver and each TaskManager log, and what."""

    DIR = text("env.log.dir")
    """Folder of all log files, on the driver and on each executor. Without it: a folder of the process among the
    temporary files, which goes with the process."""
    LEVEL = text("env.log.level", "INFO")
    """The lowest level that is logged. Levels that the program sets for its own loggers win."""
    MAX = whole("env.log.max", "10")
    """How many older files of a log are kept."""
    MAX_SIZE = size("penstock.log.max-file-size", "100 mb")
    """A log file of this size is replaced by a new one."""
    FORMAT = one_of(("text", "json"), str.lower)("penstock.log.format", "text")
    """`text`, or `json`: one JSON object for each line."""
    TASKMANAGER_PATH = text("taskmanager.log.path")
    """Path of a TaskManager's log. Job and TaskManager are put before its ending, because several share a machine. What
    tasks print lies next to it, with the ending `.out`."""
    SLOW_CHECKPOINT = duration("penstock.log.slow-checkpoint", "30 s")
    """A checkpoint that takes longer than this is logged as a warning. 0 turns this off."""


class StackOptions(OptionGroup, title="Thread dumps and flame graphs"):
    """What is reported of the stacks of threads."""

    DUMP_DEPTH = whole("cluster.thread-dump.stacktrace-max-depth", "50")
    """How many frames of a thread a thread dump has."""
    FLAME_GRAPHS = flag("rest.flamegraph.enabled", "false")
    """Whether flame graphs can be asked for."""
    SAMPLES = whole("rest.flamegraph.num-samples", "100")
    """How many samples a flame graph is made of."""
    DELAY = duration("rest.flamegraph.delay-between-samples", "50 ms")
    """Time between two samples."""
    DEPTH = whole("rest.flamegraph.stack-depth", "100")
    """How many of the innermost frames a sample has."""
    REFRESH_INTERVAL = duration("rest.flamegraph.refresh-interval", "1 min")
    """A flame graph that is older is still given, while a new one is made."""
    CLEANUP_INTERVAL = duration("rest.flamegraph.cleanup-interval", "10 min")
    """A flame graph that nobody has asked for in this time is dropped."""
