"""Figures of one vertex over time, in memory of a fixed size: one row a second for 10 minutes, one row each 10 seconds for 6 hours.

Knows no clock and no job: rows come with their time. A row is 40 bytes, so a vertex takes at most 116 kB (`MOST_BYTES`). Times
without a row take no more than those with one. Flink has no history; its dashboard forgets with its page.

How each subtask of one vertex spends its time, over 10 minutes in steps of 2 s, in memory of a bounded size.

Knows no clock and no job: steps come with their time. A step takes 2 bytes for each subtask, so a subtask takes at most 600 bytes.
Flink has nothing of the kind; Dask's task stream shows the same of its threads.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

STEP_MS: Final = 2_000
STEPS: Final = 300
UNKNOWN: Final = 255
"""In the place of a share."""
BYTES_OF_SUBTASK: Final = 2 * STEPS


class Step(NamedTuple):
    """The shares of all subtasks at one time.

    `at_ms`: when it began. `busy`, `blocked`: the share of each subtask in percent, or `UNKNOWN`; a byte for each subtask.
    """

    at_ms: int
    busy: bytes
    blocked: bytes


class SubtaskLanes:
    """Steps of one vertex. Older ones go."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=STEPS)

    @property
    def bytes_held(self) -> int:
        """What its steps take."""
        return sum(len(one.busy) + len(one.blocked) for one in self._steps)

    def put(self, at_ms: int, busy: bytes, blocked: bytes) -> None:
        """Keep a step. Of two with the same time the later one counts. One that is older than the last one is dropped."""
        step = Step(at_ms - at_ms % STEP_MS, busy, blocked)
        if self._steps and self._steps[-1].at_ms == step.at_ms:
            self._steps[-1] = step
        elif not self._steps or self._steps[-1].at_ms < step.at_ms:
            self._steps.append(step)

    def steps(self, now_ms: int, since_ms: int = 0) -> list[Step]:
        """Return the steps of the last 10 minutes after `since_ms`, oldest first. Times in which nobody looked have none."""
        oldest_ms = max(since_ms, now_ms - STEP_MS * STEPS)
        return [one for one in self._steps if one.at_ms > oldest_ms]


