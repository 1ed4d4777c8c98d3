"""What a barrier handler decides; the task carries it out, in order. Plain data.

Source: Flink CheckpointBarrierHandler and its listeners (docs/spec/checkpoints.md#barriers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.model.messages import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class Block:
    """Nothing of this channel is read until it is resumed; its producer's side sees to that."""

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """These channels go on."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trigger:
    """Take the snapshot of this checkpoint now, before anything else is read."""

    checkpoint_id: int
    is_unaligned: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """The checkpoint will not be: forget it and tell those downstream."""

    checkpoint_id: int
    reason: CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class InitInputSnapshot:
    """In-flight data of the inputs is going to be persisted."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class PersistStart:
    """Persist what lies in the channels, and what comes before their barriers."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class PersistStop:
    """All barriers are there, or nobody wants the checkpoint any more."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Prioritize:
    """Barriers that were announced overtake the data before them: (channel, sequence number)."""

    announced: tuple[tuple[int, int], ...]


Action: TypeAlias = (
    Block | Resume | Trigger | Abort | InitInputSnapshot | PersistStart | PersistStop | Prioritize
)
