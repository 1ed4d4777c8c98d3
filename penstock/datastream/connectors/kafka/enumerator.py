"""Finds partitions, decides where each is read from and by whom. Runs on the driver.

Source: Flink KafkaSourceEnumerator, KafkaSubscriber; differs: a round of discovery that fails for now is left out, and
what it would have found is found by the next one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.datastream.connectors.base import EnumeratorContext, SplitEnumerator
from penstock.datastream.connectors.kafka.client import UnknownTopic
from penstock.datastream.connectors.kafka.offsets import KafkaOffsetsInitializer, Lookup
from penstock.datastream.connectors.kafka.splits import (
    KafkaSplit,
    KafkaTopicPartition,
    owner_of,
)
from penstock.model.errors import ExternalError

_LOG = logging.getLogger(__name__)


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
                one for name in cluster.topics() if is_wanted(name) for one in _seen(cluster, name)
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


def _seen(cluster: Topics, topic: str) -> list[KafkaTopicPartition]:
    """Of a topic that may have been deleted since it was listed."""
    try:
        return cluster.partitions(topic)
    except UnknownTopic:
        return []


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


class KafkaEnumerator(SplitEnumerator):
    """Each partition belongs to one subtask, which gets it as soon as it has registered.

    Partitions of the first round begin where the source begins, later ones at their first record.
    """

    def __init__(
        self,
        context: EnumeratorContext,
        settings: EnumeratorSettings,
        connect: Callable[[], Topics],
    ) -> None:
        """`connect`: called once, on the coordinator's thread."""
        self._context = context
        self._settings = settings
        self._connect = connect
        self._cluster: Topics | None = None
        self._known: set[KafkaTopicPartition] = set()
        self._waiting: list[KafkaSplit] = []
        self._has_begun = False

    def start(self) -> None:
        self._cluster = self._connect()
        interval_ms = self._settings.discovery_interval_ms
        if interval_ms > 0:
            self._context.call_periodically(interval_ms, self._look_again)
        if interval_ms > 0 or not self._has_begun:
            self._discover()

    def handle_split_request(self, subtask: int, host: str) -> None:
        self._assign()
        if self._settings.is_bounded and self._settings.discovery_interval_ms < 1:
            self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        self._waiting.extend(splits)
        self._assign()

    def snapshot_state(self) -> Any:
        """(partitions that were found, splits that no reader has yet, whether a first round was made)."""
        return sorted(self._known), list(self._waiting), self._has_begun

    def restore_state(self, state: Any) -> None:
        known, waiting, self._has_begun = state
        self._known = set(known)
        self._waiting = list(waiting)

    def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _look_again(self) -> None:
        try:
            self._discover()
        except ExternalError as error:
            if not self._has_begun:
                raise
            _LOG.warning("topics=%s discovery=FAILED cause=%s", self._settings.subscription, error)

    def _discover(self) -> None:
        assert self._cluster is not None, "partitions are looked for before the start"
        settings, cluster = self._settings, self._cluster
        found = settings.subscription.find(cluster)
        new = [one for one in found if one not in self._known]
        rule = KafkaOffsetsInitializer.earliest() if self._has_begun else settings.starting
        starts = rule.look_up(new, cluster)
        stops = settings.stopping.look_up(new, cluster) if settings.stopping is not None else {}
        self._waiting.extend(KafkaSplit(one, starts[one], stops.get(one)) for one in new)
        self._known.update(new)
        self._has_begun = True
        self._assign()

    def _assign(self) -> None:
        """What waits for a reader that is there. A split is given once."""
        there = set(self._context.registered_readers())
        parallelism = self._context.parallelism()
        waiting, self._waiting = self._waiting, []
        by_owner: dict[int, list[KafkaSplit]] = {}
        for split in waiting:
            by_owner.setdefault(owner_of(split.partition, parallelism), []).append(split)
        for subtask, splits in by_owner.items():
            if subtask in there:
                self._context.assign_splits(subtask, splits)
            else:
                self._waiting.extend(splits)
