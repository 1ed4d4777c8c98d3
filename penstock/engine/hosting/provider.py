"""The port that starts and stops TaskManagers: as Spark tasks, or as threads of a MiniCluster.

Source: Flink ResourceManagerDriver. Every call returns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.network.wire.dialling import Tickets
from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.slot_size import UNSIZED, SlotSize

OnEnded = Callable[[ResourceId, str], None]


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Where a TaskManager dials and how it authenticates itself.

    `silence_timeout_s`: a TaskManager that hears nothing for so long ends. `tickets`: for
    Spark tasks, which have to register before they can authenticate themselves.
    """

    host: str
    port: int
    credentials: Credentials
    tickets: Tickets
    heartbeat_interval_s: float
    task_settings: TaskSettings
    silence_timeout_s: float = 50.0
    logs: LogSettings = field(default_factory=LogSettings)


@dataclass(frozen=True, slots=True)
class HostChanges:
    """What has changed at the host since a job began there. `leaving`: executors that it takes away
    soon. `more_slots`: task slots that have come. `free_slots`: task slots that nobody held at the
    last look; None: unknown. `look`: the number of that look.
    """

    leaving: frozenset[str] = frozenset()
    more_slots: int = 0
    free_slots: int | None = None
    look: int = 0


@dataclass(frozen=True, slots=True)
class HostLoss:
    """Why the host has ended an executor, in its own words. `for_memory`: because its container had too much."""

    cause: str
    for_memory: bool = False


class TaskManagerProvider(Protocol):
    """Starts and stops TaskManagers of one job."""

    slots_per_taskmanager: int

    @property
    def shares_files(self) -> bool:
        """Whether TaskManagers see the driver's local files."""

    @property
    def control_endpoint(self) -> Endpoint:
        """Where the JobManager listens, and where TaskManagers dial it. The addresses differ with
        containers and NAT.
        """

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        """Return how many TaskManagers the host can start now; None: unknown."""

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        """Return the task slots that these numbers of TaskManagers of each size take together.
        UNSIZED: the usual size.

        Raises: NoResourceAvailable: the host could not start them even for this job alone; the text
        says why.
        """

    def bring_files(self, program: ProgramSettings, modules: bytes = b"") -> None:
        """Bring the program's archives and requirements to all TaskManagers. Before `open`.

        `modules`: the zip of the program's own modules, which its JobManager will send: no TaskManager of the job may
        be in a process with others. Raises: ConfigurationError.
        """

    def gone(self) -> str | None:
        """Return why the host will never start a TaskManager again; None: it is there."""

    def describe(self) -> str:
        """Return a text about the host for messages: master, cores, what is used."""

    def has_free_slots(self) -> bool:
        """Return whether the host still gives what was asked for: no TaskManager waits for a place. Returns at once."""

    def changes(self) -> HostChanges:
        """Return what has changed at the host. Returns at once."""

    def why_gone(self, executor: str) -> HostLoss | None:
        """Return why an executor has ended; None: it has not, or the host does not know yet. May take a moment."""

    def leave(self, resource_ids: tuple[ResourceId, ...]) -> None:
        """These TaskManagers are on executors that leave: no other job may be hosted there."""

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        """Called before the first start. `on_ended(resource_id, cause)` may be called from any thread."""

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        """Start a TaskManager. `size`: of its one slot; UNSIZED: the usual TaskManager."""

    def registered(self, resource_id: ResourceId) -> None:
        """The TaskManager is connected. From now on it can be ordered to end."""

    def progress(self, resource_id: ResourceId) -> int | None:
        """Return a number that rises when its mailboxes turn, if this process sees that the
        TaskManager lives; None: another process reports that.
        """

    def stop(self, resource_id: ResourceId) -> None:
        """Make sure that a TaskManager ends, whatever its state."""

    def close(self) -> None:
        """End all TaskManagers; waits a bounded time for those that it started."""
