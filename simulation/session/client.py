"""The client of one job: submits it until a driver has taken it, says that it lives, and cancels it where its plan says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.engine.machines.dispatcher import Cancelled

if TYPE_CHECKING:
    from penstock.engine.model.ids import JobId
    from simulation.clock import SimClock
    from simulation.session.driver import SessionDriver
    from simulation.session.plan import SessionJob

_AGAIN_MS: Final = 2_000
_LOST_MS: Final = (10, 1_000, 20_000)


class SimClient:
    """`leader`: the driver that takes jobs now; None: nobody does. `has_result`: of the job. `is_taken`: None: that is not known yet."""

    def __init__(
        self,
        job: SessionJob,
        clock: SimClock,
        leader: Callable[[], SessionDriver | None],
        has_result: Callable[[JobId], bool],
    ) -> None:
        self.job = job
        self.is_taken: bool | None = None
        self.cancelled: Cancelled | None = None
        self._clock = clock
        self._leader = leader
        self._has_result = has_result
        self._asked: SessionDriver | None = None
        clock.at(job.submit_ms, "Submit", self._submit)
        if job.client_timeout_ms is not None:
            clock.at(job.submit_ms, "Alive", self._say_alive)
        if job.cancel_ms is not None:
            clock.at(job.cancel_ms, "Cancel", self._cancel)

    @property
    def _is_over(self) -> bool:
        """Whether it wants nothing of the job any more."""
        if self.is_taken is None:
            return self._clock.now_ms >= self.job.scenario.ends_ms
        return not self.is_taken or self._has_result(self.job.job_id)

    def _submit(self) -> None:
        """Ask, and ask again if there is no answer because the driver is gone."""
        if self.is_taken is not None or self._is_over:
            return
        leader = self._leader()
        if leader is not None and leader is not self._asked:
            self._asked = leader
            leader.submit(self.job, lambda is_taken: self._answered(leader, is_taken))
            if self.job.asks_twice:
                again = partial(self._submit_again, leader)
                self._clock.later(self._clock.random.choice(_LOST_MS), "Submit", again)
        self._clock.later(_AGAIN_MS, "Submit", self._submit)

    def _submit_again(self, driver: SessionDriver) -> None:
        """It has no use for an answer to this one: that to the first one comes too."""
        if not (driver.is_over or self._is_over):
            driver.submit(self.job, lambda _: None)

    def _answered(self, driver: SessionDriver, is_taken: bool) -> None:
        if is_taken or not driver.is_stopping:
            self.is_taken = is_taken

    def _say_alive(self) -> None:
        now_ms, job = self._clock.now_ms, self.job
        assert job.client_timeout_ms is not None
        if self._is_over or (job.silent_ms is not None and now_ms >= job.silent_ms):
            return
        leader = self._leader()
        if leader is not None:
            leader.client_lives(job.job_id)
        self._clock.later(job.client_timeout_ms // 3, "Alive", self._say_alive)

    def _cancel(self) -> None:
        """Ask until a driver knows the job."""
        if self._is_over or self.cancelled in {Cancelled.ACCEPTED, Cancelled.ENDED}:
            return
        leader = self._leader()
        if leader is not None:
            self.cancelled = leader.cancel(self.job.job_id)
        self._clock.later(_AGAIN_MS, "Cancel", self._cancel)
