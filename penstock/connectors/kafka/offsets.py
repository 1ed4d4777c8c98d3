"""Rules for where reading begins and ends, which become offsets when partitions are found.

Source: pyflink.datastream.connectors.kafka, Flink's OffsetsInitializer; differs: the driver looks up every offset,
once, so that a reader that starts again begins at the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, TypeAlias

from penstock.engine.model.errors import ConfigurationError, ExternalError

# ---------------------------------------------------------------------- splits
# Partitions of topics as splits of a source. Plain data.
#
# Source: Flink KafkaPartitionSplit; differs: offsets are always numbers, never rules.


@dataclass(frozen=True, slots=True, order=True)
class KafkaTopicPartition:
    """Names a partition of a topic. Source: pyflink.datastream.connectors.kafka."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """A partition in checkpoints. `offset`: of the next record to read; `stop`: of the first record not to read, or
    None. `topic_id`: of the topic whose offsets these are; empty: the brokers have no ids.
    """

    partition: KafkaTopicPartition
    offset: int
    stop: int | None = None
    topic_id: str = ""

    @property
    def is_over(self) -> bool:
        return self.stop is not None and self.offset >= self.stop

    def at(self, offset: int) -> KafkaSplit:
        return replace(self, offset=offset)


# ---------------------------------------------------------------------- offsets


Offsets: TypeAlias = "dict[KafkaTopicPartition, int]"


class Lookup(Protocol):
    """The questions that the rules ask a cluster; `client.KafkaCluster` answers them."""

    def earliest(self, partitions: Sequence[KafkaTopicPartition]) -> Offsets: ...
    def latest(self, partitions: Sequence[KafkaTopicPartition]) -> Offsets: ...
    def at_time(self, partitions: Sequence[KafkaTopicPartition], timestamp_ms: int) -> Offsets: ...
    def committed(self, partitions: Sequence[KafkaTopicPartition]) -> Offsets:
        """The committed offsets; partitions without one are missing."""


class KafkaOffsetResetStrategy(Enum):
    """Says what replaces an offset that does not exist."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


_RESET_PROPERTY = {
    KafkaOffsetResetStrategy.LATEST: "latest",
    KafkaOffsetResetStrategy.EARLIEST: "earliest",
    KafkaOffsetResetStrategy.NONE: "error",
}


class _Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True)
class KafkaOffsetsInitializer:
    """Sets where reading starts or stops. Make it with one of the static methods."""

    kind: _Kind
    reset: KafkaOffsetResetStrategy
    timestamp_ms: int = 0
    given: tuple[tuple[KafkaTopicPartition, int], ...] = ()

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Use the offsets that the group committed; without one, the strategy (NONE: an error)."""
        _checked_strategy("committed_offsets", offset_reset_strategy)
        return KafkaOffsetsInitializer(_Kind.COMMITTED, offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Use the first record at or after this time in epoch ms; without one, the end."""
        if isinstance(timestamp, bool) or not isinstance(timestamp, int) or timestamp < 0:
            raise ConfigurationError(
                f"KafkaOffsetsInitializer.timestamp: expected epoch milliseconds from 0, got {timestamp!r}."
            )
        return KafkaOffsetsInitializer(
            _Kind.TIMESTAMP, KafkaOffsetResetStrategy.LATEST, timestamp_ms=timestamp
        )

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Use the first record of each partition."""
        return KafkaOffsetsInitializer(_Kind.EARLIEST, KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Use the end of each partition at the start of the job."""
        return KafkaOffsetsInitializer(_Kind.LATEST, KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Use these offsets; for other partitions the committed offset, else the strategy."""
        _checked_strategy("offsets", offset_reset_strategy)
        for partition, offset in offsets.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
            if not isinstance(partition, KafkaTopicPartition) or not is_number:
                raise ConfigurationError(
                    "KafkaOffsetsInitializer.offsets: expected KafkaTopicPartitions with offsets from 0, got "
                    f"{partition!r}: {offset!r}."
                )
        return KafkaOffsetsInitializer(
            _Kind.OFFSETS, offset_reset_strategy, given=tuple(offsets.items())
        )

    @property
    def needs_group(self) -> bool:
        """Whether the rule needs a group id: without a group nothing is committed."""
        return self.kind is _Kind.COMMITTED

    @property
    def auto_offset_reset(self) -> str:
        """Librdkafka's word for what a reader does when its offset no longer exists."""
        return _RESET_PROPERTY[self.reset]

    def look_up(self, partitions: Sequence[KafkaTopicPartition], lookup: Lookup) -> Offsets:
        """Return the offset of each partition.

        Raises:
            ExternalError: the rules give a partition no offset, or the cluster does not answer.
        """
        match self.kind:
            case _Kind.EARLIEST:
                return lookup.earliest(partitions)
            case _Kind.LATEST:
                return lookup.latest(partitions)
            case _Kind.TIMESTAMP:
                return lookup.at_time(partitions, self.timestamp_ms)
            case _Kind.COMMITTED:
                found: Offsets = {}
            case _Kind.OFFSETS:
                given = dict(self.given)
                found = {one: given[one] for one in partitions if one in given}
        unknown = [one for one in partitions if one not in found]
        found.update(lookup.committed(unknown))
        return found | self._reset([one for one in partitions if one not in found], lookup)

    def _reset(self, partitions: Sequence[KafkaTopicPartition], lookup: Lookup) -> Offsets:
        if not partitions:
            return {}
        match self.reset:
            case KafkaOffsetResetStrategy.EARLIEST:
                return lookup.earliest(partitions)
            case KafkaOffsetResetStrategy.LATEST:
                return lookup.latest(partitions)
            case KafkaOffsetResetStrategy.NONE:
                raise ExternalError(
                    f"Kafka: no offset is known for {', '.join(map(str, partitions))}: the group "
                    "has committed none, and the offset reset strategy is NONE. To begin there, "
                    "use KafkaOffsetResetStrategy.EARLIEST or LATEST."
                )


def _checked_strategy(method: str, strategy: object) -> None:
    if not isinstance(strategy, KafkaOffsetResetStrategy):
        raise ConfigurationError(
            f"KafkaOffsetsInitializer.{method}: expected a KafkaOffsetResetStrategy, got {strategy!r}."
        )
