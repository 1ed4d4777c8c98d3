"""Data in flight of an unaligned checkpoint: what barriers overtake, kept with the state and replayed before anything new.

One piece of bytes for each channel, whole batches in order. Knows no channel but by number, no
file. Source: Flink ChannelStateWriter, ChannelStatePersister, RecoveredInputChannel
(docs/spec/checkpoints.md#data-in-flight). Differs: the mailbox thread records, when it takes data
that was sent before the barrier, and when it takes a barrier that has overtaken some.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.runtime.codecs.codec import ChannelDecoder, ChannelEncoder, size_of
from penstock.runtime.codecs.events import Part
from penstock.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.runtime.records.frozen import Dumps, plain_dumps

_FRAME: Final = struct.Struct("<BQ")  # kind, bytes


class RecordedChannel:
    """Batches of one channel, encoded as they come: user code may change their records afterwards."""

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
    """All of them, in order; nothing when there are none."""
    channel = RecordedChannel(dumps)
    for batch in batches:
        channel.add(batch)
    return bytes(channel.data)


def replayed(data: bytes, loads: Callable[[Part], Any]) -> Iterator[Batch]:
    """What was recorded."""
    decoder, view, position = ChannelDecoder(loads), memoryview(data), 0
    while position < len(view):
        kind, size = _FRAME.unpack_from(view, position)
        position += _FRAME.size
        element = decoder.decode(kind, bytes(view[position : position + size]))
        assert isinstance(element, (RowBatch, ColumnBatch)), "only records are kept in flight"
        yield element
        position += size


class InputsInFlight:
    """Of one checkpoint: for each channel what was sent before its barrier and had not been processed at the snapshot."""

    def __init__(self, checkpoint_id: int, arrived: Iterable[int], dumps: Dumps) -> None:
        """`arrived`: channels whose barrier came in its turn: nothing of them is in flight."""
        self.checkpoint_id = checkpoint_id
        self._arrived = set(arrived)
        self._dumps = dumps
        self._channels: dict[int, RecordedChannel] = {}

    def keep(self, channel: int, batch: Batch) -> None:
        """Before anything else: what was in flight in the checkpoint before, and is still."""
        self._of(channel).add(batch)

    def on_data(self, channel: int, batch: Batch) -> None:
        """Read behind the snapshot; before the barrier of this channel, if that has not come."""
        if channel not in self._arrived:
            self._of(channel).add(batch)

    def on_barrier(self, channel: int, overtaken: Callable[[], Sequence[Batch]]) -> None:
        """The barrier is there, ahead of these. The first one counts."""
        if channel in self._arrived:
            return
        self._arrived.add(channel)
        for batch in overtaken():
            self._of(channel).add(batch)

    def channels(self) -> dict[int, bytes]:
        """What was recorded, of channels that had something."""
        return {channel: bytes(one.data) for channel, one in self._channels.items()}

    def _of(self, channel: int) -> RecordedChannel:
        found = self._channels.get(channel)
        if found is None:
            found = self._channels[channel] = RecordedChannel(self._dumps)
        return found
