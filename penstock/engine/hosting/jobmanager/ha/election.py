"""Decides which driver runs a job: makes its entry, or waits until the job can be taken over from
the driver that runs it.

A job is recognised by `pipeline.fixed-job-id`, else by its name and the names, uids and source
files of its operators. So the same program gives the same key on another machine, with another
parallelism, or with an added line. Source: Flink's Dispatcher (recovery of execution plans,
JobResultStore); differs: one lease for each job, not one for the process.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final

from penstock.engine.hosting.jobmanager.ha.document_store import (
    DocumentJobStore,
    Documents,
    ObjectDocuments,
)
from penstock.engine.hosting.jobmanager.ha.guard import LeaseKeeper, RecordedResult, read_instant
from penstock.engine.hosting.jobmanager.ha.kubernetes import ConfigMapDocuments
from penstock.engine.hosting.jobmanager.ha.packed_job import (
    ModulesOpener,
    SubmittedJob,
    make_importable,
    pack,
    unpack_job,
)
from penstock.engine.hosting.jobmanager.ha.settings import (
    HaSettings,
    KubernetesSettings,
    ZookeeperSettings,
    make_private,
)
from penstock.engine.hosting.jobmanager.ha.store import Ended, Entry, FileJobStore, JobStore
from penstock.engine.hosting.jobmanager.ha.zookeeper import ZookeeperDocuments
from penstock.engine.hosting.os.file_systems import joined, local_path, open_files
from penstock.engine.hosting.os.s3_objects import s3_objects
from penstock.engine.hosting.shipping.pickling import loads_records
from penstock.engine.machines.leases import Instant, Leadership, Lease, LeaseWatch
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.texts.redaction import without_credentials

SESSION_KEY: Final = "session"
"""The key of the lease of a session, which is no job."""
_KEY_CHARS: Final = 32
_SIGNS_OF_LIFE: Final = 2  # One sign of life may have been the last of a dying driver.


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of this driver to run the job. `former`: the owner before; None for a new job."""

    keeper: LeaseKeeper
    job: SubmittedJob
    former: str | None
    result: RecordedResult | None

    @property
    def is_recovered(self) -> bool:
        return self.former is not None


@dataclass(slots=True)
class Standby:
    """The state of waiting for one job. `lease`: the holder's lease as last seen."""

    watch: LeaseWatch = field(default_factory=LeaseWatch)
    lease: Lease | None = None
    has_logged: bool = False


def key_of(graph: JobGraph, fixed_job_id: str | None) -> str:
    """Return the key by which a job is found again: 32 hexadecimal digits."""
    if fixed_job_id is not None:
        return fixed_job_id
    operators = sorted(
        (info.uid, info.name, os.path.basename(info.defined_at.rpartition(":")[0]))
        for vertex in graph.vertices.values()
        for info in vertex.operators
    )
    text = repr((graph.name, operators))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARS]


