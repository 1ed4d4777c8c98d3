"""How a subpartition is consumed, whatever it is kept in: the seam between output and input side.

Source: Flink ResultSubpartitionView, BufferAndBacklog, BufferAvailabilityListener; differs: a buffer is a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from penstock.runtime.elements import Element


class NextType(IntEnum):
    """What a view would give next. NONE: nothing for now, the consumer is notified when that changes."""

    NONE = 0
    DATA = 1
    EVENT = 2
    PRIORITY_EVENT = 3


@dataclass(slots=True)
class Polled:
    """One element. `backlog`: data batches behind it that can be had; `sequence` counts from 0, events too."""

    element: Element
    backlog: int
    next: NextType
    sequence: int


class SubpartitionView(Protocol):
    """One consumer's reading of a subpartition. Polled by one thread at a time."""

    def poll(self) -> Polled | None:
        """Next element, or None for now. Raises: ExternalError: the producer failed, or its data is gone."""
        ...

    def is_available(self, *, has_credit: bool) -> bool:
        """Whether `poll` would give something that may be sent: without credit, only an event."""
        ...

    def resume(self) -> None:
        """Go on after an element that blocks its channel. Raises: EngineBug: nothing is blocked."""
        ...

    def acknowledge_all_records(self) -> None:
        """The consumer has read the last record, and answers for it in checkpoints from now on."""
        ...

    def release(self) -> None:
        """The consumer has read the end, or wants no more. May be called twice."""
        ...


class ViewListener(Protocol):
    """Whom a view tells. Called from the producer's thread, outside every lock, also without news."""

    def notify_data(self) -> None: ...
    def notify_priority(self, sequence: int) -> None:
        """`sequence`: of the element with priority."""
        ...
