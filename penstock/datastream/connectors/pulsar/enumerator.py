"""The enumerator of a PulsarSource, on the driver: finds partitions, and where each is read from and to.

Source: Flink PulsarSourceEnumerator, TopicListSubscriber, TopicPatternSubscriber; differs: with `latest`, partitions
that are found later are read from their first message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.datastream.connectors.messaging.enumerator import PartitionEnumerator, ReadingPlan
from penstock.datastream.connectors.messaging.splits import owner_of
from penstock.datastream.connectors.messaging.topics import partitions_seen
from penstock.datastream.connectors.pulsar.splits import (
    PulsarSplit,
    Start,
    StartKind,
    Stop,
    TopicPartition,
)

DEFAULT_NAMESPACE = "public/default"


class PulsarTopics(Protocol):
    """The cluster as the enumerator needs it; `client.PulsarCluster` implements it."""

    def topics(self, namespace: str) -> list[str]: ...
    def partitions(self, topic: str) -> list[TopicPartition]: ...
    def begin(self, partition: TopicPartition, start: Start, stop: Stop | None) -> PulsarSplit: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PulsarSubscription:
    """The topics to read: by name, or those of a namespace whose whole name, with the namespace, matches `pattern`."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def find(self, cluster: PulsarTopics) -> list[TopicPartition]:
        """The partitions that exist now, in order, each once.

        Raises: UnknownTopic; ExternalError: the cluster does not answer.
        """
        if self.pattern is None:
            found = [one for name in self.topics for one in cluster.partitions(name)]
        else:
            namespace, pattern = split_pattern(self.pattern)
            is_wanted = re.compile(pattern).fullmatch
            found = [
                one
                for name in cluster.topics(namespace)
                if is_wanted(name.partition("://")[2]) and not _is_internal(name)
                for one in partitions_seen(cluster, name)
            ]
        return list(dict.fromkeys(found))


def split_pattern(pattern: str) -> tuple[str, str]:
    """The namespace, and a pattern for names that begin with it."""
    text = pattern.partition("://")[2] if "://" in pattern else pattern
    parts = text.split("/", 2)
    if len(parts) < 3:
        return DEFAULT_NAMESPACE, f"{DEFAULT_NAMESPACE}/(?:{text})"
    return f"{parts[0]}/{parts[1]}", f"{parts[0]}/{parts[1]}/(?:{parts[2]})"


def _is_internal(name: str) -> bool:
    """Whether this is one of Pulsar's internal topics."""
    return name.rpartition("/")[2].startswith("__")


class PulsarEnumerator(PartitionEnumerator[PulsarTopics]):
    """Partitions of the first round begin at the source's start.

    Later ones begin at their first message, unless the start is a publish time, which holds for them too.
    """

    source_name = "PulsarSource"
    _plan: ReadingPlan[Start, Stop]

    def splits_of(
        self, partitions: Sequence[TopicPartition], cluster: PulsarTopics
    ) -> Sequence[PulsarSplit]:
        start = self._plan.start
        if self.has_begun and start.kind is not StartKind.PUBLISH_TIME:
            start = Start(StartKind.EARLIEST)
        return [cluster.begin(one, start, self._plan.stop) for one in partitions]

    def owner(self, split: PulsarSplit, parallelism: int) -> int:
        return owner_of(split.partition.topic, max(0, split.partition.number), parallelism)
