"""The settings of high availability, from the configuration. Source: Flink HighAvailabilityOptions; differs: FILE.

What a cluster does that starts the driver again: said at submit, and refused where output would come twice.

Knows Spark's configuration only. Source: YARN's application attempts; Flink's JobManager, which without high availability has lost
its jobs when it starts again.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.file_systems import check_client, joined, local_path, parted
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import RecoveryOptions
from penstock.engine.model.options.cluster import HighAvailabilityOptions
from penstock.engine.model.texts.redaction import without_credentials
from penstock.engine.runtime.sink import Sink

_KINDS: Final = ("NONE", "FILE", "ZOOKEEPER", "KUBERNETES")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Of Kubernetes."""
_KEY_BYTES_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class ZookeeperSettings:
    """`quorum`: host:port, separated by commas. `root`: path of all our nodes,
    `<path.root>/<cluster-id>`. Times in ms.

    `answer_timeout_ms`: limit of one step, so that a holder learns in time that its lease is in
    doubt.
    """

    quorum: str
    root: str
    session_timeout_ms: int
    connection_timeout_ms: int
    answer_timeout_ms: int


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """`namespace` None: the pod's own, or kubectl's. `limit_s`: of a request."""

    cluster_id: str
    namespace: str | None
    limit_s: float


@dataclass(frozen=True, slots=True)
class HaSettings:
    """`root`: `<storageDir>/<cluster-id>`, a path or a URI. `elsewhere` None: the directory is the store;
    else it holds only what is too large for that.

    `key`: signs what is stored; empty: no signature.
    """

    root: str
    lease_ms: int
    renew_ms: int
    key: bytes
    elsewhere: ZookeeperSettings | KubernetesSettings | None = None

    @property
    def margin_ms(self) -> int:
        """How much earlier than all others a holder stops trusting its lease."""
        return self.renew_ms

    @property
    def poll_s(self) -> float:
        """How often a waiting driver looks, in seconds."""
        return self.renew_ms / 2000

    @property
    def limit_s(self) -> float:
        """Of one request to read or to write a document: a holder learns in time that its lease is in doubt."""
        return self.lease_ms / 2000


def ha_settings_of(settings: Settings) -> HaSettings | None:
    """Read the settings. None: high availability is off. Raises ConfigurationError."""
    kind = settings.get(HighAvailabilityOptions.TYPE).upper()
    if kind == "NONE":
        return None
    if kind not in _KINDS:
        raise ConfigurationError(
            f"option 'high-availability.type': it takes one of {', '.join(_KINDS)}, got {kind!r}. "
            "Change the setting."
        )
    if sys.platform == "win32":
        raise ConfigurationError(
            f"high-availability.type {kind} needs POSIX file locks and renames, which Windows "
            "does not have. Run the driver on Linux or macOS."
        )
    lease_ms = settings.get(HighAvailabilityOptions.LEASE_DURATION)
    renew_ms = settings.get(HighAvailabilityOptions.RENEW_INTERVAL)
    if renew_ms < 1 or 2 * renew_ms > lease_ms:
        raise ConfigurationError(
            f"option 'penstock.high-availability.renew-interval' is {renew_ms} ms, but it "
            f"must be at least 1 ms and at most half of the lease ({lease_ms} ms), so that "
            "one late renewal does not lose the lease. Change the setting."
        )
    root, key = _root(settings, kind), _key(settings)
    found = HaSettings(root, lease_ms, renew_ms, key)
    if kind == "ZOOKEEPER":
        return replace(found, elsewhere=_zookeeper(settings, lease_ms))
    if kind == "KUBERNETES":
        return replace(found, elsewhere=_kubernetes(settings, found.limit_s))
    return found


def _zookeeper(settings: Settings, lease_ms: int) -> ZookeeperSettings:
    quorum = settings.get(HighAvailabilityOptions.ZOOKEEPER_QUORUM)
    if not quorum:
        raise ConfigurationError(
            f"high-availability.type is ZOOKEEPER, so {HighAvailabilityOptions.ZOOKEEPER_QUORUM.key} must name its servers: host:port,host:port."
        )
    root = settings.get(HighAvailabilityOptions.ZOOKEEPER_ROOT).strip("/")
    cluster = settings.get(HighAvailabilityOptions.CLUSTER_ID).strip("/")
    session_timeout_ms = settings.get(HighAvailabilityOptions.ZOOKEEPER_SESSION_TIMEOUT)
    return ZookeeperSettings(
        quorum,
        "/" + "/".join(filter(None, (root, quote(cluster, safe="")))),
        session_timeout_ms,
        settings.get(HighAvailabilityOptions.ZOOKEEPER_CONNECTION_TIMEOUT),
        min(session_timeout_ms, lease_ms),
    )


def _kubernetes(settings: Settings, limit_s: float) -> KubernetesSettings:
    cluster = settings.get(HighAvailabilityOptions.CLUSTER_ID).strip("/")
    if not _LABEL.fullmatch(cluster):
        raise ConfigurationError(
            "high-availability.type is KUBERNETES, and high-availability.cluster-id is "
            f"{cluster!r}, which must be a label there: at most 63 lower-case letters, digits and "
            "hyphens. Choose another one."
        )
    namespace = settings.get(HighAvailabilityOptions.KUBERNETES_NAMESPACE)
    return KubernetesSettings(cluster, namespace, limit_s)


