"""Options of logs, thread dumps and flame graphs.

Does not know their readers. Source: Flink CoreOptions (env.log.*), TaskManagerOptions, RestOptions, ClusterOptions.
Differs: `penstock.*` keys are Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, size, text, whole


class LogOptions(OptionGroup, title="Logs"):
    """Where the driver and each TaskManager log, and what."""

    DIR: Final = text(
        "env.log.dir",
        None,
        (
            "Folder of all log files, on the driver and on each executor. Without it: a folder of "
            "the process among the temporary files, which goes with the process."
        ),
    )
    LEVEL: Final = text(
        "env.log.level",
        "INFO",
        "The lowest level that is logged. Levels that the program sets for its own loggers win.",
    )
    MAX: Final = whole("env.log.max", "10", "How many older files of a log are kept.")
    MAX_SIZE: Final = size(
        "penstock.log.max-file-size", "100 mb", "A log file of this size is replaced by a new one."
    )
    FORMAT: Final = text(
        "penstock.log.format", "text", "`text`, or `json`: one JSON object for each line."
    )
    TASKMANAGER_PATH: Final = text(
        "taskmanager.log.path",
        None,
        (
            "Path of a TaskManager's log. Job and TaskManager are put before its ending, because "
            "several share a machine. What tasks print lies beside it, with the ending `.out`."
        ),
    )
    SLOW_CHECKPOINT: Final = duration(
        "penstock.log.slow-checkpoint",
        "30 s",
        "A checkpoint that takes longer than this is logged as a warning. 0 turns this off.",
    )


class StackOptions(OptionGroup, title="Thread dumps and flame graphs"):
    """What is told of the stacks of threads."""

    DUMP_DEPTH: Final = whole(
        "cluster.thread-dump.stacktrace-max-depth",
        "50",
        "How many frames of a thread a thread dump has.",
    )
    FLAME_GRAPHS: Final = flag(
        "rest.flamegraph.enabled", "false", "Whether flame graphs can be asked for."
    )
    SAMPLES: Final = whole(
        "rest.flamegraph.num-samples", "100", "How many samples a flame graph is made of."
    )
    DELAY: Final = duration(
        "rest.flamegraph.delay-between-samples", "50 ms", "Time between two samples."
    )
    DEPTH: Final = whole(
        "rest.flamegraph.stack-depth", "100", "How many of the innermost frames a sample has."
    )
    REFRESH_INTERVAL: Final = duration(
        "rest.flamegraph.refresh-interval",
        "1 min",
        "A flame graph that is older is still given, while a new one is made.",
    )
    CLEANUP_INTERVAL: Final = duration(
        "rest.flamegraph.cleanup-interval",
        "10 min",
        "A flame graph that nobody has asked for in this time is dropped.",
    )
