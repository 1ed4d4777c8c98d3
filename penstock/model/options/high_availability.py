"""Options of high availability.

Does not know their readers. Source: Flink HighAvailabilityOptions, CleanupOptions. Differs: `penstock.*` keys are Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, text, whole


class HighAvailabilityOptions(OptionGroup, title="High availability"):
    """How another driver takes over a job whose driver is gone."""

    TYPE: Final = text(
        "high-availability.type",
        "NONE",
        (
            "NONE, FILE or ZOOKEEPER: with the last two, another driver can take over a job whose "
            "driver is gone."
        ),
        former_keys=("high-availability", "recovery.mode"),
    )
    STORAGE_DIR: Final = text(
        "high-availability.storageDir",
        None,
        "Directory that all these drivers share.",
        former_keys=(
            "high-availability.zookeeper.storageDir",
            "recovery.zookeeper.storageDir",
        ),
    )
    CLUSTER_ID: Final = text(
        "high-availability.cluster-id",
        "/default",
        "Only drivers with the same id find each other's jobs.",
        former_keys=(
            "high-availability.zookeeper.path.namespace",
            "recovery.zookeeper.path.namespace",
        ),
    )
    ZOOKEEPER_QUORUM: Final = text(
        "high-availability.zookeeper.quorum",
        None,
        "With ZOOKEEPER: its servers, as `host:port` separated by commas.",
        former_keys=("recovery.zookeeper.quorum",),
    )
    ZOOKEEPER_ROOT: Final = text(
        "high-availability.zookeeper.path.root",
        "/flink",
        "With ZOOKEEPER: path below which everything is kept.",
        former_keys=("recovery.zookeeper.path.root",),
    )
    ZOOKEEPER_SESSION_TIMEOUT: Final = duration(
        "high-availability.zookeeper.client.session-timeout",
        "60 s",
        "With ZOOKEEPER: longest wait for an answer.",
        former_keys=("recovery.zookeeper.client.session-timeout",),
    )
    ZOOKEEPER_CONNECTION_TIMEOUT: Final = duration(
        "high-availability.zookeeper.client.connection-timeout",
        "15 s",
        "With ZOOKEEPER: longest wait for a connection.",
        former_keys=("recovery.zookeeper.client.connection-timeout",),
    )
    LEASE_DURATION: Final = duration(
        "penstock.high-availability.lease-duration",
        "5 s",
        "A driver that has not renewed its lease for this long may be replaced.",
    )
    RENEW_INTERVAL: Final = duration(
        "penstock.high-availability.renew-interval",
        "1 s",
        "How often a driver renews its lease: at most half of the lease's duration.",
    )
    KEY_FILE: Final = text(
        "penstock.high-availability.key-file",
        None,
        (
            "File with a secret that signs stored jobs. Without it, only the user may be able to "
            "write to the directory."
        ),
    )
    BEGINS_ANEW: Final = flag(
        "penstock.driver.begins-anew",
        "false",
        (
            "Without high availability, whether a job with an exactly-once sink may begin from the "
            "start of its sources in a driver that the cluster has started again. What the driver "
            "before has committed comes twice."
        ),
    )


class CleanupOptions(OptionGroup, title="Clean-up of ended jobs"):
    """How often a session tries again to remove what is left of a job that has ended: its entry for high availability, and its files."""

    STRATEGY: Final = text(
        "cleanup-strategy",
        "exponential-delay",
        (
            "none (also disable, off): it is tried once. fixed-delay, exponential-delay: it is "
            "tried again."
        ),
        former_keys=("cleanup-strategy.type",),
    )
    FIXED_ATTEMPTS: Final = whole(
        "cleanup-strategy.fixed-delay.attempts",
        "2147483647",
        "With fixed-delay: how many times it is tried again.",
    )
    FIXED_DELAY: Final = duration(
        "cleanup-strategy.fixed-delay.delay", "1 min", "With fixed-delay: after how long."
    )
    EXPONENTIAL_ATTEMPTS: Final = whole(
        "cleanup-strategy.exponential-delay.attempts",
        "2147483647",
        "With exponential-delay: how many times it is tried again.",
    )
    EXPONENTIAL_FIRST: Final = duration(
        "cleanup-strategy.exponential-delay.initial-backoff",
        "1 s",
        "With exponential-delay: the first pause. Each following one is twice as long.",
    )
    EXPONENTIAL_LONGEST: Final = duration(
        "cleanup-strategy.exponential-delay.max-backoff",
        "1 h",
        "With exponential-delay: the longest pause.",
    )