FIGURES: Final = (
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "numBytesInPerSecond",
    "numBytesOutPerSecond",
    "watermarkLag",
    "stateSize",
    "checkpointDuration",
    "busyTimeMsPerSecond.mean",
    "busyTimeMsPerSecond.max",
    "backPressuredTimeMsPerSecond.mean",
    "backPressuredTimeMsPerSecond.max",
    "idleTimeMsPerSecond.mean",
    "idleTimeMsPerSecond.max",
)
"""In the order of a row. `mean`, `max`: over the subtasks. Lag and duration in ms, sizes in bytes."""
Row: TypeAlias = Sequence[float]
"""One value for each figure; NaN: there is none."""
Rows: TypeAlias = Sequence[tuple[int, Row]]
"""Each with the time at which it begins, in epoch ms."""
_ROW: Final = struct.Struct("<7f6H")
_RATES: Final = 7
"""How many figures are fractions; the others are whole numbers from 0 to 1,000."""
_NO_SHARE: Final = 0xFFFF
_MISSING: Final = _ROW.pack(*[math.nan] * _RATES, *[_NO_SHARE] * (len(FIGURES) - _RATES))
_BLOCK: Final = 60
"""Rows that get their memory together."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """One row for each `step_ms`, and `rows` of them."""

    step_ms: int
    rows: int

    @property
    def blocks(self) -> int:
        """The most blocks: whole ones, and the one that is being filled."""
        return self.rows // _BLOCK + 1


FINE: Final = Resolution(1_000, 600)
COARSE: Final = Resolution(10_000, 2_160)
MOST_BYTES: Final = _ROW.size * _BLOCK * (FINE.blocks + COARSE.blocks)
"""What the rows of one vertex take at most."""


class Ring:
    """Rows of one resolution. Older ones go."""

    def __init__(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self._blocks: deque[tuple[int, bytearray]] = deque()

    @property
    def bytes(self) -> int:
        """What its rows take."""
        return sum(len(block) for _, block in self._blocks)

    def put(self, at_ms: int, row: Row) -> None:
        """Keep a row. Of two with the same time the later one counts. One that is older than all that is kept is dropped."""
        slot = at_ms // self.resolution.step_ms
        number, place = divmod(slot, _BLOCK)
        if not self._blocks or number > self._blocks[-1][0]:
            self._blocks.append((number, bytearray(_MISSING * _BLOCK)))
            while self._blocks[0][0] <= number - self.resolution.blocks:
                self._blocks.popleft()
        for known, block in reversed(self._blocks):
            if known == number:
                _ROW.pack_into(block, place * _ROW.size, *row[:_RATES], *map(_share, row[_RATES:]))
            if known <= number:
                return

    def rows(self, now_ms: int, since_ms: int = 0) -> Iterator[tuple[int, Row]]:
        """Return the rows after `since_ms`, oldest first, with the time at which each begins. Times without a row are left out."""
        step_ms = self.resolution.step_ms
        oldest = now_ms // step_ms - self.resolution.rows
        for number, block in self._blocks:
            block_ends_ms = (number + 1) * _BLOCK * step_ms
            if block_ends_ms <= since_ms:  # Pages ask each second for what is new.
                continue
            for place, found in enumerate(_ROW.iter_unpack(block), number * _BLOCK):
                is_wanted = place > oldest and place * step_ms > since_ms
                if is_wanted and not _is_missing(found):
                    yield place * step_ms, _shown(found)

    def latest(self, now_ms: int, within_ms: int, places: Iterable[int]) -> Row:
        """Return the newest value of each of these figures within a time; NaN: there is none, or it is another figure.

        Looks back no further than it has to.
        """
        found = [math.nan] * len(FIGURES)
        missing = set(places)
        newest, oldest = (one // self.resolution.step_ms for one in (now_ms, now_ms - within_ms))
        blocks = dict(self._blocks)
        for slot in range(newest, oldest, -1):
            number, place = divmod(slot, _BLOCK)
            if number in blocks:
                row = _ROW.unpack_from(blocks[number], place * _ROW.size)
                for one in [one for one in missing if _is_known(row, one)]:
                    found[one] = row[one]
                    missing.discard(one)
            if not missing:
                break
        return found


class VertexHistory:
    """One vertex in both resolutions."""

    def __init__(self) -> None:
        self.fine = Ring(FINE)
        self.coarse = Ring(COARSE)
        self._slot = -1
        self._rows: list[Row] = []

    @property
    def bytes(self) -> int:
        return self.fine.bytes + self.coarse.bytes

    def put(self, at_ms: int, row: Row) -> None:
        """Keep a row. Ten seconds are put together when they are over."""
        slot = at_ms // COARSE.step_ms
        if slot != self._slot:
            if self._rows:
                self.coarse.put(self._slot * COARSE.step_ms, together(self._rows))
            self._slot, self._rows = slot, []
        self._rows.append(row)
        self.fine.put(at_ms, row)

    def of(self, resolution: Resolution) -> Ring:
        """Return the rows of one resolution."""
        return self.fine if resolution is FINE else self.coarse


def together(rows: Sequence[Row]) -> Row:
    """Return one row for several: the mean of rates and means, the largest maximum, lag and duration, the last size."""
    return [_put_together(name, [row[place] for row in rows]) for place, name in enumerate(FIGURES)]


def _put_together(name: str, values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    if name == "stateSize":
        return known[-1]
    if name.endswith(("PerSecond", ".mean")):
        return sum(known) / len(known)
    return max(known)


def _share(value: float) -> int:
    return _NO_SHARE if math.isnan(value) else max(0, min(1_000, round(value)))


def _is_missing(row: Row) -> bool:
    return all(map(math.isnan, row[:_RATES])) and all(one == _NO_SHARE for one in row[_RATES:])


def _is_known(row: Row, place: int) -> bool:
    return not math.isnan(row[place]) if place < _RATES else row[place] != _NO_SHARE


def _shown(row: Row) -> Row:
    return [*row[:_RATES], *(math.nan if one == _NO_SHARE else one for one in row[_RATES:])]
