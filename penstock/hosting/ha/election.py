"""Which driver runs a job: makes its entry, or waits for the entry of the driver that runs it and takes it over.

A job is found again by `pipeline.fixed-job-id`, else by its name with the names, uids and source files of its operators: what
the same program gives again, also on another machine, with another parallelism, or with a line more. Source: Flink's Dispatcher (recovery
of execution plans, JobResultStore); differs: one lease for each job, not one for the process.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import pickle
import secrets
import shutil
import socket
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import PurePath
from typing import Final

from penstock.hosting.coordinators.source_coordinator import CoordinatedVertex
from penstock.hosting.ha.guard import LeaseKeeper, RecordedResult, read_instant
from penstock.hosting.ha.settings import HaSettings, make_private
from penstock.hosting.ha.store import Ended, Entry, FileJobStore, JobStore
from penstock.hosting.ha.zookeeper import ZookeeperJobStore
from penstock.hosting.shipping.pickling import deserialize, serialize
from penstock.machines.leases.leadership import Instant, Leadership, Lease, LeaseWatch
from penstock.model.errors import ExternalError
from penstock.model.graph.job_graph import JobGraph
from penstock.model.program import ProgramSettings

_KEY_CHARS: Final = 32
_SIGNS_OF_LIFE: Final = 2  # one may have been a dying driver's last


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job as it was submitted: all that a driver needs to run it, also one without its program.

    `program.configuration`: all that was set, whatever the layer. `modules`: the user's own, as a zip.
    """

    graph: JobGraph
    coordinated: tuple[CoordinatedVertex, ...]
    program: ProgramSettings
    modules: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """The term of this driver. `former`: the owner before us, None for a job that is new."""

    keeper: LeaseKeeper
    job: SubmittedJob
    former: str | None
    result: RecordedResult | None

    @property
    def is_recovered(self) -> bool:
        return self.former is not None


@dataclass(slots=True)
class Standby:
    """One wait for one job. `lease`: the holder's, as seen last."""

    watch: LeaseWatch = field(default_factory=LeaseWatch)
    lease: Lease | None = None
    has_told: bool = False


def key_of(graph: JobGraph, fixed_job_id: str | None) -> str:
    """What finds a job again: 32 hexadecimal digits."""
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
    """Claims of this process. `say`: takes a line for the user."""

    def __init__(self, settings: HaSettings, say: Callable[[str], None]) -> None:
        make_private(settings.root, settings.key)
        self._settings = settings
        self._say = say
        self.store = _store_of(settings)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    def claim(self, key: str, fresh: SubmittedJob) -> Claim | Ended:
        """Waits while another driver runs the job; how it ended there, if it does. For ever, if need be."""
        standby = Standby()
        while (found := self._look(key, fresh, standby)) is None:
            time.sleep(self._settings.poll_s)
        return found

    def claim_abandoned(self, key: str) -> Claim | None:
        """Waits for two leases at most. None: a driver is alive, or the job has ended."""
        standby = Standby()
        while self.store.find(key) is not None and standby.watch.changes < _SIGNS_OF_LIFE:
            found = self._look(key, None, standby)
            if isinstance(found, Claim):
                return found
            time.sleep(self._settings.poll_s)
        if standby.watch.changes >= _SIGNS_OF_LIFE and standby.lease is not None:
            lease = standby.lease
            self._say(
                f"job '{lease.job_name}' ({lease.job_id}) is run by {lease.owner}: left alone"
            )
        return None

    def _look(self, key: str, fresh: SubmittedJob | None, standby: Standby) -> Claim | Ended | None:
        """A store that fails while we wait may come back; one that fails at once is told of: ExternalError."""
        try:
            return self.try_claim(key, fresh, standby)
        except OSError as error:
            if standby.lease is None:
                raise ExternalError(
                    f"high availability: cannot use {self._settings.root}: {error}"
                ) from error
            return None

    def try_claim(
        self, key: str, fresh: SubmittedJob | None, standby: Standby
    ) -> Claim | Ended | None:
        """One look. None: another driver has the job (or was faster): look again."""
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
            if fresh is not None and not standby.has_told:
                standby.has_told = True
                self._say(
                    f"job '{lease.job_name}' ({lease.job_id}) is run by driver {lease.owner}; waiting for its "
                    f"end, or for {lease.duration_ms} ms without a sign of life"
                )
            return None
        return self._take(entry, lease)

    def _after_the_end(self, key: str, standby: Standby) -> Ended | None:
        """The end that we waited for; an older one does not keep the job from being run again."""
        ended = self.store.ended(key)
        if ended is None or standby.lease is None or ended.job_id != standby.lease.job_id:
            return None
        return ended

    def _create(self, key: str, job: SubmittedJob) -> Claim | None:
        asked = read_instant()
        lease = self._lease(job.graph.job_id, job.graph.name)
        entry = self.store.create(key, _pack(job), lease)
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
            recorded = None if result is None else pickle.loads(result)
            job = _unpack(self.store.read(taken, "job"), taken.path)
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
    if settings.zookeeper is None:
        return FileJobStore(settings.root, settings.key)
    store = ZookeeperJobStore(settings.zookeeper, settings.root, settings.key)
    atexit.register(store.close)
    return store


def _pack(job: SubmittedJob) -> bytes:
    """Raises what pickling raises. The coordinators last: they may need the modules beside them."""
    plain = pickle.dumps((job.graph, job.program, job.modules), protocol=5)
    return pickle.dumps((plain, serialize(job.coordinated)), protocol=5)


def _unpack(data: bytes | None, path: PurePath) -> SubmittedJob:
    """Of bytes whose signature was checked. Raises ExternalError."""
    try:
        plain, coordinated = pickle.loads(data or b"")
        graph, program, modules = pickle.loads(plain)
        if modules:
            _make_importable(modules)
        return SubmittedJob(graph, deserialize(coordinated), program, modules)
    except Exception as error:
        raise ExternalError(
            f"high availability: the job in {path} cannot be opened here: {type(error).__name__}: {error}. Are "
            "the same packages installed as where it was submitted? If it is not wanted any more, "
            f"remove {path}."
        ) from error


def _make_importable(archive: bytes) -> None:
    """The program's own modules; those that this process has, or finds by itself, come first."""
    folder = tempfile.mkdtemp(prefix="penstock-recovered-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(BytesIO(archive)) as modules:
        modules.extractall(folder)
    sys.path.append(folder)
