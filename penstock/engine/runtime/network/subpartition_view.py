"""How a subpartition is consumed, whatever its storage: the interface between the output side and the input side.

Source: Flink ResultSubpartitionView, BufferAndBacklog, BufferAvailabilityListener; differs: a buffer is a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from penstock.engine.runtime.elements import Element


class NextType(IntEnum):
    """What a view would give next. NONE: nothing for now; the consumer is notified when that changes."""

    NONE = 0
    DATA = 1
    EVENT = 2
    PRIORITY_EVENT = 3


@dataclass(slots=True)
class Polled:
    """One element. `backlog`: data batches after it that can be read; `sequence` counts from 0 and
    includes events.
    """

    element: Element
    backlog: int
    next: NextType
    sequence: int


class SubpartitionView(Protocol):
    """One consumer's reading of a subpartition. Polled by one thread at a time."""

    def poll(self) -> Polled | None:
        """The next element, or None for now. Raises: ExternalError: the producer failed, or its data is gone."""
        ...

    def is_available(self, *, has_credit: bool) -> bool:
        """Whether `poll` would give something that may be sent. Without credit only an event may be sent."""
        ...

    def resume(self) -> None:
        """Go on after an element that blocked its channel. Raises: EngineBug: nothing is blocked."""
        ...

    def acknowledge_all_records(self) -> None:
        """The consumer has read the last record, and includes it in its own checkpoints from now on."""
        ...

    def release(self) -> None:
        """The consumer has read the end, or reads no further. May be called twice."""
        ...


class ViewListener(Protocol):
    """Receives the notifications of a view. Called from the producer's thread, outside every lock, possibly without news."""

    def notify_data(self) -> None: ...
    def notify_priority(self, sequence: int) -> None:
        """`sequence`: number of the element with priority."""
        ...


_MASK: Final = 0xFFFFFFFF
_HALF: Final = 1 << 31


def following(sequence: int) -> int:
    """Sequence numbers of a channel's elements: 32 bits, and 0 follows the last one. Source: Flink BufferOrEvent's
    sequence numbers.

    The next number.
    """
    return (sequence + 1) & _MASK


def is_before(sequence: int, other: int) -> bool:
    """Whether `sequence` came earlier than `other`: fewer than half of all numbers lie between them."""
    return sequence != other and is_not_after(sequence, other)


def is_not_after(sequence: int, other: int) -> bool:
    return (other - sequence) & _MASK < _HALF
