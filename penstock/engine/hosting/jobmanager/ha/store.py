"""The store of jobs that drivers share, with the lease of the driver that runs each: the port, and
a store in a directory.

    <storageDir>/<cluster-id>/<job key>/
        lock                 held for the rare steps: make an entry, take it over, remove it
        00000003-5f2c8a11/   the entry; its name is the fencing token of the driver that runs the job
            job              the job as it was submitted
            lease            rewritten with every renewal
            checkpoints      the checkpoints that a driver taking over may begin with
            requirements     what parallelism users have asked for
            result           how the job ends, written before any result becomes visible
        ended                how the last job of this key ended, for drivers that waited for it

An entry is filled under another name, made durable, and renamed, so a half-written one is never
seen. Taking it over renames it again. Then everything that the former driver still tries (a
renewal, a result) fails in the file system itself, and no time passes between checking the token
and acting by it.

Decides nothing. Assumes what POSIX says of `rename` and `flock`, and that all see a rename at once:
local file systems, NFS 4 with `lookupcache=none`. Source: Flink's ExecutionPlanStore,
JobResultStore and leader election, in one.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import Final

from penstock.engine.hosting.os import private_files
from penstock.engine.machines.leases import Lease
from penstock.engine.model.errors import ExternalError

_MAGIC: Final = b"PENSTOCK-HA-2 "
_DIGEST_CHARS: Final = 64
_TERM: Final = re.compile(r"(\d{8,})-[0-9a-f]{16}")
_NEW: Final = "new-"
_GONE: Final = "gone-"
_UNREADABLE_LEASE_MS: Final = 60_000


class LeaseTaken(ExternalError):
    """The entry belongs to another driver by now, or is gone."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One driver's term for one job. `token`: rises with every term of its key. `path`: unique in
    the store for each term.
    """

    key: str
    token: int
    path: PurePath


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended. `status`: a globally terminal JobStatus."""

    token: int
    job_id: str
    status: str
    net_runtime_ms: int
    failure: str | None = None


class JobStore(ABC):
    """All entries of one cluster-id.

    Every method may raise OSError: the store could not be reached, and whether the step was taken
    is unknown.
    """

    def job_keys(self) -> list[str]:
        """Return the keys of jobs that have not ended."""
        return sorted(key for key in self._keys() if self.find(key) is not None)

    def find(self, key: str) -> Entry | None:
        found = [
            (int(match[1]), path)
            for path in self._terms(key)
            if (match := _TERM.fullmatch(path.name))
        ]
        return Entry(key, *max(found)) if found else None

    @abstractmethod
    def _keys(self) -> Iterable[str]:
        """Return the keys that there may be."""

    @abstractmethod
    def _terms(self, key: str) -> Iterable[PurePath]:
        """Return the paths that there may be of entries."""

    @abstractmethod
    def lease(self, entry: Entry) -> Lease | None:
        """Return the lease of an entry; None: the entry is gone."""

    @abstractmethod
    def ended(self, key: str) -> Ended | None: ...

    @abstractmethod
    def read(self, entry: Entry, name: str) -> bytes | None:
        """Read `job`, `checkpoints`, `requirements` or `result`; None: it was never written. Raises ExternalError:
        it has been altered.
        """

    @abstractmethod
    def create(self, key: str, job: bytes, lease: Lease) -> Entry | None:
        """Make a new entry; the lease gets its token. None: the key has an entry already."""

    @abstractmethod
    def take(self, entry: Entry, lease: Lease) -> Entry | None:
        """Take over the entry; the former driver is fenced off from then on. None: another driver was faster."""

    @abstractmethod
    def remove(self, entry: Entry, ended: Ended) -> None:
        """Remove the entry of a job that has ended for good. Raises LeaseTaken."""

    @abstractmethod
    def drop(self, entry: Entry) -> None:
        """Remove the entry of a job that never started, as if it had not been submitted."""

    @abstractmethod
    def renew(self, entry: Entry, lease: Lease) -> None:
        """Write the renewed lease. Raises LeaseTaken."""

    @abstractmethod
    def put(self, entry: Entry, name: str, data: bytes) -> None:
        """Replace what `read` returns for this name, durable on return and seen by later drivers that take over. Raises
        LeaseTaken.
        """

    def close(self) -> None:
        """Release connections; the store is not used afterwards."""

    def _taken(self, entry: Entry) -> LeaseTaken:
        now = self.find(entry.key)
        who = self.lease(now) if now is not None else None
        by = f"driver {who.owner}" if who is not None else "another driver"
        return LeaseTaken(f"{by} has taken it over{'' if who is not None else ' and ended it'}")


