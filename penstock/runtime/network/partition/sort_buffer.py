"""SortBuffer: what all subpartitions of a partition get, gathered by subpartition until it becomes a region of the file.

Does not know files. A batch waits as it is until its frame is full, then as encoded buffers. How much memory batches take
is estimated. Events for all are kept once, in order: each subpartition remembers how many of them it has. Those that stand at
the end for all subpartitions become a region that all share. Source: Flink SortBuffer, HashBasedDataBuffer; differs:
batches are joined and encoded before they are written, so the order of subpartitions costs no sort.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from penstock.runtime.elements import Batch
from penstock.runtime.network.partition.bounded_data import HEADER, DiskBuffer
from penstock.runtime.network.partition.buffer_builder import BlockingFormat, BufferBuilder
from penstock.runtime.network.partition.region_files import Slice
from penstock.runtime.network.partition.row_size import RowSize

_BATCH_BYTES: Final = 256
"""Of a batch without its records, about."""
_SAMPLED_ROWS: Final = 4096
_AS_ROWS: Final = 128
"""For this, a batch counts as so many rows more: about one in 32 small batches is looked at."""


class Gathered:
    """What one subpartition gets. `cost`: bytes in memory. `seen`: how many events of the region it has."""

    __slots__ = ("buffers", "builder", "cost", "seen")

    def __init__(self, form: BlockingFormat) -> None:
        self.buffers: list[DiskBuffer] = []
        self.builder = BufferBuilder(form, self.buffers.append)
        self.cost = 0
        self.seen = 0

    def change(self, row_bytes: float) -> int:
        """By how many bytes the cost has changed."""
        builder = self.builder
        waiting = int(builder.rows * row_bytes) + builder.batches * _BATCH_BYTES
        former = self.cost
        self.cost = waiting + builder.unfinished_bytes + builder.emitted_bytes
        return self.cost - former

    def catch_up(self, events: list[DiskBuffer], until: int) -> None:
        for event in events[self.seen : until]:
            self.builder.add(event)
        self.seen = until

    def take(self) -> list[DiskBuffer]:
        """Everything, and begin anew."""
        self.builder.flush()
        buffers = self.buffers.copy()
        self.buffers.clear()
        self.cost = self.seen = self.builder.emitted_bytes = 0
        return buffers


class SortBuffer:
    """For the producer's thread; the counts are read by any. `size`: bytes in memory, about. `records`, `data_frames`: by
    subpartition, without the `shared_` ones, which all subpartitions get. `frame_limit`: the largest size of frames from the
    next region on. `shared`: what all subpartitions get, if there are records of that kind; then there are no others.
    """

    def __init__(self, subpartitions: int, form: BlockingFormat) -> None:
        self.subpartitions = subpartitions
        self.size = 0
        self.records = array("q", bytes(8 * subpartitions))
        self.data_frames = array("I", [0]) * subpartitions
        self.shared_records = 0
        self.shared_data_frames = 0
        self.frame_limit = form.frame_bytes
        self._format = form
        self._memory = RowSize(form.frame_bytes, 1)
        self._unsampled = _SAMPLED_ROWS
        self._known: dict[int, Gathered] = {}
        self._filled: dict[int, Gathered] = {}
        self.shared: Gathered | None = None
        self._events: list[DiskBuffer] = []
        self._turn = 0

    @property
    def is_by_subpartition(self) -> bool:
        """Whether some subpartition has something of its own."""
        return bool(self._filled)

    def write(self, index: int, batch: Batch) -> int:
        """Called while nothing is shared. Returns: `size`. Raises: whatever pickling a user's object raises."""
        rows = len(batch)
        self.records[index] += rows
        one = self._filled.get(index)
        if one is None or one.seen < len(self._events):
            one = self._of(index)
        self._unsampled += rows + _AS_ROWS
        if self._unsampled >= _SAMPLED_ROWS:
            self._sample(batch)
        builder = one.builder
        frames = builder.data_frames
        builder.write(batch)
        if builder.data_frames == frames:
            more = int(rows * self._memory.bytes_per_row) + _BATCH_BYTES
            one.cost += more
        else:
            more = one.change(self._memory.bytes_per_row)
        self.size += more
        return self.size

    def hold(self, index: int, batch: Batch, *, is_finished: bool) -> None:
        """Add a frame of its own, which is encoded now or when something follows it. Otherwise as `write`."""
        self.records[index] += len(batch)
        self._sample(batch)
        one = self._of(index)
        one.builder.hold(batch)
        if is_finished:
            one.builder.end_frame()
        self.size += one.change(self._memory.bytes_per_row)

    def add(self, index: int, event: DiskBuffer) -> None:
        """Called while nothing is shared."""
        one = self._of(index)
        one.builder.add(event)
        self.size += one.change(self._memory.bytes_per_row)

    def write_shared(self, batch: Batch) -> None:
        """Called while no subpartition has anything of its own. Raises: as `write`."""
        self.shared_records += len(batch)
        self._sample(batch)
        one = self.shared
        if one is None:
            # Each reader has one decoder: whoever writes next has to write its schema.
            self._known = {}
            one = self.shared = self._new()
            one.catch_up(self._events, len(self._events))
            self._events = []
        one.builder.write(batch)
        self.size += one.change(self._memory.bytes_per_row)

    def add_shared(self, event: DiskBuffer) -> None:
        if self.shared is None:
            self._events.append(event)
            self.size += HEADER.size + len(event.data) + _BATCH_BYTES
        else:
            self.shared.builder.add(event)
            self.size += self.shared.change(self._memory.bytes_per_row)

    def encode(self) -> None:
        """Encode all batches. Encoded and compressed, they take less memory."""
        held = [self.shared] if self.shared is not None else self._filled.values()
        for one in held:
            one.builder.end_frame()
            self.size += one.change(self._memory.bytes_per_row)

    def take(self) -> Iterator[Slice]:
        """What single subpartitions have, one after the other, each time from another one on. Take all of it."""
        filled, self._filled = self._filled, {}
        until = max((one.seen for one in filled.values()), default=0)
        events, self._events = self._events[:until], self._events[until:]
        self._turn += 1
        indexes = range(self.subpartitions) if until else sorted(filled)
        start = self._turn % len(indexes)
        for place in range(len(indexes)):
            index = indexes[(start + place) % len(indexes)]
            one = filled.pop(index, None)
            if one is None:
                yield index, events
                continue
            one.catch_up(events, until)
            self.size -= one.cost
            yield index, one.take()
            self.data_frames[index] += one.builder.data_frames
            one.builder.data_frames = 0
            one.builder.limit(self.frame_limit)

    def take_shared(self) -> list[DiskBuffer]:
        """What all subpartitions get, behind what single ones had. Only events stay in the buffer no longer than this."""
        shared, self.shared = self.shared, None
        events, self._events = self._events, []
        self.size = 0
        if shared is None:
            return events
        buffers = shared.take()
        self.shared_data_frames += shared.builder.data_frames
        return buffers

    def forget(self) -> None:
        """Give memory back. Called when it is empty and nothing follows."""
        self._known = {}

    def _of(self, index: int) -> Gathered:
        one = self._filled.get(index)
        if one is None:
            one = self._known.get(index) or self._new()
            self._known[index] = self._filled[index] = one
        if one.seen < len(self._events):
            one.catch_up(self._events, len(self._events))
        return one

    def _new(self) -> Gathered:
        made = Gathered(self._format)
        made.builder.limit(self.frame_limit)
        return made

    def _sample(self, batch: Batch) -> None:
        """Look at some records of a batch. Of many small ones only some are looked at."""
        self._unsampled = 0
        self._memory.sample(batch)