class Election:
    """Claims of this process. `say`: prints a line for the user."""

    def __init__(
        self,
        settings: HaSettings,
        say: Callable[[str], None],
        open_modules: ModulesOpener = make_importable,
    ) -> None:
        """`open_modules`: makes a recovered job's own modules importable."""
        make_private(settings.root, settings.key)
        self._settings = settings
        self._say = say
        self._open_modules = open_modules
        self.store = _store_of(settings)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    def job_keys(self) -> list[str]:
        """Return the keys of jobs that have not ended. Raises OSError: the store could not be reached."""
        return [key for key in self.store.job_keys() if key != SESSION_KEY]

    def try_session(self, standby: Standby) -> LeaseKeeper | None:
        """Try once to lead the sessions of this cluster-id. None: another session leads, so the caller tries again.

        Raises OSError: the store could not be reached.
        """
        entry = self.store.find(SESSION_KEY)
        asked = read_instant()
        lease = self._lease("", SESSION_KEY)
        if entry is None:
            entry = self.store.create(SESSION_KEY, b"", lease)
        else:
            standby.lease = held = self.store.lease(entry)
            is_free = held is not None and standby.watch.may_take(
                entry.path.name, held, read_instant().steady_ms
            )
            entry = self.store.take(entry, lease) if is_free else None
        return None if entry is None else self._keep(entry, lease, asked)

    def watch(self, key: str) -> Standby:
        """Look at the lease of a job, if it has one. Its time counts from here, also when nobody looks meanwhile: each
        renewal leaves a trace.
        """
        standby = Standby()
        with contextlib.suppress(OSError):
            entry = self.store.find(key)
            lease = None if entry is None else self.store.lease(entry)
            if entry is not None and lease is not None:
                standby.watch.may_take(entry.path.name, lease, read_instant().steady_ms)
        return standby

    def claim(self, key: str, fresh: SubmittedJob, standby: Standby) -> Claim | Ended:
        """Wait, without limit, while another driver runs the job. Returns: a claim, or how the job
        ended at the other driver.
        """
        while (found := self._look(key, fresh, standby)) is None:
            time.sleep(self._settings.poll_s)
        return found

    def claim_abandoned(self, key: str) -> Claim | None:
        """Wait for at most two leases. None: a driver of the job is alive, or the job has ended."""
        standby = Standby()
        while self.store.find(key) is not None and standby.watch.changes < _SIGNS_OF_LIFE:
            found = self._look(key, None, standby)
            if isinstance(found, Claim):
                return found
            time.sleep(self._settings.poll_s)
        if standby.watch.changes >= _SIGNS_OF_LIFE and standby.lease is not None:
            lease = standby.lease
            self._say(
                f"job '{lease.job_name}' ({lease.job_id}) is run by {lease.owner}; not taken over"
            )
        return None

    def _look(self, key: str, fresh: SubmittedJob | None, standby: Standby) -> Claim | Ended | None:
        """Try once. A store that fails while we wait may come back; if it fails at the first try,
        ExternalError is raised.
        """
        try:
            return self.try_claim(key, fresh, standby)
        except OSError as error:
            if standby.lease is None:
                root = without_credentials(self._settings.root)
                raise ExternalError(f"high availability: cannot use {root}: {error}") from error
            return None

    def try_claim(
        self, key: str, fresh: SubmittedJob | None, standby: Standby
    ) -> Claim | Ended | None:
        """Look once. None: another driver has the job or was faster, so the caller tries again."""
        entry = self.store.find(key)
        if entry is None:
            return self._after_the_end(key, standby) or (
                None if fresh is None else self._create(key, fresh)
            )
        lease = self.store.lease(entry)
        if lease is None:
            return None
        standby.lease = lease
        if not standby.watch.may_take(entry.path.name, lease, read_instant().steady_ms):
            if fresh is not None and not standby.has_logged:
                standby.has_logged = True
                self._say(
                    f"job '{lease.job_name}' ({lease.job_id}) is run by driver {lease.owner}; waiting for its "
                    f"end, or for {lease.duration_ms} ms without a sign of life"
                )
            return None
        return self._take(entry, lease)

    def _after_the_end(self, key: str, standby: Standby) -> Ended | None:
        """Return the end of the job that we waited for. An older end does not prevent a new run."""
        ended = self.store.ended(key)
        if ended is None or standby.lease is None or ended.job_id != standby.lease.job_id:
            return None
        return ended

    def _create(self, key: str, job: SubmittedJob) -> Claim | None:
        asked = read_instant()
        lease = self._lease(job.graph.job_id, job.graph.name)
        entry = self.store.create(key, pack(job), lease)
        if entry is None:
            return None
        return Claim(self._keep(entry, lease, asked), job, None, None)

    def _take(self, entry: Entry, former: Lease) -> Claim | None:
        asked = read_instant()
        lease = self._lease(former.job_id, former.job_name)
        taken = self.store.take(entry, lease)
        if taken is None:
            return None
        keeper = self._keep(taken, lease, asked)
        try:
            result = self.store.read(taken, "result")
            found = self.store.read(taken, "checkpoints")
            pointers = () if found is None else tuple((i, place) for i, place in json.loads(found))
            keeper.former_checkpoints = pointers
            asked_for = self.store.read(taken, "requirements")
            keeper.former_requirements = None if asked_for is None else asked_for.decode()
            recorded = None if result is None else loads_records(result)
            job = _opened(self.store.read(taken, "job"), taken.path, self._open_modules)
        except BaseException:
            keeper.abandon(is_wanted=True)
            raise
        keeper.job_id = job.graph.job_id
        return Claim(keeper, job, former.owner, recorded)

    def _keep(self, entry: Entry, lease: Lease, asked: Instant) -> LeaseKeeper:
        settings = self._settings
        leadership = Leadership(settings.lease_ms, settings.margin_ms, asked)
        keeper = LeaseKeeper(self.store, entry, lease, settings.renew_ms, leadership)
        keeper.start()
        return keeper

    def _lease(self, job_id: str, job_name: str) -> Lease:
        return Lease(0, self.owner, job_id, job_name, 0, self._settings.lease_ms)


def _store_of(settings: HaSettings) -> JobStore:
    path = local_path(settings.root)
    if settings.elsewhere is None and path is not None:
        return FileJobStore(Path(path), settings.key)
    store = DocumentJobStore(_documents_of(settings), settings.root, settings.key)
    atexit.register(store.close)
    return store


def _documents_of(settings: HaSettings) -> Documents:
    match settings.elsewhere:
        case ZookeeperSettings() as zookeeper:
            return ZookeeperDocuments(zookeeper)
        case KubernetesSettings() as kubernetes:
            return ConfigMapDocuments(kubernetes)
    objects = s3_objects(settings.root, settings.limit_s)
    if objects is None:
        raise ConfigurationError(
            f"high-availability.storageDir: {without_credentials(settings.root)!r} needs the "
            "package 'boto3' (pip install 'penstock[s3]'), and takes the options region, scheme "
            "and endpoint_override only."
        )
    _, folder = open_files(joined(settings.root, "jobs"))
    try:
        return ObjectDocuments(objects, folder)
    except OSError as error:
        raise ExternalError(f"high availability: cannot use {folder}: {error}") from error


def _opened(data: bytes | None, path: PurePath, open_modules: ModulesOpener) -> SubmittedJob:
    """Unpack bytes whose signature was checked. Raises ExternalError."""
    try:
        return unpack_job(data or b"", open_modules)
    except Exception as error:
        raise ExternalError(
            f"high availability: the job in {path} cannot be opened here: "
            f"{type(error).__name__}: {error}. Install the same packages as where it was "
            f"submitted. If the job is no longer needed, remove {path}."
        ) from error
