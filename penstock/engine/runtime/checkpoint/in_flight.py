"""Data in flight of an unaligned checkpoint: data that barriers overtake. It is kept with the state and replayed before new data.

Each channel has one byte string with whole batches in order. Knows channels only by their numbers, and
no files. Source: Flink ChannelStateWriter, ChannelStatePersister, RecoveredInputChannel
(docs/spec/checkpoints.md#data-in-flight). Differs: the mailbox thread does the recording, in two cases: when it reads data
that was sent before the barrier, and when it reads a barrier that has overtaken data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.engine.runtime.codecs.codec import ChannelDecoder, ChannelEncoder, size_of
from penstock.engine.runtime.codecs.events import Part
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.records.frozen import Dumps, plain_dumps

_FRAME: Final = struct.Struct("<BQ")  # kind, length in bytes


class RecordedChannel:
    """Batches of one channel, encoded at once, because user code may change their records afterwards."""

    __slots__ = ("_encoder", "data")

    def __init__(self, dumps: Dumps) -> None:
        self._encoder = ChannelEncoder(dumps)
        self.data = bytearray()

    def add(self, batch: Batch) -> None:
        """Raises: what `dumps` raises."""
        kind, parts = self._encoder.encode(batch)
        self.data += _FRAME.pack(kind, size_of(parts))
        for part in parts:
            self.data += memoryview(part)


def recorded(batches: Iterable[Batch], dumps: Dumps = plain_dumps) -> bytes:
    """The batches as bytes, in order; empty if there are none."""
    channel = RecordedChannel(dumps)
    for batch in batches:
        channel.add(batch)
    return bytes(channel.data)


def replayed(data: bytes, loads: Callable[[Part], Any]) -> Iterator[Batch]:
    """The batches that were recorded."""
    decoder, view, position = ChannelDecoder(loads), memoryview(data), 0
    while position < len(view):
        kind, size = _FRAME.unpack_from(view, position)
        position += _FRAME.size
        element = decoder.decode(kind, bytes(view[position : position + size]))
        assert isinstance(element, (RowBatch, ColumnBatch)), "only records are kept in flight"
        yield element
        position += size


class InputsInFlight:
    """What one checkpoint records per channel: data that was sent before the barrier and not processed before the snapshot."""

    def __init__(self, checkpoint_id: int, arrived: Iterable[int], dumps: Dumps) -> None:
        """`arrived`: channels whose barrier came in order, behind its data, so that nothing of them is in flight."""
        self.checkpoint_id = checkpoint_id
        self._arrived = set(arrived)
        self._dumps = dumps
        self._channels: dict[int, RecordedChannel] = {}

    def keep(self, channel: int, batch: Batch) -> None:
        """Record data that the restored checkpoint had in flight and that is not processed yet. Comes before all other calls."""
        self._of(channel).add(batch)

    def on_data(self, channel: int, batch: Batch) -> None:
        """Record data that is read after the snapshot, unless the barrier of this channel has come."""
        if channel not in self._arrived:
            self._of(channel).add(batch)

    def on_barrier(self, channel: int, overtaken: Callable[[], Sequence[Batch]]) -> None:
        """The barrier has come, ahead of the `overtaken` data. Only the first barrier of a channel counts."""
        if channel in self._arrived:
            return
        self._arrived.add(channel)
        for batch in overtaken():
            self._of(channel).add(batch)

    def channels(self) -> dict[int, bytes]:
        """The recorded bytes by channel, without the channels that had nothing."""
        return {channel: bytes(one.data) for channel, one in self._channels.items()}

    def _of(self, channel: int) -> RecordedChannel:
        found = self._channels.get(channel)
        if found is None:
            found = self._channels[channel] = RecordedChannel(self._dumps)
        return found