def recovery_directory_of(settings: Settings) -> str | None:
    """Return where jobs that name no directory store checkpoints for recovery; None: high availability is off."""
    ha = ha_settings_of(settings)
    if ha is None:
        return None
    folder, name = parted(ha.root)
    return joined(folder, f"{name}-checkpoints")


def _root(settings: Settings, kind: str) -> str:
    storage = settings.get(HighAvailabilityOptions.STORAGE_DIR)
    if not storage:
        raise ConfigurationError(
            f"high-availability.type is {kind}, so high-availability.storageDir must name a directory "
            "that all drivers share."
        )
    path = local_path(storage)
    if path is None and kind == "FILE" and not storage.startswith("s3://"):
        raise ConfigurationError(
            f"high-availability.storageDir is {without_credentials(storage)!r}, but FILE needs a "
            f"local or mounted directory, or s3://, not {storage.partition(':')[0]}://: drivers "
            "elect a leader by renaming, or by writing on condition. Name a directory such as "
            "file:///mnt/ha (NFS works), or set high-availability.type to ZOOKEEPER or KUBERNETES. "
            "Checkpoints may be stored elsewhere: execution.checkpointing.dir."
        )
    check_client(storage)
    cluster = settings.get(HighAvailabilityOptions.CLUSTER_ID).strip("/")
    if not cluster or cluster in {".", ".."}:
        raise ConfigurationError(
            "high-availability.cluster-id is empty. Set it to the name of the cluster."
        )
    name = quote(cluster, safe="")
    if path is None and "%" in name:
        raise ConfigurationError(
            f"high-availability.cluster-id is {cluster!r}, of which an address as "
            "high-availability.storageDir permits letters, digits and ._-~ only. Choose "
            "another one."
        )
    return joined(path or storage, name)


def _key(settings: Settings) -> bytes:
    name = settings.get(HighAvailabilityOptions.KEY_FILE)
    if not name:
        return b""
    try:
        with os.fdopen(private_files.open_checked(name), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read().strip()
    except (OSError, private_files.NotPrivate) as error:
        raise ConfigurationError(
            f"penstock.high-availability.key-file: cannot read {name!r}: {error}"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigurationError(
            f"penstock.high-availability.key-file: other users may read {name!r}. Run chmod "
            "600 on it."
        )
    if len(key) < _KEY_BYTES_MIN:
        raise ConfigurationError(
            f"penstock.high-availability.key-file: {name!r} holds {len(key)} bytes, but at "
            f"least {_KEY_BYTES_MIN} are needed. Write a longer key."
        )
    return key


def make_private(root: str, key: bytes) -> None:
    """Make the directory, for this user alone. Without a key, no other user may write what we
    unpickle. Other file systems have their own rules of access.

    Raises: ConfigurationError.
    """
    path = local_path(root)
    if path is None:
        return
    try:
        private_files.make_folder(path, is_checked=not key)
    except OSError as error:
        raise ConfigurationError(
            f"high-availability.storageDir: cannot use {path!r}: {error}"
        ) from error
    except private_files.NotPrivate as error:
        raise ConfigurationError(
            f"high-availability.storageDir: {error}. Or set a key that signs what is stored there: "
            "penstock.high-availability.key-file."
        ) from error


_ATTEMPT: Final = "spark.app.attempt.id"
_MOST: Final = "spark.yarn.maxAppAttempts"


def check_attempt(
    job: SubmittedJob, settings: Settings, spark: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Check a streaming job with an exactly-once sink and without high availability, whose driver YARN starts again.

    Raises ConfigurationError: this is not the first attempt, and the job would begin where the first one began. A savepoint to begin from
    does not permit that: the first attempt had the same one.
    """
    is_in_cluster = spark.get("spark.submit.deployMode") == "cluster"
    if not is_in_cluster or spark.get("spark.master") != "yarn" or spark.get(_MOST) == "1":
        return
    if ha_settings_of(settings) is not None:
        return
    if not any(isinstance(place.coordinator, Sink) for place in job.coordinated):
        return
    attempt = spark.get(_ATTEMPT, "1")
    anew = HighAvailabilityOptions.BEGINS_ANEW.key
    if (
        attempt.isdecimal()
        and int(attempt) > 1
        and not settings.get(HighAvailabilityOptions.BEGINS_ANEW)
    ):
        path = settings.get(RecoveryOptions.PATH)
        start = "the start of its sources" if path is None else f"{path}, as the first attempt did"
        raise ConfigurationError(
            f"this is attempt {attempt} of the driver, and high-availability.type is NONE: job "
            f"{job.graph.name!r} would begin from {start}, and its exactly-once sinks would show "
            "again what the attempt before has shown. Set high-availability.type, or submit the "
            "application again with the newest checkpoint of that attempt "
            f"(execution.state-recovery.path), or set {anew}=true if that is right."
        )
    limit = spark.get(_MOST, "not set, so YARN's own limit counts")
    say(
        f"if this driver is lost, YARN starts it again ({_MOST}: {limit}). Without high "
        "availability the job then has to begin where it began first, which is refused unless "
        f"{anew} is true. Set high-availability.type to continue there, or {_MOST}=1"
    )
