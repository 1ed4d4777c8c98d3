"""Encodes in-band elements other than batches to frames, and decodes them. Does not know batches or sockets.

Source: Flink EventSerializer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.model.checkpoints import CheckpointOptions, CheckpointType
from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    CancelCheckpointMarker,
    CheckpointBarrier,
    Element,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    Watermark,
    WatermarkStatus,
)

Part: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"
Parts: TypeAlias = "list[Part]"

WITHOUT_CREDIT: Final = 0x40
"""Flag on a frame's kind: data sent without credit, so that a later barrier that overtakes need not
wait. It fills no buffer of the consumer.
"""
_I64: Final = struct.Struct("!q")
_LATENCY: Final = struct.Struct("!qi")
# id, time, time limit (-1: none), type, four flags
_BARRIER: Final = struct.Struct("!qqqBBBBB")
_NO_LIMIT: Final = -1
_TYPES: Final = tuple(CheckpointType)


class FrameKind(IntEnum):
    """First byte of a frame. Only ROWS and COLUMNS take credit."""

    ROWS = 0
    COLUMNS = 1
    WATERMARK = 2
    STATUS = 3
    LATENCY = 4
    END_OF_DATA = 5
    END_OF_PARTITION = 6
    BARRIER = 7
    CANCEL_CHECKPOINT = 8

    @property
    def is_data(self) -> bool:
        return self <= FrameKind.COLUMNS


def encode_event(element: Element) -> tuple[FrameKind, Parts]:
    """The kind and the payload. Raises: EngineBug: the element is not an event."""
    known = _ENCODERS.get(type(element))
    if known is None:
        raise EngineBug(f"cannot send {element!r}: no frame kind for {type(element).__name__}")
    kind, encode = known
    return kind, [encode(element)]


def decode_event(kind: int, payload: Part) -> Element:
    """The event. Raises: EngineBug: the kind is unknown, which happens when the sender has another version."""
    decode = _DECODERS.get(kind)
    if decode is None:
        raise EngineBug(
            f"unknown frame kind {kind}; both ends must run the same version of penstock"
        )
    return decode(bytes(memoryview(payload)))


def _encode_latency(marker: LatencyMarker) -> bytes:
    return _LATENCY.pack(marker.marked_at_ms, marker.subtask) + marker.operator_id.encode()


def _decode_latency(data: bytes) -> LatencyMarker:
    marked_at_ms, subtask = _LATENCY.unpack_from(data)
    return LatencyMarker(marked_at_ms, data[_LATENCY.size :].decode(), subtask)


def _encode_barrier(barrier: CheckpointBarrier) -> bytes:
    options = barrier.options
    limit = _NO_LIMIT if options.aligned_timeout_ms is None else options.aligned_timeout_ms
    fixed = _BARRIER.pack(
        barrier.checkpoint_id,
        barrier.timestamp_ms,
        limit,
        _TYPES.index(options.type),
        options.is_exactly_once,
        options.is_unaligned,
        options.is_forced_aligned,
        options.is_held,
    )
    return fixed if options.target is None else fixed + options.target.encode()


def _decode_barrier(data: bytes) -> CheckpointBarrier:
    fields = _BARRIER.unpack_from(data)
    checkpoint_id, timestamp_ms, limit, type_index, *flags = fields
    is_exactly_once, is_unaligned, is_forced_aligned, is_held = map(bool, flags)
    options = CheckpointOptions(
        type=_TYPES[type_index],
        is_exactly_once=is_exactly_once,
        is_unaligned=is_unaligned,
        aligned_timeout_ms=None if limit == _NO_LIMIT else limit,
        target=data[_BARRIER.size :].decode() or None,
        is_forced_aligned=is_forced_aligned,
        is_held=is_held,
    )
    return CheckpointBarrier(checkpoint_id, timestamp_ms, options)


_ENCODERS: Final[Mapping[type, tuple[FrameKind, Callable[[Any], bytes]]]] = {
    Watermark: (FrameKind.WATERMARK, lambda one: _I64.pack(one.timestamp_ms)),
    WatermarkStatus: (FrameKind.STATUS, lambda one: bytes([one.idle])),
    LatencyMarker: (FrameKind.LATENCY, _encode_latency),
    EndOfData: (FrameKind.END_OF_DATA, lambda one: bytes([one.drain])),
    EndOfPartition: (FrameKind.END_OF_PARTITION, lambda _: b""),
    CheckpointBarrier: (FrameKind.BARRIER, _encode_barrier),
    CancelCheckpointMarker: (
        FrameKind.CANCEL_CHECKPOINT,
        lambda one: _I64.pack(one.checkpoint_id),
    ),
}
_DECODERS: Final[Mapping[int, Callable[[bytes], Element]]] = {
    FrameKind.WATERMARK: lambda data: Watermark(_I64.unpack(data)[0]),
    FrameKind.STATUS: lambda data: IDLE if data[0] else ACTIVE,
    FrameKind.LATENCY: _decode_latency,
    FrameKind.END_OF_DATA: lambda data: EndOfData(drain=bool(data[0])),
    FrameKind.END_OF_PARTITION: lambda _: EndOfPartition(),
    FrameKind.BARRIER: _decode_barrier,
    FrameKind.CANCEL_CHECKPOINT: lambda data: CancelCheckpointMarker(_I64.unpack(data)[0]),
}
