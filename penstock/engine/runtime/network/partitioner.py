"""Partitioners: divide a batch among channels and keep the order within each channel. Do not know subpartitions.

Source: Flink StreamPartitioner and its subclasses; differs: a batch at a time, so that rebalance is a
strided slice, and keys are hashed in one pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.keys import ChannelCache, KeySelection
from penstock.engine.runtime.keys.encoding import RefusedKey
from penstock.engine.runtime.keys.hash_arrays import Channels, as_channels
from penstock.engine.runtime.keys.hashing import is_int32_type
from penstock.engine.runtime.records.dead_letters import note_record


class Partitioner(ABC):
    """The base of partitioners. `split` gives (channel, part) for each channel that gets records."""

    is_broadcast: ClassVar[bool] = False

    @abstractmethod
    def split(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        """The parts of the batch, by channel."""

    def channels_of(self, batch: Batch) -> list[int]:
        """The channel of each record. Advances the partitioner as `split` does."""
        positions = RowBatch(list(range(len(batch))))
        found = [0] * len(batch)
        for channel, part in self.split(positions):
            for position in part.values if isinstance(part, RowBatch) else ():
                found[position] = channel
        return found


class ToFirst(Partitioner):
    """Forward and global: all records go to channel 0."""

    def split(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        return ((0, batch),)


class RoundRobin(Partitioner):
    """Rebalance and rescale: each record goes to the next channel."""

    def __init__(self, channels: int, start: int) -> None:
        self._channels = channels
        self._last = start

    def split(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        channels, rows = self._channels, len(batch)
        first = (self._last + 1) % channels
        self._last = (self._last + rows) % channels
        if channels == 1:
            return ((0, batch),)
        return [
            ((first + offset) % channels, _strided(batch, offset, channels))
            for offset in range(min(channels, rows))
        ]


class Broadcast(Partitioner):
    """Every channel gets all records. Whoever encodes them may do so once."""

    is_broadcast = True

    def __init__(self, channels: int) -> None:
        self._channels = channels

    def split(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        return ((channel, batch) for channel in range(self._channels))

    def channels_of(self, batch: Batch) -> list[int]:
        raise GraphError("a broadcast edge selects no single channel: it writes to all of them")


class Shuffle(Partitioner):
    """Each record goes to a channel chosen uniformly at random, from a seed."""

    def __init__(self, channels: int, seed: int) -> None:
        self._channels = channels
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def split(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        drawn = self._rng.integers(0, self._channels, len(batch), dtype=np.int32)
        return split_by(batch, as_channels(drawn, self._channels))

    def channels_of(self, batch: Batch) -> list[int]:
        drawn: list[int] = self._rng.integers(0, self._channels, len(batch)).tolist()
        return drawn


_SAMPLED: Final = 1000
_MOST_KEYS: Final = 3
_LEAST_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class SampledKey:
    """A key that is frequent in one batch. `count`: its records, of the `records` that go to its channel."""

    key: Any
    channel: int
    count: int
    records: int


class Hash(Partitioner):
    """By key group, so that all records of a key go to the same subtask.

    `columns`: the columns of column batches that are sent; None: all. `cache`: of channels by key; None: one of the usual size.
    `is_sampled`: set it to have the next batch sampled; `sample`: the most frequent keys of the batch that was sampled last.
    """

    is_sampled = False
    sample: tuple[SampledKey, ...] = ()

    def __init__(
        self,
        keys: KeySelection,
        channels: int,
        max_parallelism: int,
        columns: tuple[str, ...] | None = None,
        cache: ChannelCache | None = None,
    ) -> None:
        self._keys = keys
        self._columns = columns
        self._channels = channels
        self._max_parallelism = max_parallelism
        is_int32 = is_int32_type(keys.key_type)
        self._cache = cache or ChannelCache(channels, max_parallelism, is_int32=is_int32)

    def split(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        if isinstance(batch, ColumnBatch):
            places = self._channels_of_columns(batch)
            if self.is_sampled:
                some = batch.slice(0, _SAMPLED)
                self._take_sample(lambda: self._keys.keys_of(some), places[:_SAMPLED].tolist())
            return split_by(self._pruned(batch), places)
        keys = self._keys.keys_of_rows(batch.values)
        try:
            channels = self._cache.channels_of(keys)
        except RefusedKey as error:
            raise self._keys.refused_key(error, keys, batch.values) from None
        if self.is_sampled:
            self._take_sample(lambda: keys[:_SAMPLED], channels[:_SAMPLED])
        return split_rows(batch, channels, self._channels)

    def _take_sample(self, keys_of: Callable[[], list[Any]], channels: list[int]) -> None:
        self.is_sampled = False
        # A sample never fails a job: a key may have a hash of ours and none of Python's, or be a time that Python lacks.
        with suppress(Exception):
            keys, records = keys_of(), Counter(channels)
            self.sample = tuple(
                SampledKey(key, channel, count, records[channel])
                for key, count in Counter(keys).most_common(_MOST_KEYS)
                if count > 1 and count >= _LEAST_SHARE * len(keys)
                for channel in (channels[keys.index(key)],)
            )

    def _pruned(self, batch: ColumnBatch) -> ColumnBatch:
        """The batch with the wanted columns only. If one is missing, the batch is left whole: the reader can give a better error."""
        columns = self._columns
        if columns is None or not set(columns) <= set(batch.data.schema.names):
            return batch
        return batch.select(columns)

    def channels_of(self, batch: Batch) -> list[int]:
        if isinstance(batch, ColumnBatch):
            return list(self._channels_of_columns(batch).tolist())
        return self._cache.channels_of(self._keys.keys_of_rows(batch.values))

    def _channels_of_columns(self, batch: ColumnBatch) -> Channels:
        channels, max_parallelism = self._channels, self._max_parallelism
        return self._keys.channels_of_columns(batch, channels, max_parallelism, self._cache)


class Custom(Partitioner):
    """The user's `partitioner(key, channels) -> channel`."""

    def __init__(self, partition: Any, keys: KeySelection, channels: int) -> None:
        self._partition = getattr(partition, "partition", partition)
        self._keys = keys
        self._channels = channels

    def split(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        found = self.channels_of(batch)
        if isinstance(batch, RowBatch):
            return split_rows(batch, found, self._channels)
        return split_by(batch, as_channels(found, self._channels))

    def channels_of(self, batch: Batch) -> list[int]:
        partition, channels = self._partition, self._channels
        keys = self._keys.keys_of(batch)
        found: list[int] = []
        try:
            found.extend(partition(key, channels) for key in keys)
        except BaseException as error:
            note_record(error, _record_at(batch, len(found), keys))
            raise
        if found and not (
            set(map(type, found)) == {int} and 0 <= min(found) <= max(found) < channels
        ):
            found = [
                _checked(key, channel, channels) for key, channel in zip(keys, found, strict=True)
            ]
        return found


def make_partitioner(  # ruff: ignore[too-many-return-statements] - a dispatch by strategy
    partitioning: Partitioning,
    channels: int,
    own_subtask: int,
    max_parallelism: int,
    start: int,
    parallelism: int | None = None,
) -> Partitioner:
    """The partitioner of one output of one subtask.

    Args: channels: number of subpartitions. parallelism: of the subtask; forward to another number of channels is
    replaced by rebalance (None: to more than one). start: a random number from the host: it is the seed of shuffle, and the
    channel before the first one of rebalance. Source: docs/spec/exchange.md#choosing-a-channel.
    """
    strategy = partitioning.strategy
    if strategy is ShipStrategy.GLOBAL:
        return ToFirst()
    if strategy is ShipStrategy.FORWARD:
        # Forward can have several channels only if the parallelism changed at run time.
        is_kept = channels == (1 if parallelism is None else parallelism)
        return ToFirst() if is_kept else RoundRobin(channels, start % channels)
    if strategy is ShipStrategy.RESCALE:
        return RoundRobin(channels, -1)
    if strategy is ShipStrategy.REBALANCE:
        return RoundRobin(channels, start % channels)
    if strategy is ShipStrategy.SHUFFLE:
        return Shuffle(channels, abs(start) * 32768 + own_subtask)
    if strategy is ShipStrategy.BROADCAST:
        return Broadcast(channels)
    keys = _selection(partitioning)
    if strategy is ShipStrategy.CUSTOM:
        return Custom(partitioning.custom, keys, channels)
    return Hash(keys, channels, max_parallelism, partitioning.columns)


def keys_of(partitioning: Partitioning) -> KeySelection | None:
    """The key selection of the keyed operator at the other end of the edge; None: it is not keyed."""
    return _selection(partitioning) if partitioning.strategy is ShipStrategy.HASH else None


def _selection(partitioning: Partitioning) -> KeySelection:
    keys = partitioning.key_selector
    if not isinstance(keys, KeySelection):
        raise GraphError(
            f"{partitioning.strategy} needs a KeySelection as key_selector, got {keys!r}"
        )
    return keys


def split_rows(
    batch: RowBatch, channels: Sequence[int], count: int
) -> Iterator[tuple[int, RowBatch]]:
    """Divide rows by channel in one pass. Timestamps are handled only if there are any."""
    parts: list[list[Any]] = [[] for _ in range(count)]
    appends = [part.append for part in parts]
    for channel, value in zip(channels, batch.values, strict=True):
        appends[channel](value)
    if batch.timestamps is None:
        for channel, part in enumerate(parts):
            if part:
                yield channel, RowBatch(part)
        return
    order = np.argsort(as_channels(channels, count), kind="stable")
    stamps, position = batch.timestamps[order], 0
    for channel, part in enumerate(parts):
        if part:
            yield channel, RowBatch(part, stamps[position : position + len(part)])
            position += len(part)


def split_by(batch: Batch, channels: Channels) -> Iterator[tuple[int, Batch]]:
    """Divide either kind of batch by an array of channels."""
    if len(channels) == 0:
        return
    low, high = int(channels.min()), int(channels.max())
    if low == high:
        yield low, batch
        return
    if isinstance(batch, RowBatch):
        yield from split_rows(batch, channels.tolist(), high + 1)
        return
    order = np.argsort(channels, kind="stable")
    whole = batch.take(order)
    starts = np.searchsorted(channels.take(order), np.arange(low, high + 2)).tolist()
    for channel, start, stop in zip(range(low, high + 1), starts, starts[1:], strict=False):
        if stop > start:
            yield channel, whole.slice(start, stop)


def _strided(batch: Batch, offset: int, step: int) -> Batch:
    if isinstance(batch, ColumnBatch):
        return batch.take(np.arange(offset, len(batch), step))
    stamps = None if batch.timestamps is None else batch.timestamps[offset::step]
    return RowBatch(batch.values[offset::step], stamps)


def _record_at(batch: Batch, place: int, keys: list[Any]) -> Any:
    """The record at this place; of columns its key."""
    return batch.values[place] if isinstance(batch, RowBatch) else keys[place]


def _checked(key: Any, channel: Any, channels: int) -> int:
    if not isinstance(channel, int | np.integer) or not 0 <= channel < channels:
        raise ValueError(
            f"the custom partitioner returned {bounded_repr(channel)} for key "
            f"{bounded_repr(key)}: expected an int in "
            f"[0, {channels}); use num_partitions, its second argument"
        )
    return int(channel)
