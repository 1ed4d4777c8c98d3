"""The store of jobs in ZooKeeper, with the lease of the driver that runs each. Large values are in
a directory.

    <path.root>/<cluster-id>/jobs/<job key>/
        terms/00000003-5f2c8a11   its name is the fencing token of the driver that runs the job; without content
        lease                     rewritten with every renewal
        job, checkpoints, result  names of files in <storageDir>/<cluster-id>/<job key>/, signed
    <path.root>/<cluster-id>/ended/<job key>

Taking over replaces the former term by another one. Every step of a holder is one transaction that
also checks that its term exists. So what a former driver still tries fails in ZooKeeper, and no
time passes between checking and acting. As in the other store, those who wait measure the lease.
Sessions and ephemeral nodes play no part, so a driver that reconnects in time keeps its lease.
Decides nothing. Source: Flink ZooKeeperLeaderElectionDriver, ZooKeeperStateHandleStore (large
values in the HA directory).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

from penstock.engine.hosting.jobmanager.ha.settings import ZookeeperSettings
from penstock.engine.hosting.jobmanager.ha.store import (
    Ended,
    Entry,
    JobStore,
    LeaseTaken,
    Signature,
    lease_bytes,
)
from penstock.engine.hosting.os import private_files
from penstock.engine.machines.leases import Lease
from penstock.engine.model.errors import ConfigurationError, ExternalError

_PARTS: Final = ("job", "checkpoints", "requirements", "result")


class ZookeeperJobStore(JobStore):
    """Connects with the first step. Any thread."""

    def __init__(self, settings: ZookeeperSettings, directory: Path, key: bytes = b"") -> None:
        """`directory`: shared by all drivers. Raises: ConfigurationError: the package kazoo is missing."""
        self._kazoo = _kazoo()
        self._settings = settings
        self._directory = directory
        self._signature = Signature(key)
        self._lock = threading.Lock()
        self._client: Any = None

    # ------------------------------------------------------------------ looking

    def _keys(self) -> Iterable[str]:
        return self._children(f"{self._settings.root}/jobs")

    def _terms(self, key: str) -> Iterable[PurePath]:
        folder = PurePosixPath(f"{self._folder(key)}/terms")
        return [folder / name for name in self._children(str(folder))]

    def lease(self, entry: Entry) -> Lease | None:
        data = self._get(f"{self._folder(entry.key)}/lease")
        if data is None or self._get(str(entry.path)) is None:
            return None
        return Lease(**json.loads(data))

    def ended(self, key: str) -> Ended | None:
        data = self._get(f"{self._settings.root}/ended/{key}")
        return None if data is None else Ended(**json.loads(data))

    def read(self, entry: Entry, name: str) -> bytes | None:
        place = PurePosixPath(self._folder(entry.key), name)
        data = self._get(str(place))
        if data is None:
            return None
        file = self.folder_of(entry.key) / self._signature.open(name, data, place).decode()
        try:
            content = self._signature.read(file)
        except FileNotFoundError:
            raise ExternalError(
                f"high availability: {place} in ZooKeeper names {file}, which does not exist. "
                "Set high-availability.storageDir to a directory that all drivers share."
            ) from None
        return self._signature.open(name, content, file)

    # ------------------------------------------------------------------ the rare steps

    def create(self, key: str, job: bytes, lease: Lease) -> Entry | None:
        if self.find(key) is not None:
            return None
        ended = self.ended(key)
        token = 1 + (ended.token if ended is not None else 0)
        folder, file = self._folder(key), self._write(key, "job", job)
        self._ensure(f"{folder}/terms")
        entry = self._term(key, token)
        done = self._transact(
            lambda step: (
                step.create(f"{folder}/lease", lease_bytes(replace(lease, token=token))),
                step.create(f"{folder}/job", self._signature.sign("job", file.name.encode())),
                step.create(str(entry.path)),
            )
        )
        if not done:
            file.unlink(missing_ok=True)
        return entry if done else None

    def take(self, entry: Entry, lease: Lease) -> Entry | None:
        taken = self._term(entry.key, entry.token + 1)
        data = lease_bytes(replace(lease, token=taken.token))
        done = self._transact(
            lambda step: (
                step.delete(str(entry.path)),
                step.create(str(taken.path)),
                step.set_data(f"{self._folder(entry.key)}/lease", data),
            )
        )
        return taken if done else None

    def remove(self, entry: Entry, ended: Ended) -> None:
        place = f"{self._settings.root}/ended/{entry.key}"
        self._ensure(place)
        self._end(entry, lambda step: step.set_data(place, json.dumps(asdict(ended)).encode()))

    def drop(self, entry: Entry) -> None:
        with contextlib.suppress(LeaseTaken):
            self._end(entry, lambda _step: None)

    def _end(self, entry: Entry, also: Callable[[Any], object]) -> None:
        """Remove everything of a job except its end. Raises LeaseTaken."""
        folder = self._folder(entry.key)
        there = [part for part in ("lease", *_PARTS) if self._get(f"{folder}/{part}") is not None]

        def steps(step: Any) -> None:
            step.delete(str(entry.path))
            for part in there:
                step.delete(f"{folder}/{part}")
            also(step)

        if not self._transact(steps):
            raise self._taken(entry)
        for file in self.folder_of(entry.key).iterdir():
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder_of(entry.key).rmdir()

    # ------------------------------------------------------------------ the holder's steps

    def renew(self, entry: Entry, lease: Lease) -> None:
        place = f"{self._folder(entry.key)}/lease"
        data = lease_bytes(lease)
        self._as_holder(entry, lambda step: step.set_data(place, data))

    def put(self, entry: Entry, name: str, data: bytes) -> None:
        """Write a new file, and remove the former one once no node names it."""
        place = f"{self._folder(entry.key)}/{name}"
        former = self._get(place)
        file = self._write(entry.key, name, data)
        pointer = self._signature.sign(name, file.name.encode())
        try:
            if former is None:
                self._as_holder(entry, lambda step: step.create(place, pointer))
            else:
                self._as_holder(entry, lambda step: step.set_data(place, pointer))
        except LeaseTaken:
            file.unlink(missing_ok=True)
            raise
        if former is not None:
            old = self._signature.open(name, former, PurePosixPath(place)).decode()
            (self.folder_of(entry.key) / old).unlink(missing_ok=True)

    def _as_holder(self, entry: Entry, steps: Callable[[Any], object]) -> None:
        def checked(step: Any) -> None:
            step.check(str(entry.path), 0)
            steps(step)

        if not self._transact(checked):
            raise self._taken(entry)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    # ------------------------------------------------------------------ private: places

    def _folder(self, key: str) -> str:
        return f"{self._settings.root}/jobs/{key}"

    def folder_of(self, key: str) -> Path:
        return self._directory / key

    def _term(self, key: str, token: int) -> Entry:
        name = f"{token:08d}-{secrets.token_hex(8)}"
        return Entry(key, token, PurePosixPath(f"{self._folder(key)}/terms/{name}"))

    def _write(self, key: str, name: str, data: bytes) -> Path:
        """Write a file; durable on return."""
        folder = self.folder_of(key)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{name}-{secrets.token_hex(8)}"
        private_files.write_file(path, self._signature.sign(name, data), is_durable=True)
        return path

    # ------------------------------------------------------------------ private: ZooKeeper

    def _get(self, path: str) -> bytes | None:
        try:
            data: bytes = self._wait(self._connected().get_async(path))[0]
        except self._kazoo.exceptions.NoNodeError:
            return None
        return data

    def _children(self, path: str) -> list[str]:
        try:
            names: list[str] = self._wait(self._connected().get_children_async(path))
        except self._kazoo.exceptions.NoNodeError:
            return []
        return names

    def _ensure(self, path: str) -> None:
        self._wait(self._connected().ensure_path_async(path))

    def _transact(self, steps: Callable[[Any], object]) -> bool:
        """Take all steps or none; False: none."""
        step = self._connected().transaction()
        steps(step)
        results = self._wait(step.commit_async())
        return not any(isinstance(one, Exception) for one in results)

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
