"""Sorts batches of several inputs by the timestamps of their records, or by key and then by timestamp. The sort is stable.

Each new key gets the next number, and records are sorted by that number: the order among keys has no meaning. Source: Flink
MultiInputSortingDataInput; differs: sorts batches, not serialized records, and does not compare keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from penstock.engine.runtime.codecs.codec import can_join, concat
from penstock.engine.runtime.elements import NO_TIMESTAMP, Batch, ColumnBatch, Int64s, RowBatch
from penstock.engine.runtime.keys import KeySelection, state_keys

Piece: TypeAlias = "tuple[int, Batch]"
"""Index of the logical input, and its records."""


class KeyNumbers:
    """Numbers keys: equal keys get the same number."""

    def __init__(self, keys: Mapping[int, KeySelection]) -> None:
        """`keys`: how to take the key, for each logical input."""
        self._keys = keys
        self._numbers = _Numbers()

    def of(self, piece: Piece) -> Int64s:
        """The number of each record's key. Raises: what the key selector raises."""
        input_index, batch = piece
        keys, places = self._keys[input_index].distinct_keys_of(batch)
        found = np.fromiter(map(self._numbers.__getitem__, state_keys(keys)), np.int64, len(keys))
        return found if places is None else found[places]


class _Numbers(dict[Any, int]):
    def __missing__(self, skey: Any) -> int:
        number = self[skey] = len(self)
        return number


@dataclass(slots=True)
class _Marked:
    """A piece with its sort keys. `numbers`: of the records' keys; None: sort by timestamp only."""

    input_index: int
    batch: Batch
    numbers: Int64s | None
    stamps: Int64s

    def slice(self, start: int, stop: int) -> _Marked:
        numbers = None if self.numbers is None else self.numbers[start:stop]
        batch = self.batch.slice(start, stop)
        return _Marked(self.input_index, batch, numbers, self.stamps[start:stop])

    @property
    def last(self) -> tuple[int, int]:
        return 0 if self.numbers is None else int(self.numbers[-1]), int(self.stamps[-1])

    def until(self, bound: tuple[int, int]) -> int:
        """How many records of this sorted piece do not come after the bound."""
        number, stamp = bound
        if self.numbers is None:
            return int(np.searchsorted(self.stamps, stamp, side="right"))
        begin, end = np.searchsorted(self.numbers, (number, number + 1)).tolist()
        return int(begin + np.searchsorted(self.stamps[begin:end], stamp, side="right"))


def in_order(pieces: Iterable[Piece], numbers: KeyNumbers | None) -> Iterator[Piece]:
    """The records sorted by timestamp, or, with `numbers`, by key and then by timestamp. Without either they keep their order."""
    pieces = [piece for piece in pieces if len(piece[1])]
    if numbers is None and all(batch.timestamps is None for _, batch in pieces):
        yield from pieces
    elif pieces:
        yield from _sorted([_marked(piece, numbers) for piece in pieces])


def merged(runs: Sequence[Iterable[Piece]], numbers: KeyNumbers | None) -> Iterator[Piece]:
    """Merge runs, each of which is sorted. Holds only a few pieces of each run in memory."""
    heads = [_Run(run, numbers) for run in runs]
    while heads := [head for head in heads if head.fill()]:
        bound = min(head.last for head in heads)
        yield from _sorted([piece for head in heads for piece in head.until(bound)])


def stamps_of(batch: Batch) -> Int64s:
    if batch.timestamps is None:
        return np.full(len(batch), NO_TIMESTAMP, np.int64)
    return batch.timestamps


def _marked(piece: Piece, numbers: KeyNumbers | None) -> _Marked:
    return _Marked(*piece, None if numbers is None else numbers.of(piece), stamps_of(piece[1]))


def _sorted(pieces: Sequence[_Marked]) -> Iterator[Piece]:
    """One sorted batch for each stretch of records of one input and one kind of batch."""
    groups, group_of = _grouped(pieces)
    order = _order_of(pieces)
    if len(groups) == 1:
        ((input_index, batches),) = groups
        yield input_index, _taken(concat(batches), order)
        return
    # The position of each record in its group.
    within = np.empty(len(group_of), np.int64)
    for number in range(len(groups)):
        is_of_it = group_of == number
        within[is_of_it] = np.arange(np.count_nonzero(is_of_it))
    group_of, within = group_of[order], within[order]
    wholes = [
        (input_index, _taken(concat(batches), within[group_of == number]))
        for number, (input_index, batches) in enumerate(groups)
    ]
    begun = [0] * len(groups)
    cuts = (np.flatnonzero(np.diff(group_of)) + 1).tolist()
    for start, stop in pairwise([0, *cuts, len(order)]):
        number = int(group_of[start])
        input_index, whole = wholes[number]
        begin = begun[number]
        begun[number] = end = begin + stop - start
        yield input_index, whole if end - begin == len(whole) else whole.slice(begin, end)


def _grouped(pieces: Sequence[_Marked]) -> tuple[list[tuple[int, list[Batch]]], Int64s]:
    """Group the pieces that can be joined to one batch. Returns the groups, each with its input, and for each
    record the number of its group.
    """
    groups: list[tuple[int, list[Batch]]] = []
    numbers: list[int] = []
    for piece in pieces:
        fitting = (
            number
            for number, (input_index, kept) in enumerate(groups)
            if input_index == piece.input_index and can_join(kept[0], piece.batch)
        )
        number = next(fitting, len(groups))
        if number == len(groups):
            groups.append((piece.input_index, []))
        groups[number][1].append(piece.batch)
        numbers.append(number)
    return groups, np.repeat(np.array(numbers, np.int64), [len(piece.batch) for piece in pieces])


def _order_of(pieces: Sequence[_Marked]) -> Int64s:
    """The positions of the records in the wanted order."""
    order = np.argsort(np.concatenate([piece.stamps for piece in pieces]), kind="stable")
    numbers = [piece.numbers for piece in pieces if piece.numbers is not None]
    if not numbers:
        return order
    by_key = np.concatenate(numbers)[order]
    if int(by_key.max()) < 1 << 16:
        by_key = by_key.astype(np.uint16)  # numpy sorts 16-bit integers by radix
    return order[np.argsort(by_key, kind="stable")]


def _taken(batch: Batch, rows: Int64s) -> Batch:
    if isinstance(batch, ColumnBatch):
        return batch.take(rows)
    values = batch.values
    stamps = None if batch.timestamps is None else batch.timestamps[rows]
    return RowBatch([values[row] for row in rows.tolist()], stamps)


class _Run:
    """A sorted run, with the pieces read from its start. `last`: sort key of the last record among those pieces."""

    def __init__(self, pieces: Iterable[Piece], numbers: KeyNumbers | None) -> None:
        self._pieces = iter(pieces)
        self._numbers = numbers
        self._head: deque[_Marked] = deque()

    def fill(self) -> bool:
        """Read the next piece if there is none. False: the run has ended."""
        while not self._head:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            if len(piece[1]):
                self._head.append(_marked(piece, self._numbers))
        return True

    @property
    def last(self) -> tuple[int, int]:
        return self._head[-1].last

    def until(self, bound: tuple[int, int]) -> Iterator[_Marked]:
        """Remove and return the records that do not come after the bound."""
        piece = self._head.popleft()
        count = piece.until(bound)
        if count:
            yield piece.slice(0, count)
        if count < len(piece.batch):
            self._head.appendleft(piece.slice(count, len(piece.batch)))
