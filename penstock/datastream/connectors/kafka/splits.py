"""Partitions of topics as splits of a source. Plain data.

Source: Flink KafkaPartitionSplit; differs: offsets are numbers from the start on.
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
    """In checkpoints: where reading goes on. `offset`: of the next record; `stop`: of the first that is not read, None: none."""

    partition: KafkaTopicPartition
    offset: int
    stop: int | None = None

    @property
    def is_over(self) -> bool:
        return self.stop is not None and self.offset >= self.stop

    def at(self, offset: int) -> KafkaSplit:
        return replace(self, offset=offset)
