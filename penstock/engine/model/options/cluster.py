"""Options of TaskManagers, of their number, of hosts and ports, of high availability, and of Spark.

Source: Flink TaskManagerOptions, JobManagerOptions, ResourceManagerOptions, HeartbeatManagerOptions, HighAvailabilityOptions,
CleanupOptions.
"""

from enum import StrEnum

from penstock.engine.model.options.option import (
    OptionGroup,
    duration,
    flag,
    number,
    one_of,
    ports,
    strategy_name,
    text,
    whole,
    within,
)


class LoadBalanceMode(StrEnum):
    """How tasks are spread over TaskManagers."""

    NONE = "NONE"
    SLOTS = "SLOTS"
    TASKS = "TASKS"
    MIN_RESOURCES = "MIN_RESOURCES"


class TaskManagerOptions(OptionGroup, title="TaskManagers"):
    """A TaskManager: its slots, its process, and when it is given up."""

    MAX_TASKMANAGERS = whole("penstock.taskmanager.max")
    """Largest number of TaskManagers at one time. Without it: as many as the job needs."""
    START_TIMEOUT = duration("penstock.taskmanager.start-timeout", "2 min")
    """How long a TaskManager may take to register."""
    SILENCE_TIMEOUT = duration("penstock.jobmanager.silence-timeout", "50 s")
    """A TaskManager ends when it has heard nothing from its JobManager for this long."""
    FROZEN_TIMEOUT = duration("penstock.taskmanager.frozen-timeout", "30 s")
    """A TaskManager in which no task has moved for this long is replaced. A C call that holds the GIL can cause that.
    Also how long a TaskManager whose process lives may get no processor."""
    SLOTS = whole("taskmanager.numberOfTaskSlots", "1")
    """Slots of one TaskManager."""
    LOAD_BALANCE_MODE = one_of(LoadBalanceMode, str.upper)("taskmanager.load-balance.mode", "NONE")
    """How tasks are spread over TaskManagers: NONE, SLOTS, TASKS or MIN_RESOURCES."""
    EVENLY_SPREAD_OUT_SLOTS = flag("cluster.evenly-spread-out-slots", "false")
    """Older way to set load-balance mode SLOTS. Used when taskmanager.load-balance.mode is not set."""


class HeartbeatOptions(OptionGroup, title="Heartbeats"):
    """How the loss of a process is noticed."""

    INTERVAL = duration("heartbeat.interval", "10 s")
    """Time between two heartbeats."""
    TIMEOUT = duration("heartbeat.timeout", "50 s")
    """A peer that has been silent for this long counts as lost."""


class ResourceOptions(OptionGroup, title="Number of TaskManagers"):
    """How many TaskManagers there are, and when they are asked for and released."""

    REPORT_AFTER = duration("penstock.resources.report-after", "10 s")
    """When a job has waited this long for a slot, the driver prints what is missing."""
    REPORT_INTERVAL = duration("penstock.resources.report-interval", "30 s")
    """How often the driver repeats what is missing."""
    TASKMANAGER_TIMEOUT = duration(
        "resourcemanager.taskmanager-timeout", "30 s", former="slotmanager.taskmanager-timeout"
    )
    """An idle TaskManager is released after this time. Its process then waits as long for another job; 0: it ends at
    once."""
    REGISTRATION_TIMEOUT = duration("resourcemanager.taskmanager-registration.timeout", "5 min")
    """How long a requested TaskManager may take to register. The shorter of this and penstock.taskmanager.start-timeout
    counts."""
    MAX_START_FAILURE_RATE = number("resourcemanager.start-worker.max-failure-rate", "10.0")
    """When more TaskManagers than this fail to start within a minute, the next request waits."""
    START_RETRY_INTERVAL = duration("resourcemanager.start-worker.retry-interval", "3 s")
    """How long requests wait after too many failed starts."""
    MAX_SLOTS = whole("slotmanager.number-of-slots.max", "2147483647")
    """Largest number of slots at one time."""
    JOB_ISOLATION = flag("penstock.cluster.job-isolation", "false")
    """If true, the job's TaskManagers run in processes of their own, which end with the job. Else they run in processes
    that later jobs of the Spark session use again, and that several jobs share if their slots suffice."""
    REDUNDANT_TASKMANAGERS = whole("slotmanager.redundant-taskmanager-num", "0")
    """TaskManagers to keep ready beyond what jobs need."""


class SparkOptions(OptionGroup, title="Spark session"):
    """The Spark session that Penstock makes if the program has none."""

    MASTER = text("penstock.spark.master")
    """Master of the Spark session that Penstock starts. Without it: the one that spark-submit, PYSPARK_SUBMIT_ARGS or
    spark-defaults.conf names; else `local` with enough cores."""
    CORES_KEPT = whole("penstock.spark.cores-kept", "1")
    """Cores that are left for Spark jobs in addition to the streaming job."""
    LOG_FILE = text("penstock.spark.log-file")
    """File for Spark's log. Without it: a file in the directory for temporary files, which goes when the program
    ends."""


