"""A deque whose first elements have priority, such as a barrier that overtakes data.

FIFO among elements with priority, and FIFO among the others. Not thread-safe. Source: Flink PrioritizedDeque.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class PrioritizedDeque(Generic[T]):
    """Elements are compared by equality in `prioritize`, `remove` and `in`."""

    __slots__ = ("_elements", "priority_count")

    def __init__(self) -> None:
        self._elements: deque[T] = deque()
        self.priority_count = 0

    def add(self, element: T) -> None:
        """Append at the tail."""
        self._elements.append(element)

    def add_priority(self, element: T) -> None:
        """Insert after the other elements with priority, before all without."""
        if self.priority_count == 0:
            self._elements.appendleft(element)
        else:
            self._elements.insert(self.priority_count, element)
        self.priority_count += 1

    def prioritize(self, element: T) -> None:
        """Give priority to an element that is in the deque. Raises: ValueError: it is not."""
        index = self._elements.index(element)
        if index < self.priority_count:
            return
        del self._elements[index]
        self.add_priority(element)

    def poll(self) -> T | None:
        """Remove and return the head; None when empty."""
        if not self._elements:
            return None
        if self.priority_count:
            self.priority_count -= 1
        return self._elements.popleft()

    def peek(self) -> T | None:
        return self._elements[0] if self._elements else None

    def peek_last(self) -> T | None:
        return self._elements[-1] if self._elements else None

    def remove(self, element: T) -> bool:
        """Remove an element wherever it is. False: it is not in the deque."""
        try:
            index = self._elements.index(element)
        except ValueError:
            return False
        del self._elements[index]
        if index < self.priority_count:
            self.priority_count -= 1
        return True

    def has_priority(self, element: T) -> bool:
        return element in islice(self._elements, self.priority_count)

    def clear(self) -> None:
        self._elements.clear()
        self.priority_count = 0

    def __contains__(self, element: T) -> bool:
        return element in self._elements

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)
