"""Workers as Spark tasks: `workers.launcher.Launcher` on one SparkContext."""

from __future__ import annotations

import sys
import threading
import time
from typing import Final

from pyspark import Broadcast, SparkContext

from penstock.hosting.spark.background_jobs import BackgroundJobs, body_of, package_for
from penstock.hosting.spark.slots import SparkSlots
from penstock.hosting.workers.launcher import OnLost, PoolAddress, WorkerSettings
from penstock.model.ids import ResourceId
from penstock.model.messages.workers import WorkerId

_POLL_S: Final = 0.02
_CANCEL_WITHIN_S: Final = 6.0


class SparkLauncher:
    """`group`: makes the names of its Spark jobs differ from all others."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context = context
        self._slots = SparkSlots(context)
        self._jobs = BackgroundJobs(context, self._slots, group)
        self._lock = threading.Lock()
        self._kept: Broadcast[bytes] | str | None = None

    def launch(
        self, worker_id: WorkerId, settings: WorkerSettings, pool: PoolAddress, on_lost: OnLost
    ) -> None:
        config = {
            "worker_id": worker_id,
            "host": pool.host,
            "port": pool.port,
            "invitation": pool.invitation.to_plain(),
            "heartbeat_interval_s": settings.heartbeat_interval_s,
            "silence_timeout_s": settings.silence_timeout_s,
            "python": sys.executable if self._slots.is_local else None,
            "worker": dict(settings.order),
        }
        size = settings.kind.size
        self._jobs.start(worker_id, size, lambda: body_of(config, self._package()), on_lost)

    def is_up(self, worker_id: WorkerId) -> None:
        self._jobs.is_up(worker_id)

    def lack_places(self, workers: set[WorkerId]) -> bool:
        return self._jobs.lack_places(workers)

    def stop(self, worker_id: WorkerId, *, is_told: bool) -> None:
        if is_told:
            self._jobs.stop_later(worker_id)
        else:
            name = f"penstock-stop-{worker_id}"
            threading.Thread(
                target=self._stop_starting, args=(worker_id,), name=name, daemon=True
            ).start()

    def waiting(self) -> int:
        return self._slots.waiting()

    def await_ends(self, workers: set[ResourceId], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while workers & self._jobs.running() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _stop_starting(self, worker_id: WorkerId) -> None:
        """One that runs already is told when it connects."""
        self._jobs.cancel_queued(worker_id, time.monotonic() + _CANCEL_WITHIN_S)

    def _package(self) -> Broadcast[bytes] | str:
        """The package, once for all workers."""
        with self._lock:
            if self._kept is None:
                self._kept = package_for(self._context)
            return self._kept
