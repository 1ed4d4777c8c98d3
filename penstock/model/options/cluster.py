"""Options of TaskManagers, of their number, and of Spark.

Knows no reader. Source: Flink TaskManagerOptions, ResourceManagerOptions, HeartbeatManagerOptions.
Differs: `penstock.*` keys are ours.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, number, text, whole


class TaskManagerOptions(OptionGroup, title="TaskManagers"):
    """A TaskManager: its slots, its process, and when it is given up."""

    KEEP_CORE: Final = flag(
        "penstock.taskmanager.keep-core",
        "true",
        "Linux: a busy TaskManager whose threads take turns (the GIL) stays on one core.",
    )
    MAX_TASKMANAGERS: Final = whole(
        "penstock.taskmanager.max",
        None,
        "Most TaskManagers at one time; none: as many as needed.",
    )
    START_TIMEOUT: Final = duration(
        "penstock.taskmanager.start-timeout",
        "2 min",
        "How long a TaskManager may take to register.",
    )
    SILENCE_TIMEOUT: Final = duration(
        "penstock.jobmanager.silence-timeout",
        "50 s",
        "A TaskManager that hears nothing of its JobManager for so long ends.",
    )
    FROZEN_TIMEOUT: Final = duration(
        "penstock.taskmanager.frozen-timeout",
        "30 s",
        "A TaskManager in which nothing moves for so long (a C call may hold the GIL) is replaced.",
    )
    SLOTS: Final = whole("taskmanager.numberOfTaskSlots", "1", "Slots of one TaskManager.")
    LOAD_BALANCE_MODE: Final = text(
        "taskmanager.load-balance.mode",
        "NONE",
        "NONE, SLOTS, TASKS or MIN_RESOURCES.",
    )
    EVENLY_SPREAD_OUT_SLOTS: Final = flag(
        "cluster.evenly-spread-out-slots",
        "false",
        "Old name of load-balance mode SLOTS.",
    )


class HeartbeatOptions(OptionGroup, title="Heartbeats"):
    """How the loss of a process is noticed."""

    INTERVAL: Final = duration("heartbeat.interval", "10 s", "Between two heartbeats.")
    TIMEOUT: Final = duration(
        "heartbeat.timeout",
        "50 s",
        "Silence after which a peer counts as lost.",
    )


class ResourceOptions(OptionGroup, title="Number of TaskManagers"):
    """How many TaskManagers there are, and when they are asked for and released."""

    REPORT_AFTER: Final = duration(
        "penstock.resources.report-after",
        "3 s",
        "After so long without a slot the driver says what is missing.",
    )
    REPORT_INTERVAL: Final = duration(
        "penstock.resources.report-interval",
        "30 s",
        "How often it repeats that.",
    )
    TASKMANAGER_TIMEOUT: Final = duration(
        "resourcemanager.taskmanager-timeout",
        "30 s",
        "An idle TaskManager is released after this.",
    )
    REGISTRATION_TIMEOUT: Final = duration(
        "resourcemanager.taskmanager-registration.timeout",
        "5 min",
        "How long a requested TaskManager may take.",
    )
    MAX_START_FAILURE_RATE: Final = number(
        "resourcemanager.start-worker.max-failure-rate",
        "10.0",
        "Failed starts per minute before a pause.",
    )
    START_RETRY_INTERVAL: Final = duration(
        "resourcemanager.start-worker.retry-interval",
        "3 s",
        "That pause.",
    )
    MAX_SLOTS: Final = whole(
        "slotmanager.number-of-slots.max",
        "2147483647",
        "Most slots at one time.",
    )
    REDUNDANT_TASKMANAGERS: Final = whole(
        "slotmanager.redundant-taskmanager-num",
        "0",
        "TaskManagers to keep ready beyond the need.",
    )


class SparkOptions(OptionGroup, title="Spark session"):
    """The Spark session that Penstock makes where the program has none."""

    MASTER: Final = text(
        "penstock.spark.master",
        None,
        "Master of the embedded session; none: local with enough cores.",
    )
    CORES_KEPT: Final = whole(
        "penstock.spark.cores-kept",
        "1",
        "Cores left for Spark jobs beside the job.",
    )
    LOG_FILE: Final = text(
        "penstock.spark.log-file",
        None,
        "Where Spark's log goes; none: a file in the temporary directory.",
    )
