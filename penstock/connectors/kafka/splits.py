"""Partitions of topics as splits of a source. Plain data.

Source: Flink KafkaPartitionSplit; differs: offsets are always numbers, never rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.engine.model.pickled_fields import set_fields


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

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Splits in checkpoints of an earlier release have no topic id."""
        set_fields(self, state)

    @property
    def is_over(self) -> bool:
        return self.stop is not None and self.offset >= self.stop

    def at(self, offset: int) -> KafkaSplit:
        return replace(self, offset=offset)
