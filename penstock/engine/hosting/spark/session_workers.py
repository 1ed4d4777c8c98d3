"""The shared workers of Spark sessions: made when the first job wants some, ended with the session and with the program."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

from pyspark import Broadcast, SparkContext

from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.spark.background_jobs import (
    BackgroundJobs,
    ContextTasks,
    body_of,
    package_for,
)
from penstock.engine.hosting.spark.shared_workers import (
    OnLost,
    PoolAddress,
    SharedWorkers,
    WorkerSettings,
)
from penstock.engine.hosting.spark.slots import STOPPED, SparkSlots
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages.workers import WorkerId, WorkerKind

# ---------------------------------------------------------------------- worker launcher
# Workers as Spark tasks: `workers.launcher.Launcher` on one SparkContext.


_POLL_S: Final = 0.02
_CANCEL_WITHIN_S: Final = 6.0


class SparkLauncher:
    """`group`: makes the names of its Spark jobs differ from all others."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context = context
        self.spark_slots = SparkSlots(context)
        self.background_jobs = BackgroundJobs(ContextTasks(context, self.spark_slots), group)
        self._lock = threading.Lock()
        self._kept: Broadcast[bytes] | str | None = None

    def launch(
        self, worker_id: WorkerId, settings: WorkerSettings, pool: PoolAddress, on_lost: OnLost
    ) -> None:
        config = {
            "worker_id": worker_id,
            "host": pool.host,
            "port": pool.port,
            "ticket": pool.ticket.to_plain(),
            "heartbeat_interval_s": settings.heartbeat_interval_s,
            "silence_timeout_s": settings.silence_timeout_s,
            "python": sys.executable if self.spark_slots.is_local else None,
            "worker": dict(settings.order),
        }
        size = settings.kind.size
        self.background_jobs.start(
            worker_id, size, lambda: body_of(config, self._package()), on_lost
        )

    def is_up(self, worker_id: WorkerId) -> None:
        self.background_jobs.is_up(worker_id)

    def lack_places(self, workers: set[WorkerId]) -> bool:
        return self.background_jobs.lack_places(workers)

    def stop(self, worker_id: WorkerId, *, is_notified: bool) -> None:
        if is_notified:
            self.background_jobs.stop_later(worker_id)
        else:
            name = f"penstock-stop-{worker_id}"
            threading.Thread(
                target=self._stop_starting, args=(worker_id,), name=name, daemon=True
            ).start()

    def waiting(self) -> int:
        return self.spark_slots.waiting()

    def await_ends(self, workers: set[ResourceId], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while workers & self.background_jobs.running() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _stop_starting(self, worker_id: WorkerId) -> None:
        """Cancel a worker that has not started. One that runs already is ordered to end when it
        connects.
        """
        self.background_jobs.cancel_queued(worker_id, time.monotonic() + _CANCEL_WITHIN_S)

    def _package(self) -> Broadcast[bytes] | str:
        """The package, once for all workers."""
        with self._lock:
            if self._kept is None:
                self._kept = package_for(self._context)
            return self._kept


# ---------------------------------------------------------------------- session workers


_END_WAIT_S: Final = 3.0
"""How long a session that stops, or a program that ends, waits for idle workers."""


class _Sessions:
    """Pools by session, and then by where they are dialled. They differ only if jobs do."""

    lock = threading.Lock()
    pools: Final[weakref.WeakKeyDictionary[SparkContext, dict[Endpoint, SharedWorkers]]] = (
        weakref.WeakKeyDictionary()
    )
    number: int = 0
    ends_at_exit: bool = False


def workers_of(context: SparkContext, endpoint: Endpoint) -> SharedWorkers:
    """Return the pool of a session. Raises: ExternalError: there is no port to listen at."""
    with _Sessions.lock:
        pools = _Sessions.pools.get(context)
        if pools is None:
            pools = _Sessions.pools[context] = {}
            _end_before(context)
        if not _Sessions.ends_at_exit:
            _Sessions.ends_at_exit = True
            atexit.register(_end_all)
        found = pools.get(endpoint)
        if found is None or not found.is_open:
            _Sessions.number += 1
            launcher = SparkLauncher(context, f"workers-{_Sessions.number}")
            found = SharedWorkers(endpoint, launcher)
            found.start()
            pools[endpoint] = found
        return found


def idle_workers(context: SparkContext) -> list[WorkerKind]:
    """Return the kinds of the idle workers of a session, one for each: they hold task slots."""
    return [kind for pool in _pools_of(context) for kind in pool.idle()]


def make_room(context: SparkContext, workers: int, kind: WorkerKind | None = None) -> None:
    """End `workers` idle workers of a session, because others need their task slots. `kind`: whose
    stay. Returns at once.
    """
    for pool in _pools_of(context):
        pool.make_room(workers, kind)


def _pools_of(context: SparkContext) -> list[SharedWorkers]:
    with _Sessions.lock:
        return [one for one in _Sessions.pools.get(context, {}).values() if one.is_open]


def _end_before(context: SparkContext) -> None:
    """Have the session end idle workers before it stops: Spark would kill them, and complain of it in its log."""
    stop: Callable[[], None] = context.stop

    def ends() -> None:
        _end(context)
        stop()

    context.stop = ends


def _end(context: SparkContext) -> None:
    for pool in _pools_of(context):
        with contextlib.suppress(Exception):  # Whatever is wrong with it, the session stops.
            pool.close(STOPPED, _END_WAIT_S)


def _end_all() -> None:
    for context in list(_Sessions.pools):
        _end(context)
