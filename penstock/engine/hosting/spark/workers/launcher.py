"""The port that starts and stops workers, and what they are started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.network.wire.registration import Ticket
from penstock.engine.model.ids import JobId, ResourceId
from penstock.engine.model.messages.workers import StartId, WorkerId, WorkerKind

OnLost = Callable[[WorkerId, str], None]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What all who share a worker have in common. `order`: of `engine.hosting.taskmanager_order.WorkerOrder`, as plain data."""

    kind: WorkerKind
    order: Mapping[str, Any]
    heartbeat_interval_s: float
    silence_timeout_s: float


@dataclass(frozen=True, slots=True)
class WantedStart:
    """A TaskManager that a job wants. `order`: of `engine.hosting.taskmanager_order.ChildOrder`, without secrets. `on_ended`: takes why
    it is over; any thread. `after_sized`: as in `StartWanted`.
    """

    start_id: StartId
    job_id: JobId
    settings: WorkerSettings
    slots: int
    lower_bound: int
    idle_ms: int
    order: Mapping[str, Any]
    credentials: Credentials = field(repr=False)
    on_ended: Callable[[str], None] = field(repr=False)
    after_sized: int = 0


@dataclass(frozen=True, slots=True)
class PoolAddress:
    """Where workers dial, and the ticket of one of them."""

    host: str
    port: int
    ticket: Ticket


class Launcher(Protocol):
    """Starts workers. Any thread; nothing raises."""

    def launch(
        self, worker_id: WorkerId, settings: WorkerSettings, pool: PoolAddress, on_lost: OnLost
    ) -> None:
        """Start one. `on_lost`: told when it is over, or could not be started."""

    def is_up(self, worker_id: WorkerId) -> None:
        """It has connected."""

    def lack_places(self, workers: set[WorkerId]) -> bool:
        """Whether some of these wait for a place and there is none for them."""

    def stop(self, worker_id: WorkerId, *, is_told: bool) -> None:
        """Make sure that it ends. `is_told`: it was told to, and gets time for that. Returns at once."""

    def waiting(self) -> int:
        """Return how many tasks wait for a place that workers may hold. Asks the host, so it takes a moment."""

    def await_ends(self, workers: set[ResourceId], timeout_s: float) -> None:
        """Return when these are over, or the time is."""
