"""Options of TaskManagers, of their number, and of Spark.

Does not know their readers. Source: Flink TaskManagerOptions, ResourceManagerOptions, HeartbeatManagerOptions. Differs:
`penstock.*` keys are Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, number, text, whole


class TaskManagerOptions(OptionGroup, title="TaskManagers"):
    """A TaskManager: its slots, its process, and when it is given up."""

    KEEP_CORE: Final = flag(
        "penstock.taskmanager.keep-core",
        "true",
        (
            "On Linux, a busy TaskManager stays on one core: its threads take turns because of "
            "the GIL."
        ),
    )
    TIME_SLICES: Final = flag(
        "penstock.taskmanager.time-slices",
        "true",
        (
            "On Linux from 6.12, threads of a TaskManager that compute get longer time slices than "
            "those that pass records on, so that records do not wait beside a busy function."
        ),
    )
    MAX_TASKMANAGERS: Final = whole(
        "penstock.taskmanager.max",
        None,
        "Largest number of TaskManagers at one time. Without it: as many as the job needs.",
    )
    START_TIMEOUT: Final = duration(
        "penstock.taskmanager.start-timeout",
        "2 min",
        "How long a TaskManager may take to register.",
    )
    SILENCE_TIMEOUT: Final = duration(
        "penstock.jobmanager.silence-timeout",
        "50 s",
        "A TaskManager ends when it has heard nothing from its JobManager for this long.",
    )
    FROZEN_TIMEOUT: Final = duration(
        "penstock.taskmanager.frozen-timeout",
        "30 s",
        (
            "A TaskManager in which no task has moved for this long is replaced. A C call that "
            "holds the GIL can cause that. Also how long a TaskManager whose process lives may get "
            "no processor."
        ),
    )
    SLOTS: Final = whole("taskmanager.numberOfTaskSlots", "1", "Slots of one TaskManager.")
    LOAD_BALANCE_MODE: Final = text(
        "taskmanager.load-balance.mode",
        "NONE",
        "How tasks are spread over TaskManagers: NONE, SLOTS, TASKS or MIN_RESOURCES.",
    )
    EVENLY_SPREAD_OUT_SLOTS: Final = flag(
        "cluster.evenly-spread-out-slots",
        "false",
        (
            "Older way to set load-balance mode SLOTS. Used when taskmanager.load-balance.mode is "
            "not set."
        ),
    )


class HeartbeatOptions(OptionGroup, title="Heartbeats"):
    """How the loss of a process is noticed."""

    INTERVAL: Final = duration("heartbeat.interval", "10 s", "Time between two heartbeats.")
    TIMEOUT: Final = duration(
        "heartbeat.timeout",
        "50 s",
        "A peer that has been silent for this long counts as lost.",
    )


class ResourceOptions(OptionGroup, title="Number of TaskManagers"):
    """How many TaskManagers there are, and when they are asked for and released."""

    REPORT_AFTER: Final = duration(
        "penstock.resources.report-after",
        "3 s",
        "When a job has waited this long for a slot, the driver prints what is missing.",
    )
    REPORT_INTERVAL: Final = duration(
        "penstock.resources.report-interval",
        "30 s",
        "How often the driver repeats what is missing.",
    )
    TASKMANAGER_TIMEOUT: Final = duration(
        "resourcemanager.taskmanager-timeout",
        "30 s",
        (
            "An idle TaskManager is released after this time. Its process then waits as long for "
            "another job; 0: it ends at once."
        ),
        former_keys=("slotmanager.taskmanager-timeout",),
    )
    REGISTRATION_TIMEOUT: Final = duration(
        "resourcemanager.taskmanager-registration.timeout",
        "5 min",
        (
            "How long a requested TaskManager may take to register. The shorter of this and "
            "penstock.taskmanager.start-timeout counts."
        ),
    )
    MAX_START_FAILURE_RATE: Final = number(
        "resourcemanager.start-worker.max-failure-rate",
        "10.0",
        ("When more TaskManagers than this fail to start within a minute, the next request waits."),
    )
    START_RETRY_INTERVAL: Final = duration(
        "resourcemanager.start-worker.retry-interval",
        "3 s",
        "How long requests wait after too many failed starts.",
    )
    MAX_SLOTS: Final = whole(
        "slotmanager.number-of-slots.max",
        "2147483647",
        "Largest number of slots at one time.",
    )
    JOB_ISOLATION: Final = flag(
        "penstock.cluster.job-isolation",
        "false",
        (
            "If true, the job's TaskManagers run in processes of their own, which end with the "
            "job. Else they run in processes that later jobs of the Spark session use again, and "
            "that several jobs share if their slots suffice."
        ),
    )
    REDUNDANT_TASKMANAGERS: Final = whole(
        "slotmanager.redundant-taskmanager-num",
        "0",
        "TaskManagers to keep ready beyond what jobs need.",
    )


class SparkOptions(OptionGroup, title="Spark session"):
    """The Spark session that Penstock makes if the program has none."""

    MASTER: Final = text(
        "penstock.spark.master",
        None,
        "Master of the Spark session that Penstock starts. Without it: the one that spark-submit, "
        "PYSPARK_SUBMIT_ARGS or spark-defaults.conf names; else `local` with enough cores.",
    )
    CORES_KEPT: Final = whole(
        "penstock.spark.cores-kept",
        "1",
        "Cores that are left for Spark jobs beside the streaming job.",
    )
    LOG_FILE: Final = text(
        "penstock.spark.log-file",
        None,
        "File for Spark's log. Without it: a file in the directory for temporary files, which goes "
        "when the program ends.",
    )
