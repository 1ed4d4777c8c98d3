"""What a source has read and not yet processed, in its state: it goes where the split goes from which it comes.

A job that begins again with another parallelism deals out the splits anew. Were these records dealt out by themselves,
another subtask could read what follows them at the same time, and a key's records would lose their order. Flink has no
such state: its readers give one record after the other.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.engine.runtime.elements import (
    Batch,
    ColumnBatch,
    Element,
    EndOfData,
    LatencyMarker,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.sources.contract import (
    ReaderStatus,
    SourceReader,
    SplitBatch,
    SplitFinished,
)

_OF_A_MOMENT: Final = (Watermark, WatermarkStatus, LatencyMarker, EndOfData)
Hand: TypeAlias = tuple[Element, ...]
Poll: TypeAlias = Callable[[], SplitBatch | SplitFinished | ReaderStatus]
Stamp: TypeAlias = Callable[[Batch], Iterable[Batch]]


@dataclass(frozen=True, slots=True)
class SplitInHand:
    """An element of the state of a source: a split, and what was read of it before its position."""

    split: Any
    elements: Hand


class InHand:
    """Of one subtask. `split_id`: from which split the last elements came. `portions`: how much is handed out at once; None: all."""

    def __init__(self) -> None:
        self.split_id: Hashable = None
        self.portions: Portions | None = None
        self._finished: set[Hashable] = set()
        self._has_read_all = False
        self._restored: list[Any] = []
        self._waiting: deque[tuple[Hashable, Hand]] = deque()

    def restore(self, elements: Iterable[Any]) -> None:
        """Take the state of splits."""
        self._restored = list(elements)

    def splits(self, reader: SourceReader) -> list[Any]:
        """Return the restored splits, once. What was in hand of them waits to be taken."""
        restored, self._restored = self._restored, []
        splits = []
        for one in restored:
            splits.append(one.split if isinstance(one, SplitInHand) else one)
            elements = _lasting(one.elements) if isinstance(one, SplitInHand) else ()
            if elements:  # A poll that gives nothing would wait for a wake-up that does not come.
                self._waiting.append((_id_of(reader, one.split), elements))
        return splits

    def next(self, poll: Poll, stamped: Stamp, paused: AbstractSet[Hashable]) -> Hand | None:
        """Return what comes next; None: nothing for now, or the end. `paused`: splits whose records in hand have to wait."""
        waiting = (at for at, (split_id, _) in enumerate(self._waiting) if split_id not in paused)
        place = next(waiting, None)
        if place is not None:
            return self._taken(place)
        polled = poll()
        while isinstance(polled, SplitFinished):  # No wake-up would come for the elements after it.
            self._finished.add(polled.split_id)
            polled = poll()
        if isinstance(polled, SplitBatch):
            self._waiting.appendleft((polled.split_id, tuple(stamped(polled.batch))))
            return self._taken(0)
        self._has_read_all |= polled is ReaderStatus.END_OF_INPUT
        return None

    def asked(self, now_ms: int) -> None:
        """What was handed out is processed."""
        if self.portions is not None:
            self.portions.asked(now_ms)

    def handed_out(self, elements: Hand, now_ms: int) -> None:
        """These elements go to the task."""
        if self.portions is not None:
            rows = sum(len(one) for one in elements if isinstance(one, (RowBatch, ColumnBatch)))
            self.portions.handed_out(rows, now_ms)

    def over(self) -> list[Hashable]:
        """Return the splits that were read to their end and of which nothing is in hand any more, once."""
        if not self._finished:
            return []
        left = {split_id for split_id, _ in self._waiting}
        over = [split_id for split_id in self._finished if split_id not in left]
        self._finished.difference_update(over)
        return over

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more of any split."""
        return self._has_read_all and not self._waiting

    def _taken(self, place: int) -> Hand:
        self.split_id, elements = self._waiting[place]
        rows = sys.maxsize if self.portions is None else self.portions.rows
        first, rest = _cut(elements, rows)
        if rest:
            self._waiting[place] = self.split_id, rest
        else:
            del self._waiting[place]
        return first

    def state(
        self, reader: SourceReader, splits: Sequence[Any], in_hand: Hand
    ) -> tuple[list[Any], Hand]:
        """Return the state of the splits, and those elements in hand that belong to none of them: it has been read to its end."""
        hands: dict[Hashable, list[Element]] = {}
        for split_id, elements in ((self.split_id, in_hand), *self._waiting):
            if elements:
                hands.setdefault(split_id, []).extend(elements)
        state = []
        for split in splits:
            found = hands.pop(_id_of(reader, split), None)
            state.append(split if found is None else SplitInHand(split, tuple(found)))
        return state, tuple(one for elements in hands.values() for one in elements)


def _cut(elements: Hand, rows: int) -> tuple[Hand, Hand]:
    """Return the elements with the first `rows` records, and the following ones."""
    for index, element in enumerate(elements):
        if not isinstance(element, (RowBatch, ColumnBatch)):
            continue
        if len(element) > rows:
            first, rest = element.slice(0, rows), element.slice(rows, len(element))
            return (*elements[:index], first), (rest, *elements[index + 1 :])
        rows -= len(element)
    return elements, ()


def _lasting(elements: Hand) -> Hand:
    """Without watermarks, which are those of all splits of a former subtask, and without the end of a job that was stopped."""
    return tuple(one for one in elements if not isinstance(one, _OF_A_MOMENT))


def _id_of(reader: SourceReader, split: Any) -> Hashable:
    """None: the reader takes one split after the other, so that the first is the one that is being read."""
    return next(iter(reader.split_ids([split])), None)


FIRST_PORTION: Final = 16
"""Nobody knows yet how long a record takes."""
_GROWTH: Final = 8
"""The most by which a portion is larger than the one before."""


class Portions:
    """How many records a source hands out at once: about as many as its task processes between two watermarks.

    A watermark can go out only between two polls. If slow functions follow, a batch of some thousand records would hold
    it back for as long as they need for the whole batch. Source: none in Flink, whose readers give one record after the
    other, so that a watermark that is due always comes between two records.

    Of one source subtask. `rows`: how many records to hand out at most.
    """

    __slots__ = ("_handed", "_handed_at_ms", "_interval_ms", "rows")

    def __init__(self, interval_ms: int) -> None:
        """`interval_ms`: between two watermarks."""
        self._interval_ms = interval_ms
        self._handed = 0
        self._handed_at_ms = 0
        self.rows = FIRST_PORTION

    def asked(self, now_ms: int) -> None:
        """The source is asked for more: what it has handed out last was processed."""
        handed, self._handed = self._handed, 0
        if not handed:
            return
        elapsed_ms = max(1, now_ms - self._handed_at_ms)
        fitting = max(1, handed * self._interval_ms // elapsed_ms)
        if fitting < self.rows or handed >= self.rows:
            self.rows = min(fitting, self.rows * _GROWTH)

    def handed_out(self, rows: int, now_ms: int) -> None:
        """`rows` records were handed out."""
        self._handed, self._handed_at_ms = rows, now_ms
