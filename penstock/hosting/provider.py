"""The port through which TaskManagers are had: Spark tasks, or threads of a MiniCluster.

Source: Flink ResourceManagerDriver. Every call returns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.hosting.task_settings import TaskSettings
from penstock.hosting.wire.addresses import Endpoint
from penstock.hosting.wire.handshake import Credentials
from penstock.model.ids import ResourceId
from penstock.model.program import ProgramSettings
from penstock.model.slot_size import UNSIZED, SlotSize

OnEnded = Callable[[ResourceId, str], None]


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Where a TaskManager dials and how it proves itself. `silence_timeout_s`: one that hears nothing for so long
    ends.
    """

    host: str
    port: int
    credentials: Credentials
    heartbeat_interval_s: float
    task_settings: TaskSettings
    silence_timeout_s: float = 50.0


class TaskManagerProvider(Protocol):
    """Starts and stops TaskManagers of one job."""

    slots_per_taskmanager: int

    @property
    def shares_files(self) -> bool:
        """Whether TaskManagers see the driver's local files."""

    @property
    def control_endpoint(self) -> Endpoint:
        """Where the JobManager listens, and where TaskManagers dial it: another address behind containers and NAT."""

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        """How many the host can give now, or None when it cannot tell."""

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        """How many of those TaskManagers of these sizes take together. UNSIZED: the usual ones.

        Raises: NoResourceAvailable: the host cannot give them, not even to this job alone; the text says why.
        """

    def bring_files(self, program: ProgramSettings) -> None:
        """The program's archives and requirements, to all TaskManagers. Before `open`. Raises: ConfigurationError."""

    def describe(self) -> str:
        """What the host is, for messages: master, cores, what is used."""

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        """Before the first start. `on_ended(resource_id, cause)` may be called from any thread."""

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        """`size`: of its one slot; UNSIZED: the usual TaskManager."""

    def registered(self, resource_id: ResourceId) -> None:
        """It is connected: from now on it can be told to end."""

    def stop(self, resource_id: ResourceId) -> None:
        """Make sure that it ends, whatever its state."""

    def close(self) -> None:
        """End all; waits a bounded time for what it started."""
