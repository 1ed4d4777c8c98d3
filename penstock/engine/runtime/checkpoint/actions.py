"""The actions that a barrier handler decides on. The task carries them out in order. Plain data.

Source: Flink CheckpointBarrierHandler and its listeners (docs/spec/checkpoints.md#barriers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.model.messages import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class Block:
    """Read nothing from this channel until it is resumed; its producer stops sending."""

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on reading these channels."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trigger:
    """Take the snapshot of this checkpoint now, before anything else is read."""

    checkpoint_id: int
    is_unaligned: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """Give this checkpoint up, and tell the tasks downstream."""

    checkpoint_id: int
    reason: CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class InitInputSnapshot:
    """In-flight data of the inputs is about to be persisted."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class PersistStart:
    """Persist the data in the channels, and the data that comes before their barriers."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class PersistStop:
    """Stop persisting: all barriers have come, or the checkpoint is given up."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Prioritize:
    """Let announced barriers overtake the data before them. `announced`: (channel, sequence number) of each."""

    announced: tuple[tuple[int, int], ...]


Action: TypeAlias = (
    Block | Resume | Trigger | Abort | InitInputSnapshot | PersistStart | PersistStop | Prioritize
)
