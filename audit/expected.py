"""What the log says must come out, computed without Penstock: records by source, sums by key and slot of time, pairs.

Kept up to date as the log grows. Knows no output.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from audit.event_log import B_FIRST, RECORD, end_of, read_records

WINDOW_MS: Final = 1000
SLOT_MS: Final = 500
PAIR_MS: Final = 10
"""Records of a and b with one key make a pair when their event times differ by at most this."""
_CHUNK: Final = 1 << 20


class Growing:
    """An array that is appended to."""

    def __init__(self, dtype: np.dtype) -> None:
        self._array = np.empty(1024, dtype)
        self._size = 0

    def append(self, values: np.ndarray) -> None:
        size = self._size + len(values)
        if size > len(self._array):
            grown = np.empty(max(size, 2 * len(self._array)), self._array.dtype)
            grown[: self._size] = self._array[: self._size]
            self._array = grown
        self._array[self._size : size] = values
        self._size = size

    @property
    def values(self) -> np.ndarray:
        return self._array[: self._size]

    def __len__(self) -> int:
        return self._size


class Log:
    """The log as far as it is written."""

    def __init__(self, folder: str, sources: list[int]) -> None:
        self.folder = folder
        self.records = {source: Growing(RECORD) for source in sources}
        self.end: dict[int, int] | None = None
        self._listeners: list[Sums] = []

    def sums(self, slot_ms: int) -> Sums:
        """Of the a records."""
        made = Sums(slot_ms)
        self._listeners.append(made)
        return made

    def read_on(self) -> None:
        """Whatever was appended. The end first: what it counts is there then."""
        self.end = end_of(self.folder)
        for source, known in self.records.items():
            while len(more := read_records(self.folder, source, len(known), _CHUNK)):
                known.append(more)
                if source < B_FIRST:
                    for sums in self._listeners:
                        sums.add(more)

    @property
    def is_complete(self) -> bool:
        return self.end is not None and all(
            len(self.records[source]) == count for source, count in self.end.items()
        )

    @property
    def size(self) -> int:
        return sum(map(len, self.records.values()))

    def find(self, sources: np.ndarray, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records with these numbers, and which of them there are."""
        found = np.zeros(len(sources), RECORD)
        is_there = np.zeros(len(sources), bool)
        for source, known in self.records.items():
            mine = (sources == source) & (sequences >= 0) & (sequences < len(known))
            found[mine] = known.values[sequences[mine]]
            is_there |= mine
        return found, is_there

    def pairs(self) -> int:
        """How many pairs the whole log has."""
        a = np.concatenate([r.values for s, r in self.records.items() if s < B_FIRST])
        b = np.concatenate([r.values for s, r in self.records.items() if s >= B_FIRST])
        # Key and time in one number: keys are far enough apart for the bounds not to reach another key.
        span = int(max(a["event_ms"].max(initial=0), b["event_ms"].max(initial=0))) + 4 * PAIR_MS
        places = np.sort(b["key"].astype(np.int64) * span + b["event_ms"])
        wanted = a["key"].astype(np.int64) * span + a["event_ms"]
        low = np.searchsorted(places, wanted - PAIR_MS, "left")
        high = np.searchsorted(places, wanted + PAIR_MS, "right")
        return int((high - low).sum())


class Sums:
    """Count and sum of the values of each key in each slot of `slot_ms`: shape (keys, slots)."""

    def __init__(self, slot_ms: int) -> None:
        self.slot_ms = slot_ms
        self.counts = np.zeros((0, 0), np.int64)
        self.totals = np.zeros((0, 0), np.int64)

    def add(self, records: np.ndarray) -> None:
        keys = records["key"].astype(np.int64)
        slots = records["event_ms"] // self.slot_ms
        self._fit(int(keys.max()) + 1, int(slots.max()) + 1)
        np.add.at(self.counts, (keys, slots), 1)
        np.add.at(self.totals, (keys, slots), records["value"])

    def at(self, keys: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts and totals there; 0 where there is nothing."""
        keys, slots = keys.astype(np.int64), slots.astype(np.int64)
        height, width = self.counts.shape
        inside = (keys >= 0) & (keys < height) & (slots >= 0) & (slots < width)
        counts, totals = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        counts[inside] = self.counts[keys[inside], slots[inside]]
        totals[inside] = self.totals[keys[inside], slots[inside]]
        return counts, totals

    def _fit(self, keys: int, slots: int) -> None:
        height, width = self.counts.shape
        if keys <= height and slots <= width:
            return
        shape = (max(keys, height), slots if slots <= width else max(slots, 2 * width))
        shape = (shape[0], max(shape[1], width))
        for name in ("counts", "totals"):
            old = getattr(self, name)
            new = np.zeros(shape, np.int64)
            new[:height, :width] = old
            setattr(self, name, new)
