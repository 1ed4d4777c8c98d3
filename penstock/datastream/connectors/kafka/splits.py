"""Partitions of topics as splits of a source. Plain data.

Source: Flink KafkaPartitionSplit; differs: offsets are always numbers, never rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


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
    None.
    """

    partition: KafkaTopicPartition
    offset: int
    stop: int | None = None

    @property
    def is_over(self) -> bool:
        return self.stop is not None and self.offset >= self.stop

    def at(self, offset: int) -> KafkaSplit:
        return replace(self, offset=offset)
