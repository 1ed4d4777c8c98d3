"""Queues of an async operator: which records are being processed, and in which order results may leave.

An entry is the number of a record (numbers only grow) or an event (watermark, status, marker). Events keep their place
among records in both queues. The queues do not know functions or time. Source: Flink OrderedStreamElementQueue,
UnorderedStreamElementQueue; differs: a watermark that waits right behind another one replaces it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.engine.runtime.elements import Element, Watermark

Ready: TypeAlias = "tuple[int, list[Any]] | Element"
"""(number of the record, its results), or an event."""


class AsyncQueue(ABC):
    """The base of both queues. `len`: number of entries, which the operator limits."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def put(self, number: int) -> None:
        """Add a record whose call begins."""

    @abstractmethod
    def put_event(self, event: Element) -> None:
        """Add an event. It leaves after all results of records before it, and before those of records after it."""

    @abstractmethod
    def complete(self, number: int, results: list[Any]) -> None:
        """The record is done."""

    @abstractmethod
    def take(self) -> Iterator[Ready]:
        """Remove and yield what may leave now."""

    @abstractmethod
    def entries(self) -> list[int | Element]:
        """The numbers and events in the queue, in the order in which they came."""


class OrderedQueue(AsyncQueue):
    """Results leave in the order of their records."""

    def __init__(self) -> None:
        self._entries: deque[int | Element] = deque()
        self._done: dict[int, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, number: int) -> None:
        self._entries.append(number)

    def put_event(self, event: Element) -> None:
        entries = self._entries
        if entries and isinstance(event, Watermark) and isinstance(entries[-1], Watermark):
            entries.pop()
        entries.append(event)

    def complete(self, number: int, results: list[Any]) -> None:
        self._done[number] = results

    def take(self) -> Iterator[Ready]:
        entries = self._entries
        while entries:
            head = entries[0]
            if not isinstance(head, int):
                yield entries.popleft()  # type: ignore[misc] # it is the event in `head`
            elif head in self._done:
                entries.popleft()
                yield head, self._done.pop(head)
            else:
                return

    def entries(self) -> list[int | Element]:
        return list(self._entries)


@dataclass(slots=True)
class _Segment:
    """Records between two events. They leave in the order in which they are done."""

    waiting: set[int] = field(default_factory=set)
    done: deque[tuple[int, list[Any]]] = field(default_factory=deque)
    event: Element | None = None

    def __len__(self) -> int:
        return len(self.waiting) + len(self.done) + (self.event is not None)


class UnorderedQueue(AsyncQueue):
    """Results leave as they come, but never past an event."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque([_Segment()])
        self._segment_of: dict[int, _Segment] = {}

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    def put(self, number: int) -> None:
        if self._segments[-1].event is not None:
            self._segments.append(_Segment())
        segment = self._segments[-1]
        segment.waiting.add(number)
        self._segment_of[number] = segment

    def put_event(self, event: Element) -> None:
        last = self._segments[-1]
        if last.event is not None and not (
            isinstance(event, Watermark) and isinstance(last.event, Watermark)
        ):
            last = _Segment()
            self._segments.append(last)
        last.event = event

    def complete(self, number: int, results: list[Any]) -> None:
        segment = self._segment_of.pop(number)
        segment.waiting.remove(number)
        segment.done.append((number, results))

    def take(self) -> Iterator[Ready]:
        while True:
            first = self._segments[0]
            while first.done:
                yield first.done.popleft()
            if first.waiting or first.event is None:
                return
            event, first.event = first.event, None
            if len(self._segments) > 1:
                self._segments.popleft()
            yield event

    def entries(self) -> list[int | Element]:
        found: list[int | Element] = []
        for segment in self._segments:
            found += sorted((*segment.waiting, *(number for number, _ in segment.done)))
            if segment.event is not None:
                found.append(segment.event)
        return found
