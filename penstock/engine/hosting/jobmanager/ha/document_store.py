"""The store of jobs in a place that replaces a small document on condition that nobody else has replaced it meanwhile.

There is one document for each job key. Its fields:

    term      00000003-5f2c8a11: the fencing token of the driver that runs the job; none: nobody runs it
    lease     rewritten with every renewal
    files     job, checkpoints, requirements, result: names of files in <storageDir>/<cluster-id>/, signed
    ended     how the last job of this key ended, for drivers that waited for it
    write     is another one with every write

Taking over writes another term. Every step of a holder replaces exactly the version in which the holder has read its
own term. So what a former driver still tries is refused, and no time passes between checking and acting. As in the
other store, those who wait measure the lease. A writer that gets no answer, or whose client has tried twice, finds
`write` in the document if it was written.

Decides nothing. Source: Flink KubernetesStateHandleStore (large values in the HA directory), KubernetesLeaderElector.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath, PurePosixPath
from typing import Protocol

from penstock.engine.hosting.jobmanager.ha.store import (
    Ended,
    Entry,
    JobStore,
    LeaseTaken,
    Signature,
)
from penstock.engine.hosting.os.file_systems import (
    CheckpointDamaged,
    CheckpointIoError,
    open_files,
)
from penstock.engine.hosting.os.s3_objects import S3Objects
from penstock.engine.machines.leases import Lease
from penstock.engine.model.errors import ConfigurationError, ExternalError


class Documents(Protocol):
    """Documents by name. Every method may raise OSError: whether a document was written is unknown. Any thread."""

    def place_of(self, name: str) -> str:
        """Return by what a user finds a document."""

    def names(self) -> Iterable[str]: ...

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Return a document and its version; None: there is none."""

    def put(self, name: str, data: bytes, version: str | None) -> bool:
        """Replace this version of a document; None: make it. False: there is another version, or one at all."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Document:
    term: str | None = None
    lease: Lease | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    ended: Ended | None = None
    write: str = ""


class DocumentJobStore(JobStore):
    """Any thread."""

    def __init__(self, documents: Documents, directory: str, key: bytes = b"") -> None:
        """`directory`: of the files; a path or a URI, the same for all drivers."""
        self._documents = documents
        self._files, self._folder = open_files(directory, is_checked=not key)
        self._signature = Signature(key)

    def close(self) -> None:
        self._documents.close()

    # ------------------------------------------------------------------ looking

    def _keys(self) -> Iterable[str]:
        return self._documents.names()

    def _terms(self, key: str) -> Iterable[PurePath]:
        term = self._get(key)[0].term
        return [] if term is None else [self._path(key, term)]

    def lease(self, entry: Entry) -> Lease | None:
        document, _ = self._get(entry.key)
        return document.lease if document.term == entry.path.name else None

    def ended(self, key: str) -> Ended | None:
        return self._get(key)[0].ended

    def read(self, entry: Entry, name: str) -> bytes | None:
        pointer = self._get(entry.key)[0].files.get(name)
        if pointer is None:
            return None
        file = self._named(entry, name, pointer)
        try:
            with _os_errors():
                data = self._files.read(file)
        except CheckpointDamaged:
            raise ExternalError(
                f"high availability: {entry.path.parent} names {file}, which does not exist. Set "
                "high-availability.storageDir to a directory that all drivers share."
            ) from None
        return self._signature.open(name, data, PurePosixPath(file))

    # ------------------------------------------------------------------ the rare steps

    def create(self, key: str, job: bytes, lease: Lease) -> Entry | None:
        document, version = self._get(key)
        if document.term is not None:
            return None
        token = 1 + (document.ended.token if document.ended is not None else 0)
        entry, file = self._term(key, token), self._file(key, "job")
        self._write(file, "job", job)
        files = {"job": self._pointer("job", file)}
        made = replace(
            document, term=entry.path.name, lease=replace(lease, token=token), files=files
        )
        if self._put(key, made, version):
            return entry
        self._remove(file)
        return None

    def take(self, entry: Entry, lease: Lease) -> Entry | None:
        """Not tried again when it is refused: the holder may have renewed its lease just now."""
        document, version = self._get(entry.key)
        if document.term != entry.path.name:
            return None
        taken = self._term(entry.key, entry.token + 1)
        lease = replace(lease, token=taken.token)
        new = replace(document, term=taken.path.name, lease=lease)
        return taken if self._put(entry.key, new, version) else None

    def remove(self, entry: Entry, ended: Ended) -> None:
        self._end(entry, lambda _document: Document(ended=ended))

    def drop(self, entry: Entry) -> None:
        with contextlib.suppress(LeaseTaken):
            self._end(entry, lambda document: Document(ended=document.ended))

    def _end(self, entry: Entry, change: Callable[[Document], Document]) -> None:
        with _os_errors():  # The next job of this key has no file yet.
            names = [name for name, _ in self._files.list(self._folder)]
        self._as_holder(entry, change)
        for name in names:
            if name.startswith(f"{entry.key}-"):
                self._remove(f"{self._folder}/{name}")

    # ------------------------------------------------------------------ the holder's steps

    def renew(self, entry: Entry, lease: Lease) -> None:
        self._as_holder(entry, lambda document: replace(document, lease=lease))

    def put(self, entry: Entry, name: str, data: bytes) -> None:
        """Write a new file, and remove the former one once no document names it."""
        file = self._file(entry.key, name)
        self._write(file, name, data)
        pointer, former = self._pointer(name, file), ""

        def change(document: Document) -> Document:
            nonlocal former
            former = document.files.get(name, "")
            return replace(document, files={**document.files, name: pointer})

        try:
            self._as_holder(entry, change)
        except LeaseTaken:
            self._remove(file)
            raise
        if former not in {"", pointer}:
            self._remove(self._named(entry, name, former))

    def _as_holder(self, entry: Entry, change: Callable[[Document], Document]) -> None:
        """Replace the document. Two threads of a holder write, so another version may be its own: it looks again."""
        is_written = False
        while not is_written:
            document, version = self._get(entry.key)
            if document.term != entry.path.name:
                raise self._taken(entry)
            is_written = self._put(entry.key, change(document), version)

    # ------------------------------------------------------------------ private: documents

    def _get(self, key: str) -> tuple[Document, str | None]:
        found = self._documents.get(key)
        if found is None:
            return Document(), None
        try:
            fields = json.loads(found[0])
            lease, ended = fields.pop("lease"), fields.pop("ended")
            document = Document(
                lease=Lease(**lease) if lease else None,
                ended=Ended(**ended) if ended else None,
                **fields,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise OSError(f"{self._documents.place_of(key)} is damaged: {error!r}") from error
        return document, found[1]

    def _put(self, key: str, document: Document, version: str | None) -> bool:
        """Replace this version. Refused or not answered, it may have been written all the same."""
        document = replace(document, write=secrets.token_hex(8))
        try:
            is_written = self._documents.put(key, json.dumps(asdict(document)).encode(), version)
        except OSError:
            if self._get(key)[0].write == document.write:
                return True
            raise
        return is_written or self._get(key)[0].write == document.write

    def _path(self, key: str, term: str) -> PurePosixPath:
        return PurePosixPath(self._documents.place_of(key), term)

    def _term(self, key: str, token: int) -> Entry:
        return Entry(key, token, self._path(key, f"{token:08d}-{secrets.token_hex(8)}"))

    # ------------------------------------------------------------------ private: files

    def _file(self, key: str, name: str) -> str:
        return f"{self._folder}/{key}-{name}-{secrets.token_hex(8)}"

    def _pointer(self, name: str, file: str) -> str:
        return self._signature.sign(name, PurePosixPath(file).name.encode()).decode()

    def _named(self, entry: Entry, name: str, pointer: str) -> str:
        """Return the file that a document names. Without a signature it must not lead elsewhere."""
        place = entry.path.with_name(name)
        file = self._signature.open(name, pointer.encode(), place).decode()
        return f"{self._folder}/{PurePosixPath(file).name}"

    def _write(self, file: str, name: str, data: bytes) -> None:
        """Durable on return."""
        with _os_errors():
            self._files.put_new(file, self._signature.sign(name, data))

    def _remove(self, file: str) -> None:
        """A file that cannot be removed now goes with the job."""
        with contextlib.suppress(CheckpointIoError):
            self._files.remove(file)


class ObjectDocuments:
    """Objects of an S3 bucket whose server writes on condition."""

    def __init__(self, objects: S3Objects, folder: str) -> None:
        """`folder`: `bucket/key`. Raises: ConfigurationError: the server ignores conditions."""
        self._objects = objects
        self._folder = folder
        self._check()

    def place_of(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _check(self) -> None:
        probe = f"{self._folder}/probe-{secrets.token_hex(8)}"
        self._objects.put_if(probe, b"1", None)
        is_refused = not self._objects.put_if(probe, b"2", None)
        is_stale = is_refused and not self._objects.put_if(probe, b"3", '"0"')
        self._objects.remove(probe)
        if not is_stale:
            condition = "If-Match" if is_refused else "If-None-Match"
            raise ConfigurationError(
                f"high-availability.storageDir: the object store of {self._folder} ignores "
                f"{condition} when an object is written, so two drivers could lead one job. Use "
                "a store that has conditional writes (Amazon S3 has them), a directory that all "
                "drivers share, or another high-availability.type."
            )

    def names(self) -> Iterable[str]:
        found = self._objects.names(self._folder)
        return [name for name in found if not name.startswith("probe-")]

    def get(self, name: str) -> tuple[bytes, str] | None:
        return self._objects.get(self.place_of(name))

    def put(self, name: str, data: bytes, version: str | None) -> bool:
        return self._objects.put_if(self.place_of(name), data, version)

    def close(self) -> None:
        """The client is shared with others."""


@contextlib.contextmanager
def _os_errors() -> Generator[None]:
    try:
        yield
    except CheckpointIoError as error:
        raise OSError(str(error)) from error
