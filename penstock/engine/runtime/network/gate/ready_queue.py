"""ReadyQueue: which channels of a gate, or which gates of a union, have something to read, in fair turns.

Producers and the network thread put entries in, the mailbox thread takes them out. The listener
is called outside the lock. Source: Flink SingleInputGate.inputChannelsWithData,
UnionInputGate.inputGatesWithData (docs/spec/exchange.md#input-gate, #union-of-gates).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

from penstock.engine.runtime.network.gate.ports import GateListener
from penstock.engine.runtime.network.prioritized_deque import PrioritizedDeque


class Entry(Protocol):
    """`is_queued`: the queue's own mark. `is_finished`: the entry is never queued again."""

    is_queued: bool

    @property
    def is_finished(self) -> bool: ...


E = TypeVar("E", bound=Entry)


class ReadyQueue(Generic[E]):
    """Holds each entry at most once. `listener`: called for the first entry, and for the first one with priority."""

    __slots__ = ("_entries", "_lock", "listener")

    def __init__(self, lock: AbstractContextManager[Any], listener: GateListener) -> None:
        self.listener = listener
        self._lock = lock
        self._entries: PrioritizedDeque[E] = PrioritizedDeque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def has_priority(self) -> bool:
        return self._entries.priority_count > 0

    def offer(self, entry: E) -> None:
        """The entry may have something to read. Any thread."""
        with self._lock:
            if entry.is_queued or entry.is_finished:
                return
            entry.is_queued = True
            self._entries.add(entry)
            is_first = len(self._entries) == 1
        if is_first:
            self.listener.notify_available()

    def offer_priority(self, entry: E) -> None:
        """The entry has an element with priority, so it goes before all entries without one. Any thread."""
        with self._lock:
            if entry.is_finished or not self._prioritize(entry):
                return
            is_first = len(self._entries) == 1
            is_first_priority = self._entries.priority_count == 1
        if is_first_priority:
            self.listener.notify_priority()
        if is_first:
            self.listener.notify_available()

    def take(self) -> E | None:
        """Remove and return the first entry. It may be offered again from now on, so look for its data only after this call."""
        with self._lock:
            entry = self._entries.poll()
            if entry is not None:
                entry.is_queued = False
            return entry

    def put_back(self, entry: E, *, has_priority: bool) -> None:
        """The entry has more: put it at the tail, or among those with priority. Calls no listener, because the reader is running."""
        with self._lock:
            if has_priority:
                self._prioritize(entry)
            elif not entry.is_queued:
                # Otherwise it was offered in the meantime.
                entry.is_queued = True
                self._entries.add(entry)

    def remove(self, entry: E) -> None:
        with self._lock:
            if entry.is_queued:
                entry.is_queued = False
                self._entries.remove(entry)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def _prioritize(self, entry: E) -> bool:
        """Give the entry priority. The lock is held. Returns whether it had none before."""
        if not entry.is_queued:
            entry.is_queued = True
            self._entries.add_priority(entry)
            return True
        if self._entries.has_priority(entry):
            return False
        self._entries.prioritize(entry)
        return True
