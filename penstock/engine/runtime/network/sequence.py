"""Sequence numbers of a channel's elements: 32 bits, and 0 follows the last one. Source: Flink BufferOrEvent's sequence numbers."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFFFFFF
_HALF: Final = 1 << 31


def following(sequence: int) -> int:
    """The next number."""
    return (sequence + 1) & _MASK


def is_before(sequence: int, other: int) -> bool:
    """Whether `sequence` came earlier than `other`: fewer than half of all numbers lie between them."""
    return sequence != other and is_not_after(sequence, other)


def is_not_after(sequence: int, other: int) -> bool:
    return (other - sequence) & _MASK < _HALF
