"""Finds partitions, decides where each is read from and by whom. Runs on the driver.

Source: Flink KafkaSourceEnumerator, KafkaSubscriber.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.datastream.connectors.base import EnumeratorContext
from penstock.datastream.connectors.kafka.offsets import KafkaOffsetsInitializer, Lookup
from penstock.datastream.connectors.kafka.splits import KafkaSplit, KafkaTopicPartition
from penstock.datastream.connectors.messaging.enumerator import PartitionEnumerator
from penstock.datastream.connectors.messaging.splits import owner_of
from penstock.datastream.connectors.messaging.topics import UnknownTopic, partitions_seen


class Topics(Lookup, Protocol):
    """The cluster as the enumerator asks it; `client.Cluster`."""

    def topics(self) -> list[str]: ...
    def partitions(self, topic: str) -> list[KafkaTopicPartition]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Subscription:
    """What to read: topics by name, topics whose whole name matches `pattern`, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[KafkaTopicPartition] = frozenset()

    def find(self, cluster: Topics) -> list[KafkaTopicPartition]:
        """What is there now, in order. Raises: UnknownTopic; ExternalError: the cluster does not answer."""
        if self.pattern is not None:
            is_wanted = re.compile(self.pattern).fullmatch
            return [
                one
                for name in cluster.topics()
                if is_wanted(name)
                for one in partitions_seen(cluster, name)
            ]
        wanted = sorted(self.topics or {one.topic for one in self.partitions})
        found = [one for name in wanted for one in cluster.partitions(name)]
        if not self.partitions:
            return found
        missing = sorted(self.partitions.difference(found))
        if missing:
            raise UnknownTopic(
                f"KafkaSource: there is no partition {', '.join(map(str, missing))}; its topic has {_of_topic(found, missing[0])}."
            )
        return sorted(self.partitions)


def _of_topic(found: Sequence[KafkaTopicPartition], like: KafkaTopicPartition) -> list[int]:
    return [one.partition for one in found if one.topic == like.topic]


@dataclass(frozen=True, slots=True)
class EnumeratorSettings:
    """`discovery_interval_ms` below 1: partitions are looked for once. `stopping` None: partitions have no end."""

    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    is_bounded: bool
    discovery_interval_ms: int


class KafkaEnumerator(PartitionEnumerator[Topics]):
    """Partitions of the first round begin where the source begins, later ones at their first record."""

    def __init__(
        self,
        context: EnumeratorContext,
        settings: EnumeratorSettings,
        connect: Callable[[], Topics],
    ) -> None:
        super().__init__(
            context,
            connect,
            is_bounded=settings.is_bounded,
            discovery_interval_ms=settings.discovery_interval_ms,
        )
        self._settings = settings

    def __str__(self) -> str:
        return f"KafkaSource of {self._settings.subscription}"

    def find(self, cluster: Topics) -> Sequence[KafkaTopicPartition]:
        return self._settings.subscription.find(cluster)

    def splits_of(
        self, partitions: Sequence[KafkaTopicPartition], cluster: Topics
    ) -> Sequence[KafkaSplit]:
        settings = self._settings
        rule = KafkaOffsetsInitializer.earliest() if self.has_begun else settings.starting
        starts = rule.look_up(partitions, cluster)
        stops = {} if settings.stopping is None else settings.stopping.look_up(partitions, cluster)
        return [KafkaSplit(one, starts[one], stops.get(one)) for one in partitions]

    def owner(self, split: KafkaSplit, parallelism: int) -> int:
        return owner_of(split.partition.topic, split.partition.partition, parallelism)
