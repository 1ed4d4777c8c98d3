"""What the configuration says about high availability. Source: Flink HighAvailabilityOptions; differs: FILE."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from penstock.hosting.file_systems import local_path
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError

_KINDS: Final = ("NONE", "FILE", "ZOOKEEPER")
_ZOOKEEPER: Final = "high-availability.zookeeper."
_KEY_BYTES_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class ZookeeperSettings:
    """`quorum`: host:port, separated by commas. `root`: path of all that is ours, `<path.root>/<cluster-id>`. Times in ms.
    `answer_timeout_ms`: of one step: a holder must know in time that its lease is in doubt.
    """

    quorum: str
    root: str
    session_timeout_ms: int
    connection_timeout_ms: int
    answer_timeout_ms: int


@dataclass(frozen=True, slots=True)
class HaSettings:
    """`root`: `<storageDir>/<cluster-id>`. `zookeeper` None: the directory is the store; else it has what is too large for it. `key`: signs what is stored; empty: none."""

    root: Path
    lease_ms: int
    renew_ms: int
    key: bytes
    zookeeper: ZookeeperSettings | None = None

    @property
    def margin_ms(self) -> int:
        """So much earlier than everybody else a holder stops trusting its lease."""
        return self.renew_ms

    @property
    def poll_s(self) -> float:
        """How often a contender looks."""
        return self.renew_ms / 2000


def ha_settings_of(settings: Settings) -> HaSettings | None:
    """None: high availability is off. Raises ConfigurationError."""
    kind = (settings.get_str("high-availability.type") or "NONE").upper()
    if kind == "NONE":
        return None
    if kind not in _KINDS:
        instead = (
            "KUBERNETES is not supported: take FILE, a directory that the drivers share, or ZOOKEEPER"
            if kind == "KUBERNETES"
            else f"it takes one of {', '.join(_KINDS)}, not {kind!r}"
        )
        raise ConfigurationError(f"option 'high-availability.type': {instead}. Change the setting.")
    if sys.platform == "win32":
        raise ConfigurationError("high-availability.type FILE needs POSIX file locks and renames.")
    lease_ms = settings.get_int("penstock.high-availability.lease-duration")
    renew_ms = settings.get_int("penstock.high-availability.renew-interval")
    if renew_ms < 1 or 2 * renew_ms > lease_ms:
        raise ConfigurationError(
            f"option 'penstock.high-availability.renew-interval' is {renew_ms} ms, but it takes 1 ms to "
            f"half of the lease ({lease_ms} ms): a lease must outlive a renewal that comes late."
        )
    zookeeper = _zookeeper(settings, lease_ms) if kind == "ZOOKEEPER" else None
    return HaSettings(_root(settings, kind), lease_ms, renew_ms, _key(settings), zookeeper)


def _zookeeper(settings: Settings, lease_ms: int) -> ZookeeperSettings:
    quorum = settings.get_str(_ZOOKEEPER + "quorum")
    if not quorum:
        raise ConfigurationError(
            f"high-availability.type is ZOOKEEPER, so {_ZOOKEEPER}quorum must name its servers: host:port,host:port."
        )
    root = (settings.get_str(_ZOOKEEPER + "path.root") or "").strip("/")
    cluster = (settings.get_str("high-availability.cluster-id") or "").strip("/")
    session_timeout_ms = settings.get_int(_ZOOKEEPER + "client.session-timeout")
    return ZookeeperSettings(
        quorum,
        "/" + "/".join(filter(None, (root, quote(cluster, safe="")))),
        session_timeout_ms,
        settings.get_int(_ZOOKEEPER + "client.connection-timeout"),
        min(session_timeout_ms, lease_ms),
    )


def recovery_directory_of(settings: Settings) -> str | None:
    """For checkpoints of jobs that another driver may take over and that name no directory; None: high availability is off."""
    ha = ha_settings_of(settings)
    return None if ha is None else f"{ha.root}-checkpoints"


def _root(settings: Settings, kind: str) -> Path:
    storage = settings.get_str("high-availability.storageDir")
    if not storage:
        raise ConfigurationError(
            f"high-availability.type is {kind}, so high-availability.storageDir must name a directory "
            "that all drivers share."
        )
    path = local_path(storage)
    if path is None:
        raise ConfigurationError(
            f"high-availability.storageDir is {storage!r}, but {kind} takes a local or mounted "
            f"directory, not {storage.partition(':')[0]}://: drivers settle who leads by renaming, which object stores cannot do in one "
            "step. Name a directory such as file:///mnt/ha (NFS will do). Checkpoints may lie elsewhere: "
            "execution.checkpointing.dir."
        )
    cluster = (settings.get_str("high-availability.cluster-id") or "").strip("/")
    if not cluster or cluster in {".", ".."}:
        raise ConfigurationError("high-availability.cluster-id must name the cluster.")
    return Path(path) / quote(cluster, safe="")


def _key(settings: Settings) -> bytes:
    name = settings.get_str("penstock.high-availability.key-file")
    if not name:
        return b""
    try:
        with open(name, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read().strip()
    except OSError as error:
        raise ConfigurationError(
            f"penstock.high-availability.key-file: cannot read {name!r}: {error}"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigurationError(
            f"penstock.high-availability.key-file: others may read {name!r}. Run chmod 600 on it."
        )
    if len(key) < _KEY_BYTES_MIN:
        raise ConfigurationError(
            f"penstock.high-availability.key-file: {name!r} holds {len(key)} bytes; at least "
            f"{_KEY_BYTES_MIN} are needed."
        )
    return key


def make_private(root: Path, key: bytes) -> None:
    """Make the directory, for us alone. Without a key nobody else may write what we unpickle.

    Raises: ConfigurationError.
    """
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700)
        found = root.stat()
    except OSError as error:
        raise ConfigurationError(
            f"high-availability.storageDir: cannot use {str(root)!r}: {error}"
        ) from error
    if not key and (found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022):
        raise ConfigurationError(
            f"high-availability.storageDir: others may write {str(root)!r}, and what is stored there is "
            "unpickled. Make it yours alone (chmod 700), or sign what is stored: "
            "penstock.high-availability.key-file."
        )
