"""Partitions of topics as splits of a source, and who reads which. Plain data.

Source: Flink KafkaPartitionSplit, KafkaSourceEnumerator.getSplitOwner; differs: offsets are numbers from the start on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic. Source: pyflink.datastream.connectors.kafka."""

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


def owner_of(partition: KafkaTopicPartition, parallelism: int) -> int:
    """The subtask that reads it: a topic's partitions follow each other, from a place that its name decides."""
    start = (_java_hash(partition.topic) * 31 & 0x7FFFFFFF) % parallelism
    return (start + partition.partition) % parallelism


def _java_hash(text: str) -> int:
    """String.hashCode, over UTF-16 code units; its sign does not matter to who masks it."""
    units = text.encode("utf-16-be")
    found = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found