class JobManagerAddressOptions(OptionGroup, title="Address of the JobManager"):
    """Where TaskManagers dial the driver."""

    ADDRESS = text("jobmanager.rpc.address")
    """Address at which TaskManagers dial this driver. Without it: `spark.driver.host`."""
    PORT = ports("jobmanager.rpc.port", "0")
    """Port at which TaskManagers dial this driver: one port, or ranges such as `50100-50110,50200`. Each job has a port
    of its own. 0: any free port."""
    BIND_PORT = ports("jobmanager.rpc.bind-port")
    """Port at which the driver listens, if it differs from the dialled one (with a NAT between).
    Without it: jobmanager.rpc.port.
    """
    BIND_HOST = text("jobmanager.bind-host")
    """Address at which the driver listens. Without it: the one where Spark's driver listens."""


class TaskManagerAddressOptions(OptionGroup, title="Addresses of TaskManagers"):
    """Where TaskManagers dial each other."""

    HOST = text("taskmanager.host")
    """Address at which other TaskManagers dial this one, or a network such as `10.1.0.0/16` in which each has an
    address. Without it: the address by which it reaches the driver."""
    BIND_HOST = text("taskmanager.bind-host")
    """Address at which a TaskManager listens. Without it: taskmanager.host."""
    DATA_PORT = ports("taskmanager.data.port", "0")
    """Port for data: one port, or ranges, because several TaskManagers may share a host. 0: any free port."""
    DATA_BIND_PORT = ports("taskmanager.data.bind-port")
    """Port at which a TaskManager listens, if it differs from the dialled one (with a NAT between).
    Without it: taskmanager.data.port.
    """


class HighAvailabilityOptions(OptionGroup, title="High availability"):
    """How another driver takes over a job whose driver is gone."""

    TYPE = text("high-availability.type", "NONE", former="high-availability recovery.mode")
    """NONE, FILE, ZOOKEEPER or KUBERNETES: with the last three, another driver can take over a job whose driver is gone."""
    STORAGE_DIR = text(
        "high-availability.storageDir",
        former="high-availability.zookeeper.storageDir recovery.zookeeper.storageDir",
    )
    """Directory that all these drivers share. With FILE: a path, or s3:// if the store writes on condition. Else any address."""
    CLUSTER_ID = text(
        "high-availability.cluster-id",
        "/default",
        former="high-availability.zookeeper.path.namespace recovery.zookeeper.path.namespace",
    )
    """Only drivers with the same id find each other's jobs."""
    ZOOKEEPER_QUORUM = text(
        "high-availability.zookeeper.quorum", former="recovery.zookeeper.quorum"
    )
    """With ZOOKEEPER: its servers, as `host:port` separated by commas."""
    ZOOKEEPER_ROOT = text(
        "high-availability.zookeeper.path.root", "/flink", former="recovery.zookeeper.path.root"
    )
    """With ZOOKEEPER: path below which everything is kept."""
    ZOOKEEPER_SESSION_TIMEOUT = duration(
        "high-availability.zookeeper.client.session-timeout",
        "60 s",
        former="recovery.zookeeper.client.session-timeout",
    )
    """With ZOOKEEPER: longest wait for an answer."""
    ZOOKEEPER_CONNECTION_TIMEOUT = duration(
        "high-availability.zookeeper.client.connection-timeout",
        "15 s",
        former="recovery.zookeeper.client.connection-timeout",
    )
    """With ZOOKEEPER: longest wait for a connection."""
    KUBERNETES_NAMESPACE = text("kubernetes.namespace")
    """With KUBERNETES: where ConfigMaps are kept. Without it: in the namespace of the driver's pod, or kubectl's own."""
    LEASE_DURATION = duration("penstock.high-availability.lease-duration", "5 s")
    """A driver that has not renewed its lease for this long may be replaced."""
    RENEW_INTERVAL = duration("penstock.high-availability.renew-interval", "1 s")
    """How often a driver renews its lease: at most half of the lease's duration."""
    KEY_FILE = text("penstock.high-availability.key-file")
    """File with a secret that signs stored jobs. Without it, only the user may be able to write to the directory."""
    BEGINS_ANEW = flag("penstock.driver.begins-anew", "false")
    """Without high availability, whether a job with an exactly-once sink may begin where it began first (the start of its
    sources, or `execution.state-recovery.path`) in a driver that the cluster has started again. What the driver before has committed
    comes twice."""


class CleanupOptions(OptionGroup, title="Clean-up of ended jobs"):
    """How often a session tries again to remove what is left of a job that has ended: its entry for high
    availability, and its files."""

    STRATEGY = one_of(("none", "fixed-delay", "exponential-delay"), strategy_name)(
        "cleanup-strategy", "exponential-delay", former="cleanup-strategy.type"
    )
    """none (also disable, off): it is tried once. fixed-delay, exponential-delay: it is tried again."""
    FIXED_ATTEMPTS = within(whole, 0)("cleanup-strategy.fixed-delay.attempts", "2147483647")
    """With fixed-delay: how many times it is tried again."""
    FIXED_DELAY = within(duration, 1)("cleanup-strategy.fixed-delay.delay", "1 min")
    """With fixed-delay: after how long."""
    EXPONENTIAL_ATTEMPTS = within(whole, 0)(
        "cleanup-strategy.exponential-delay.attempts", "2147483647"
    )
    """With exponential-delay: how many times it is tried again."""
    EXPONENTIAL_FIRST = within(duration, 1)(
        "cleanup-strategy.exponential-delay.initial-backoff", "1 s"
    )
    """With exponential-delay: the first pause. Each following one is twice as long."""
    EXPONENTIAL_LONGEST = within(duration, 1)(
        "cleanup-strategy.exponential-delay.max-backoff", "1 h"
    )
    """With exponential-delay: the longest pause."""