class Signature:
    """Signs and checks what will be unpickled. `key` empty: a checksum only."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, name: str, body: bytes) -> bytes:
        """Sign. `name`: kind of the content, so that one kind cannot be passed off as another."""
        return self._head(name, body) + body

    def read(self, path: Path) -> bytes:
        """Read a file. Without a key, a checksum does not say who has written it: so nobody else may
        be able to.

        Raises: NotPrivate: other users may write there. OSError.
        """
        if self._key:
            return path.read_bytes()
        with os.fdopen(private_files.open_checked(str(path)), "rb") as file:
            return file.read()

    def open(self, name: str, data: bytes, place: PurePath) -> bytes:
        """Check and return the content. Raises ExternalError, naming `place`: it has been altered."""
        start = len(_MAGIC) + _DIGEST_CHARS + 1
        body = data[start:]
        if not hmac.compare_digest(data[:start], self._head(name, body)):
            raise ExternalError(
                f"high availability: {place} is damaged, of another version, or signed with "
                "another penstock.high-availability.key-file; nothing of it was read. Use "
                "the key file of the driver that submitted the job. If the job is no longer "
                f"needed, remove {place.parent}."
            )
        return body

    def _head(self, name: str, body: bytes) -> bytes:
        mac = hmac.new(self._key, name.encode() + b"\0" + body, hashlib.sha256)
        return _MAGIC + mac.hexdigest().encode() + b"\n"


class FileJobStore(JobStore):
    """A store in a directory."""

    def __init__(self, root: Path, key: bytes = b"") -> None:
        self._root = root
        self._signature = Signature(key)

    # ------------------------------------------------------------------ looking

    def _keys(self) -> Iterable[str]:
        return _names(self._root)

    def _terms(self, key: str) -> Iterable[PurePath]:
        return [self._root / key / name for name in _names(self._root / key)]

    def lease(self, entry: Entry) -> Lease | None:
        """Return the lease of an entry; None: the entry is gone. A lease damaged by a power loss
        counts for a minute.
        """
        try:
            return Lease(**json.loads((_folder(entry) / "lease").read_bytes()))
        except FileNotFoundError:
            if not _folder(entry).exists():
                return None
        except (ValueError, TypeError):
            pass
        return Lease(entry.token, "a driver unknown", "", "", 0, _UNREADABLE_LEASE_MS)

    def ended(self, key: str) -> Ended | None:
        try:
            return Ended(**json.loads((self._root / key / "ended").read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def read(self, entry: Entry, name: str) -> bytes | None:
        try:
            data = self._signature.read(_folder(entry) / name)
        except FileNotFoundError:
            return None
        return self._signature.open(name, data, entry.path / name)

    # ------------------------------------------------------------------ the rare steps, under the lock

    def create(self, key: str, job: bytes, lease: Lease) -> Entry | None:
        folder = self._root / key
        with self._locked(folder):
            if self.find(key) is not None:
                return None
            _sweep(folder)
            ended = self.ended(key)
            token = 1 + (ended.token if ended is not None else 0)
            new = folder / f"{_NEW}{secrets.token_hex(8)}"
            new.mkdir(mode=0o700)
            _write_durably(new / "job", self._signature.sign("job", job))
            _write_durably(new / "lease", lease_bytes(replace(lease, token=token)))
            private_files.sync_folder(new)
            return self._enter(key, token, new)

    def take(self, entry: Entry, lease: Lease) -> Entry | None:
        folder = self._root / entry.key
        with self._locked(folder):
            if self.find(entry.key) != entry:
                return None
            taken = self._enter(entry.key, entry.token + 1, _folder(entry))
            new = _folder(taken) / f".lease-{taken.token}"
            _write_durably(new, lease_bytes(replace(lease, token=taken.token)))
            new.replace(_folder(taken) / "lease")
            return taken

    def remove(self, entry: Entry, ended: Ended) -> None:
        folder = self._root / entry.key
        with self._locked(folder):
            if not _folder(entry).is_dir():
                raise LeaseTaken(f"{entry.path.name} is not ours any more")
            _write_durably(folder / ".ended", json.dumps(asdict(ended)).encode())
            (folder / ".ended").replace(folder / "ended")
            _folder(entry).rename(folder / f"{_GONE}{secrets.token_hex(8)}")
            private_files.sync_folder(folder)
            _sweep(folder)

    def drop(self, entry: Entry) -> None:
        folder = self._root / entry.key
        with self._locked(folder):
            if _folder(entry).is_dir():
                _folder(entry).rename(folder / f"{_GONE}{secrets.token_hex(8)}")
            _sweep(folder)

    # ------------------------------------------------------------------ the holder's steps, without a lock

    def renew(self, entry: Entry, lease: Lease) -> None:
        """Write the renewed lease, not durably: after a power loss no driver holds a lease. Raises
        LeaseTaken, OSError.
        """
        with self._fenced(entry):
            # No former driver has a file of this name open.
            new = _folder(entry) / f".lease-{entry.token}"
            private_files.write_file(new, lease_bytes(lease))
            new.replace(_folder(entry) / "lease")

    def put(self, entry: Entry, name: str, data: bytes) -> None:
        with self._fenced(entry):
            new = _folder(entry) / f".{name}-{entry.token}"
            _write_durably(new, self._signature.sign(name, data))
            new.replace(_folder(entry) / name)
            private_files.sync_folder(_folder(entry))

    # ------------------------------------------------------------------ private

    @contextlib.contextmanager
    def _fenced(self, entry: Entry) -> Generator[None, None, None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            with self._locked(
                self._root / entry.key
            ):  # A driver that takes over writes its lease before it releases the lock.
                raise self._taken(entry) from error

    def _enter(self, key: str, token: int, folder: Path) -> Entry:
        path = self._root / key / f"{token:08d}-{secrets.token_hex(8)}"
        folder.rename(path)
        private_files.sync_folder(self._root / key)
        return Entry(key, token, path)

    @contextlib.contextmanager
    def _locked(self, folder: Path) -> Generator[None, None, None]:
        """Hold the lock of a job. A process that ends releases it; one that is paused inside makes the others wait."""
        folder.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(private_files.open_to_write(folder / "lock"), "wb") as file:
            if sys.platform != "win32":  # `ha_settings_of` refuses Windows.
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _folder(entry: Entry) -> Path:
    return Path(entry.path)


def lease_bytes(lease: Lease) -> bytes:
    return json.dumps(asdict(lease)).encode()


def _write_durably(path: Path, data: bytes) -> None:
    private_files.write_file(path, data, is_durable=True)


def _sweep(folder: Path) -> None:
    """Remove what killed drivers left half done. Only under the lock."""
    for name in os.listdir(folder):
        if name.startswith((_NEW, _GONE)):
            shutil.rmtree(folder / name, ignore_errors=True)
