"""Batches of several inputs in the order of their records' timestamps. Stable: equal ones keep their order.

Source: Flink MultiInputSortingDataInput; differs: sorts batches, not serialized records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from penstock.runtime.codec import can_join, concat
from penstock.runtime.elements import NO_TIMESTAMP, Batch, ColumnBatch, Int64s, RowBatch

Piece: TypeAlias = "tuple[int, Batch]"
"""Logical input, and records of it."""


def in_time_order(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The same records; as they are where nothing has a timestamp."""
    if all(batch.timestamps is None for _, batch in pieces):
        yield from pieces
        return
    pieces = [piece for piece in pieces if len(piece[1])]
    groups: list[tuple[int, list[Batch]]] = []
    places: list[tuple[int, int]] = []
    for input_index, batch in pieces:
        group = next(
            (
                g
                for g, (i, kept) in enumerate(groups)
                if i == input_index and can_join(kept[0], batch)
            ),
            len(groups),
        )
        if group == len(groups):
            groups.append((input_index, []))
        places.append((group, sum(map(len, groups[group][1]))))
        groups[group][1].append(batch)
    wholes = [(input_index, concat(kept)) for input_index, kept in groups]
    stamps = np.concatenate([stamps_of(batch) for _, batch in pieces])
    order = np.argsort(stamps, kind="stable")
    lengths = [len(batch) for _, batch in pieces]
    group_of = np.repeat([group for group, _ in places], lengths)[order]
    first_of = np.repeat([first for _, first in places], lengths)
    within = np.concatenate([np.arange(length) for length in lengths])
    row_of = (first_of + within)[order]
    cuts = [0, *(np.flatnonzero(np.diff(group_of)) + 1).tolist(), len(order)]
    for start, stop in pairwise(cuts):
        input_index, whole = wholes[int(group_of[start])]
        yield input_index, _taken(whole, row_of[start:stop])


def merged(runs: Sequence[Iterable[Piece]]) -> Iterator[Piece]:
    """Runs that are each in time order, as one; holds a few pieces of each run."""
    heads = [_Run(run) for run in runs]
    while heads := [head for head in heads if head.fill()]:
        bound = min(head.last for head in heads)
        yield from in_time_order([piece for head in heads for piece in head.until(bound)])


def stamps_of(batch: Batch) -> Int64s:
    if batch.timestamps is None:
        return np.full(len(batch), NO_TIMESTAMP, np.int64)
    return batch.timestamps


class _Run:
    """A run with the piece at its head; `last`: the largest timestamp in that."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = iter(pieces)
        self._head: deque[Piece] = deque()

    def fill(self) -> bool:
        """False: the run is over."""
        while not self._head:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            if len(piece[1]):
                self._head.append(piece)
        return True

    @property
    def last(self) -> int:
        return int(stamps_of(self._head[-1][1])[-1])

    def until(self, bound: int) -> Iterator[Piece]:
        """Remove and give what is not later."""
        input_index, batch = self._head.popleft()
        count = int(np.searchsorted(stamps_of(batch), bound, side="right"))
        if count:
            yield input_index, batch.slice(0, count)
        if count < len(batch):
            self._head.appendleft((input_index, batch.slice(count, len(batch))))


def _taken(batch: Batch, rows: Int64s) -> Batch:
    if isinstance(batch, ColumnBatch):
        return batch.take(rows)
    values = batch.values
    stamps = None if batch.timestamps is None else batch.timestamps[rows]
    return RowBatch([values[row] for row in rows.tolist()], stamps)
