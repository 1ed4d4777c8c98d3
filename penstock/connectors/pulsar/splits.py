"""Partitions of topics as splits of a source, with places in them. Plain data; does not know any client.

Source: Flink PulsarPartitionSplit, TopicPartition; differs: the driver turns `latest` into the id of a message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

Place: TypeAlias = tuple[int, int, int]
"""A message's place: ledger, entry, and index in its batch or -1. Messages of a partition are in this order."""

NO_PARTITION = -1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition. `topic`: its full name without the partition. `number` NO_PARTITION: the topic has no partitions."""

    topic: str
    number: int = NO_PARTITION

    @classmethod
    def of(cls, name: str) -> TopicPartition:
        """The partition with this name of the client."""
        topic, mark, number = name.rpartition("-partition-")
        return cls(topic, int(number)) if mark and number.isdigit() else cls(name)

    def __str__(self) -> str:
        return self.topic if self.number < 0 else f"{self.topic}-partition-{self.number}"


class StartKind(Enum):
    """Where reading begins.

    SUBSCRIPTION: after the acknowledged messages; in a new subscription, where the driver made it begin.
    """

    SUBSCRIPTION = "the subscription's place"
    EARLIEST = "earliest"
    LATEST = "latest"
    FROM = "from"
    BEHIND = "behind"
    PUBLISH_TIME = "publish time"


@dataclass(frozen=True, slots=True)
class Start:
    """`place`: for FROM and BEHIND; `timestamp_ms`: for PUBLISH_TIME. The driver replaces LATEST by BEHIND."""

    kind: StartKind
    place: Place | None = None
    timestamp_ms: int = 0


class StopKind(Enum):
    """The property of a message that is compared with the goal."""

    LATEST = "latest"
    PLACE = "place"
    EVENT_TIME = "event time"
    PUBLISH_TIME = "publish time"


@dataclass(frozen=True, slots=True)
class Stop:
    """Messages from `goal` on are not read; with `is_inclusive` the first message exactly at `goal` is."""

    kind: StopKind
    goal: Place | int | None = None
    is_inclusive: bool = False


@dataclass(frozen=True, slots=True)
class PulsarSplit:
    """A partition in checkpoints: reading goes on BEHIND the last message that was read. `stop` None: no end."""

    partition: TopicPartition
    start: Start
    stop: Stop | None = None
    is_over: bool = False

    def behind(self, place: Place, *, is_over: bool) -> PulsarSplit:
        return replace(self, start=Start(StartKind.BEHIND, place), is_over=is_over)
