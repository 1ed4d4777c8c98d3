"""What is known of one worker, and of one start. Plain records; `WorkerPool` alone changes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.model.messages.workers import StartWanted, WorkerId, WorkerKind


class WorkerState(StrEnum):
    """Life of a worker. A worker that is ENDING is known until it is lost."""

    STARTING = "STARTING"
    READY = "READY"
    ENDING = "ENDING"


@dataclass(slots=True, eq=False)
class Start:
    """`order`: its place among all starts. `worker`: where it is hosted; None: it waits. `planned`: for which starting worker."""

    wanted: StartWanted
    order: int
    worker: WorkerId | None = None
    planned: WorkerId | None = None
    is_registered: bool = False
    dropped_at_ms: int | None = None


@dataclass(slots=True, eq=False)
class Worker:
    """`starts`: hosted now. `served`: how many it has hosted so far. `is_unfit`: it ends when the last one is gone.

    `idle_since_ms`: None while it is starting or hosts somebody.
    """

    worker_id: WorkerId
    kind: WorkerKind
    number: int
    state: WorkerState = WorkerState.STARTING
    starts: list[Start] = field(default_factory=list)
    served: int = 0
    is_unfit: bool = False
    idle_since_ms: int | None = None
    idle_ms: int = 0

    @property
    def free_slots(self) -> int:
        return self.kind.slots - sum(start.wanted.slots for start in self.starts)

    @property
    def takes_starts(self) -> bool:
        return self.state is WorkerState.READY and not self.is_unfit

    @property
    def is_idle(self) -> bool:
        return self.state is WorkerState.READY and not self.starts
