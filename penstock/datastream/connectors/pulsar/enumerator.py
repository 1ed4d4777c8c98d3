"""Finds partitions of topics, and where each is read from and to. Runs on the driver.

Source: Flink PulsarSourceEnumerator, TopicListSubscriber, TopicPatternSubscriber; differs: of a partition that comes later
nothing is left out by `latest`.
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
    """The cluster as the enumerator asks it; `client.Cluster`."""

    def topics(self, namespace: str) -> list[str]: ...
    def partitions(self, topic: str) -> list[TopicPartition]: ...
    def begin(self, partition: TopicPartition, start: Start, stop: Stop | None) -> PulsarSplit: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PulsarSubscription:
    """What to read: topics by name, or those of a namespace whose name, with the namespace, matches `pattern` wholly."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def find(self, cluster: PulsarTopics) -> list[TopicPartition]:
        """What is there now, in order, each once. Raises: UnknownTopic; ExternalError: the cluster does not answer."""
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
    """(namespace, pattern of a name that begins with it)."""
    text = pattern.partition("://")[2] if "://" in pattern else pattern
    parts = text.split("/", 2)
    if len(parts) < 3:
        return DEFAULT_NAMESPACE, f"{DEFAULT_NAMESPACE}/(?:{text})"
    return f"{parts[0]}/{parts[1]}", f"{parts[0]}/{parts[1]}/(?:{parts[2]})"


def _is_internal(name: str) -> bool:
    """Pulsar's own."""
    return name.rpartition("/")[2].startswith("__")


class PulsarEnumerator(PartitionEnumerator[PulsarTopics]):
    """Partitions of the first round begin where the source begins, later ones there by time alone, else at their first message."""

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
