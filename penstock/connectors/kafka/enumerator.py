"""The enumerator of a KafkaSource: finds partitions, and decides where each is read from and by which subtask.

It runs on the driver. Source: Flink KafkaSourceEnumerator, KafkaSubscriber.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.connectors.api.messaging.enumerator import PartitionEnumerator, ReadingPlan
from penstock.connectors.api.messaging.splits import owner_of
from penstock.connectors.api.messaging.topics import UnknownTopic, partitions_seen
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, Lookup
from penstock.connectors.kafka.splits import KafkaSplit, KafkaTopicPartition


class KafkaTopics(Lookup, Protocol):
    """The cluster as the enumerator needs it; `client.KafkaCluster` implements it."""

    def topics(self) -> list[str]: ...
    def partitions(self, topic: str) -> list[KafkaTopicPartition]: ...
    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The ids; "" for all if the brokers have none. Raises: UnknownTopic; ExternalError."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class KafkaSubscription:
    """The partitions to read: topics by name, topics whose whole name matches `pattern`, or single partitions.

    `deleted`: topics that were deleted on purpose; those of one that comes back are new ones.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[KafkaTopicPartition] = frozenset()
    deleted: frozenset[str] = frozenset()

    def find(self, cluster: KafkaTopics) -> list[KafkaTopicPartition]:
        """The partitions that exist now, in order.

        Raises: UnknownTopic; ExternalError: the cluster does not answer.
        """
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
                f"KafkaSource: there is no partition {', '.join(map(str, missing))}; its topic has "
                f"the partitions {_of_topic(found, missing[0])}."
            )
        return sorted(self.partitions)


def _of_topic(found: Sequence[KafkaTopicPartition], like: KafkaTopicPartition) -> list[int]:
    return [one.partition for one in found if one.topic == like.topic]


class KafkaEnumerator(PartitionEnumerator[KafkaTopics]):
    """Partitions of the first round begin at the source's starting offsets, later ones at their first record."""

    source_name = "KafkaSource"
    _plan: ReadingPlan[KafkaOffsetsInitializer, KafkaOffsetsInitializer]

    def splits_of(
        self, partitions: Sequence[KafkaTopicPartition], cluster: KafkaTopics
    ) -> Sequence[KafkaSplit]:
        plan = self._plan
        rule = KafkaOffsetsInitializer.earliest() if self.has_begun else plan.start
        starts = rule.look_up(partitions, cluster)
        stops = {} if plan.stop is None else plan.stop.look_up(partitions, cluster)
        ids = cluster.topic_ids({one.topic for one in partitions})
        return [KafkaSplit(one, starts[one], stops.get(one), ids[one.topic]) for one in partitions]

    def forgotten(
        self, known: Collection[KafkaTopicPartition], found: Sequence[KafkaTopicPartition]
    ) -> Collection[KafkaTopicPartition]:
        subscription = self._plan.subscription
        assert isinstance(subscription, KafkaSubscription), "a KafkaSource makes no other"
        return {one for one in known if one.topic in subscription.deleted}.difference(found)

    def owner(self, split: KafkaSplit, parallelism: int) -> int:
        return owner_of(split.partition.topic, split.partition.partition, parallelism)
