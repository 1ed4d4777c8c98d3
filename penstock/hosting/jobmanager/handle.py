"""The handle by which a program controls its running job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from penstock.hosting.jobmanager.jobmanager import JobManager
from penstock.hosting.jobmanager.savepoints import start_savepoint, statistics_of
from penstock.hosting.waiting import awaited, wait_for_end
from penstock.model.checkpoint_statistics import CheckpointStatistics
from penstock.model.checkpoints import CheckpointType
from penstock.model.ids import JobId
from penstock.model.messages import TaskIo
from penstock.model.program import JobOutcome
from penstock.model.states import JobStatus


class JobHandle:
    """`model.program.JobControl` over a JobManager."""

    def __init__(self, manager: JobManager) -> None:
        self.manager = manager

    @property
    def job_id(self) -> JobId:
        return self.manager.job_id

    def status(self) -> JobStatus:
        return self.manager.status

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """See `wait_for_end`."""
        manager = self.manager
        with awaited(self.job_id):
            wait_for_end(
                manager.ended,
                timeout_s,
                manager.cancel,
                lambda: f"job {manager.job_graph.name} is {manager.status}",
            )
        runtime_ms = manager.ended_ms - manager.started_ms
        return JobOutcome(manager.status, runtime_ms, manager.failure_text)

    def cancel(self) -> None:
        self.manager.cancel()

    def slots_held(self) -> int:
        """Return how many slots the job holds now."""
        return len(self.manager.job_master.books.slots.pool.slots)

    def start_savepoint(
        self, kind: CheckpointType, directory: str | None
    ) -> Callable[[float | None], str]:
        answered = start_savepoint(self.manager, kind, directory)

        def wait(timeout_s: float | None) -> str:
            """Wait for the answer. If the job was to be stopped, it has ended when this returns."""
            began = time.monotonic()
            folder = answered.result(timeout_s)
            if kind.is_synchronous:
                left_s = None if timeout_s is None else timeout_s - (time.monotonic() - began)
                self.wait(left_s)
            return folder

        return wait

    def checkpoints(self) -> CheckpointStatistics:
        return statistics_of(self.manager)

    def task_metrics(self) -> list[tuple[str, int, TaskIo]]:
        return self.manager.job_master.task_metrics()

    def collect(self, stream: str) -> Iterator[list[Any]]:
        return self._read(self.manager.collect(stream).batches())

    def _read(self, batches: Iterator[list[Any]]) -> Iterator[list[Any]]:
        while True:
            with awaited(self.job_id):  # Between two batches it may be that nobody reads on.
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
