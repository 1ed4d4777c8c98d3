"""The documents of jobs in ZooKeeper: nodes, which it replaces on condition that their version is still the same.

    <path.root>/<cluster-id>/jobs/<job key>

Sessions and ephemeral nodes play no part, so a driver that reconnects in time keeps its lease. Source: Flink
ZooKeeperStateHandleStore; differs: one node for each job.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Iterable
from typing import Any

from penstock.engine.hosting.jobmanager.ha.settings import ZookeeperSettings
from penstock.engine.model.errors import ConfigurationError


class ZookeeperDocuments:
    """Connects with the first step. Any thread."""

    def __init__(self, settings: ZookeeperSettings) -> None:
        """Raises: ConfigurationError: the package kazoo is missing."""
        self._kazoo = _kazoo()
        self._settings = settings
        self._lock = threading.Lock()
        self._client: Any = None

    def place_of(self, name: str) -> str:
        return f"{self._settings.root}/jobs/{name}"

    def names(self) -> Iterable[str]:
        try:
            jobs = f"{self._settings.root}/jobs"
            names: list[str] = self._wait(self._connected().get_children_async(jobs))
        except self._kazoo.exceptions.NoNodeError:
            return []
        return names

    def get(self, name: str) -> tuple[bytes, str] | None:
        try:
            data, stat = self._wait(self._connected().get_async(self.place_of(name)))
        except self._kazoo.exceptions.NoNodeError:
            return None
        return data, str(stat.version)

    def put(self, name: str, data: bytes, version: str | None) -> bool:
        exceptions, client, path = self._kazoo.exceptions, self._connected(), self.place_of(name)
        try:
            if version is None:
                self._wait(client.create_async(path, data, makepath=True))
            else:
                self._wait(client.set_async(path, data, int(version)))
        except (
            exceptions.NodeExistsError,
            exceptions.BadVersionError,
            exceptions.NoNodeError,
        ):
            return False
        return True

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    # ------------------------------------------------------------------ private

    def _wait(self, asked: Any) -> Any:
        """Raises OSError: ZooKeeper cannot be reached, or does not answer in time."""
        exceptions = self._kazoo.exceptions
        try:
            return asked.get(timeout=self._settings.answer_timeout_ms / 1000)
        except (
            exceptions.ConnectionLoss,
            exceptions.ConnectionClosedError,
            exceptions.SessionExpiredError,
            self._kazoo.handlers.threading.KazooTimeoutError,
        ) as error:
            raise OSError(
                f"ZooKeeper at {self._settings.quorum} does not answer: {type(error).__name__}: {error}"
            ) from error

    def _connected(self) -> Any:
        """Return the connected client. Raises OSError."""
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> Any:
        settings = self._settings
        client = self._kazoo.client.KazooClient(
            settings.quorum, timeout=settings.session_timeout_ms / 1000
        )
        try:
            client.start(settings.connection_timeout_ms / 1000)
        except Exception as error:
            client.stop()
            client.close()
            raise OSError(
                f"ZooKeeper at {settings.quorum} cannot be reached within "
                f"{settings.connection_timeout_ms} ms: {type(error).__name__}: {error}. Check "
                "high-availability.zookeeper.quorum."
            ) from error
        return client


@functools.cache
def _kazoo() -> Any:
    try:
        for name in ("client", "exceptions", "handlers.threading"):
            importlib.import_module(f"kazoo.{name}")
        return importlib.import_module("kazoo")
    except ImportError as error:
        raise ConfigurationError(
            "high-availability.type is ZOOKEEPER, but the package 'kazoo' cannot be imported by this driver "
            f"({error}). Install it: pip install 'penstock[zookeeper]'."
        ) from None
