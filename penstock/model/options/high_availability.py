"""Options of high availability.

Does not know their readers. Source: Flink HighAvailabilityOptions. Differs: `penstock.*` keys are Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, text


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
