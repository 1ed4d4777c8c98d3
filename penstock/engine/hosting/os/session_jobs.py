"""The jobs that programs of this process have started and that have not ended: who holds slots, and since when.

Does not know how jobs run. Source: none; a Flink cluster lists its jobs itself.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.ids import JobId
from penstock.engine.model.program import JobControl
from penstock.engine.model.texts.amounts import counted

_END_WAIT_S: Final = 30.0
"""How long a job that is let go may take to end before a new job is refused for want of its slots."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A notebook cell that is running. `key`: the same whenever the cell runs again. `run`: differs each time."""

    key: str
    run: object


@dataclass(frozen=True, slots=True, eq=False)
class SessionJob:
    """`started_s`: epoch seconds. `slots`: how many it holds now. `cell`: the notebook cell that started it, if any. `is_submitted`: another
    process submitted it, so it is none of this program's.
    """

    control: JobControl
    name: str
    started_s: float
    slots: Callable[[], int] = lambda: 0
    cell: Cell | None = None
    is_submitted: bool = False

    @property
    def is_running(self) -> bool:
        return not self.control.status().is_terminal

    def __str__(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self.started_s))
        return f"'{self.name}' ({counted(self.slots(), 'slot')}, since {since})"


class SessionJobs:
    """All of them. Any thread."""

    def __init__(self) -> None:
        self._jobs: list[SessionJob] = []
        self._lock = threading.Lock()

    def add(self, job: SessionJob) -> None:
        with self._lock:
            self._jobs = [*(one for one in self._jobs if one.is_running), job]

    @property
    def running(self) -> Sequence[SessionJob]:
        """Oldest first."""
        with self._lock:
            jobs = list(self._jobs)
        return [job for job in jobs if job.is_running]

    def holders(self, except_id: JobId | None = None) -> str:
        """A sentence about the other jobs that hold slots, and how to end them, with a space before; "": there are none."""
        jobs = list(enumerate(self.running))
        holding = [(i, one) for i, one in jobs if one.control.job_id != except_id and one.slots()]
        if not holding:
            return ""
        names = ", ".join(str(one) for _, one in holding)
        first = holding[0][1]
        if first.is_submitted:
            way = f"`penstock cancel {first.control.job_id[:8]}`"
            return f" Jobs of this session that hold slots: {names}. To end one, run {way}."
        return (
            f" Jobs of this program that hold slots: {names}. To end one, close the iterator or "
            f"cancel the client that started it, or run penstock.jobs()[{holding[0][0]}].cancel()."
        )

    def let_go_of_former_run(self, cell: Cell | None, say: Callable[[str], None]) -> None:
        """End the jobs that former runs of this notebook cell have started: the cell starts them anew."""
        former = [
            one
            for one in self.running
            if cell is not None and one.cell is not None
            if one.cell.key == cell.key and one.cell.run != cell.run
        ]
        for one in former:
            say(f"the cell runs again, so the job {one} of its former run is cancelled")
            one.control.cancel()
        _await(former)

    def drop_forgotten(self) -> bool:
        """End the jobs whose results nobody can read any more, because their iterators are only waiting for Python's collector.

        Returns: whether any has ended.
        """
        before = self.running
        if before:
            gc.collect()
        forgotten = [
            one for one in before if one.control.status().name in {"CANCELLING", "CANCELED"}
        ]
        _await(forgotten)
        return bool(forgotten)


def _await(jobs: Sequence[SessionJob]) -> None:
    for job in jobs:
        with suppress(TimeoutError):
            job.control.wait(_END_WAIT_S)


SESSION_JOBS: Final = SessionJobs()
