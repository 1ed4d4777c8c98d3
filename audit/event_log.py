"""The durable log that the job reads and the auditor trusts. Imports nothing of Penstock.

One file for each source, `log/<number>.log`: records of fixed size in the order of their sequence numbers, which are their
places. A torn last record is not there yet. Sources from `B_FIRST` are of the second kind (b), those before of the first (a).
`log/end.json` says that a log is complete, and how many records each source has.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

RECORD: Final = np.dtype([("key", "<i4"), ("value", "<i4"), ("event_ms", "<i8")])
B_FIRST: Final = 100
DISORDER_MS: Final = 50
"""Event times go up by blocks of this length, and have no order inside one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a log holds. `rate`: records of all a sources a second of event time; b sources have a tenth of it."""

    a_sources: int = 4
    b_sources: int = 2
    keys: int = 1000
    rate: int = 4000
    seed: int = 1

    def sources(self) -> list[int]:
        return [*range(self.a_sources), *range(B_FIRST, B_FIRST + self.b_sources)]

    def block(self, number: int) -> dict[int, np.ndarray]:
        """Records of every source for the event times [number, number + 1) * DISORDER_MS."""
        rng = np.random.default_rng((self.seed, number))
        a_each = self.rate * DISORDER_MS / 1000 / self.a_sources
        b_each = self.rate * DISORDER_MS / 10_000 / self.b_sources
        return {
            source: self._records(rng, number, a_each if source < B_FIRST else b_each)
            for source in self.sources()
        }

    def _records(self, rng: np.random.Generator, number: int, average: float) -> np.ndarray:
        count = int(average * (number + 1)) - int(average * number)
        records = np.empty(count, RECORD)
        # A few keys have much of the traffic.
        records["key"] = (self.keys * rng.random(count) ** 2).astype(np.int32)
        records["value"] = rng.integers(-1000, 1000, count)
        records["event_ms"] = number * DISORDER_MS + rng.integers(0, DISORDER_MS, count)
        return records


def path_of(folder: str | Path, source: int) -> Path:
    return Path(folder) / "log" / f"{source}.log"


def end_of(folder: str | Path) -> dict[int, int] | None:
    """Records of each source, if the log is complete."""
    try:
        text = (Path(folder) / "log" / "end.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return {int(source): count for source, count in json.loads(text).items()}


class LogWriter:
    """Appends blocks; `close` says that there are no more."""

    def __init__(self, folder: str | Path, plan: Plan) -> None:
        self.folder = Path(folder)
        self.plan = plan
        self.blocks = 0
        self.counts = dict.fromkeys(plan.sources(), 0)
        (self.folder / "log").mkdir(parents=True)
        self._files = {
            source: path_of(folder, source).open("ab", buffering=0) for source in plan.sources()
        }

    def append(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            for source, records in self.plan.block(self.blocks).items():
                self._files[source].write(records.tobytes())
                self.counts[source] += len(records)
            self.blocks += 1

    def sync(self) -> None:
        for file in self._files.values():
            os.fsync(file.fileno())

    def close(self) -> None:
        self.sync()
        for file in self._files.values():
            file.close()
        hidden = self.folder / "log" / "end.tmp"
        hidden.write_text(json.dumps(self.counts), encoding="utf-8")
        hidden.replace(self.folder / "log" / "end.json")


def read_records(folder: str | Path, source: int, position: int, most: int) -> np.ndarray:
    """Records of a source from `position`, at most so many; empty when there are none yet."""
    try:
        with path_of(folder, source).open("rb") as file:
            file.seek(position * RECORD.itemsize)
            data = file.read(most * RECORD.itemsize)
    except FileNotFoundError:
        data = b""
    whole = len(data) // RECORD.itemsize * RECORD.itemsize
    return np.frombuffer(data[:whole], RECORD)
