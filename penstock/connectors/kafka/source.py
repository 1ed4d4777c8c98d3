"""KafkaSource: reads records of topics between offsets, each exactly once. Needs confluent-kafka (`penstock[kafka]`).

Reading positions are kept in checkpoints. Offsets are also committed to the group, where other tools can see them and
another job may begin. Source: pyflink.datastream.connectors.kafka, Flink's KafkaSource.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, Self

from penstock.common.serialization import DeserializationSchema
from penstock.connectors.api.base import ReaderContext, SourceReader
from penstock.connectors.api.builder import (
    MessageSourceBuilder,
    checked_topic_pattern,
    checked_topics,
)
from penstock.connectors.api.messaging.properties import (
    checked_properties,
    checked_property,
    flag_of,
)
from penstock.connectors.api.messaging.source import (
    MessageSource,
    PartitionEnumerator,
    UnknownTopic,
    owner_of,
    partitions_seen,
)
from penstock.connectors.kafka.client import KafkaCluster, check_login
from penstock.connectors.kafka.offsets import (
    KafkaOffsetsInitializer,
    KafkaSplit,
    KafkaTopicPartition,
)
from penstock.connectors.kafka.properties import (
    BOOTSTRAP_SERVERS,
    CLIENT_ID_PREFIX,
    COMMIT_ON_CHECKPOINT,
    GROUP_ID,
)
from penstock.connectors.kafka.reader import KafkaReader, KafkaSourceSettings
from penstock.connectors.kafka.record_schema import KafkaRecordDeserializationSchema, KafkaSchema
from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- enumerator
# The enumerator of a KafkaSource: finds partitions, and decides where each is read from and by
# which subtask.
#
# It runs on the driver. Source: Flink KafkaSourceEnumerator, KafkaSubscriber.


@dataclass(frozen=True, slots=True)
class KafkaSubscription:
    """The partitions to read: topics by name, topics whose whole name matches `pattern`, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[KafkaTopicPartition] = frozenset()

    def find(self, cluster: KafkaCluster) -> list[KafkaTopicPartition]:
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
            there = [one.partition for one in found if one.topic == missing[0].topic]
            raise UnknownTopic(
                f"KafkaSource: there is no partition {', '.join(map(str, missing))}; its topic has "
                f"the partitions {there}."
            )
        return sorted(self.partitions)


class KafkaEnumerator(PartitionEnumerator):
    """Partitions of the first round begin at the source's starting offsets, later ones at their first record."""

    source_name = "KafkaSource"
    settings: KafkaSourceSettings

    def splits_of(
        self, partitions: Sequence[KafkaTopicPartition], cluster: KafkaCluster
    ) -> Sequence[KafkaSplit]:
        settings = self.settings
        rule = KafkaOffsetsInitializer.earliest() if self.has_begun else settings.starting
        starts = rule.look_up(partitions, cluster)
        stopping = settings.stopping
        stops = {} if stopping is None else stopping.look_up(partitions, cluster)
        ids = cluster.topic_ids({one.topic for one in partitions})
        return [KafkaSplit(one, starts[one], stops.get(one), ids[one.topic]) for one in partitions]

    def forgotten(
        self, known: Collection[KafkaTopicPartition], found: Sequence[KafkaTopicPartition]
    ) -> Collection[KafkaTopicPartition]:
        deleted = self.settings.deleted_topics
        return {one for one in known if one.topic in deleted}.difference(found)

    def owner(self, split: KafkaSplit, parallelism: int) -> int:
        return owner_of(split.partition.topic, split.partition.partition, parallelism)


# ---------------------------------------------------------------------- source


SETTERS: Final = "set_topics, set_topic_pattern and set_partitions"


class KafkaSource(MessageSource):
    """Reads records from Kafka. Build it with `KafkaSource.builder()`."""

    enumerator = KafkaEnumerator
    advertised = "advertised.listeners"
    settings: KafkaSourceSettings

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder."""
        return KafkaSourceBuilder()

    def validate(self) -> None:
        """Log in and look up the topics.

        Raises ConfigurationError: the brokers refuse user, certificate or rights, a topic does not exist, or the cluster
        does not answer.
        """
        check_login(self.settings.properties, "KafkaSource on the driver")
        super().validate()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return KafkaReader(context, self.settings)

    def _connect(self) -> KafkaCluster:
        return KafkaCluster(self.settings.properties, "KafkaSource on the driver")

    def _check(self) -> None:
        """As Flink's builder does."""
        settings, properties = self.settings, self.settings.properties
        if not properties.get(BOOTSTRAP_SERVERS):
            raise ConfigurationError(
                f"KafkaSource: the property {BOOTSTRAP_SERVERS!r} is required: call set_bootstrap_servers('host:9092')."
            )
        if settings.subscription is None:
            raise ConfigurationError(
                f"KafkaSource: there is nothing to read. Call one of {SETTERS}."
            )
        if not isinstance(settings.schema, KafkaSchema):
            raise ConfigurationError(
                f"KafkaSource: a deserializer is required, got {settings.schema!r}: call "
                "set_value_only_deserializer(SimpleStringSchema()), or with another DeserializationSchema."
            )
        stopping = settings.stopping
        needs_group = {
            "committed offsets as starting offsets": settings.starting.needs_group,
            "committed offsets as stopping offsets": stopping is not None and stopping.needs_group,
            **{
                f"{one}=true": flag_of(properties, one, default=False)
                for one in (COMMIT_ON_CHECKPOINT, "enable.auto.commit")
            },
        }
        for what, is_needed in needs_group.items():
            if is_needed and not properties.get(GROUP_ID):
                raise ConfigurationError(
                    f"KafkaSource: the property {GROUP_ID!r} is required for {what}: call set_group_id('...')."
                )
        _ = settings.discovery_interval_ms


class KafkaSourceBuilder(MessageSourceBuilder):
    """Builds a KafkaSource. Servers, topics or partitions, and a deserializer are required.

    Without starting offsets it reads from the first record.
    """

    begin = KafkaSourceSettings

    def build(self) -> KafkaSource:
        """Return the source. Raises ConfigurationError if something required is missing."""
        return KafkaSource(self.settings)

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Set the servers: `host:port`, separated by commas."""
        return self.set_property(BOOTSTRAP_SERVERS, bootstrap_servers)

    def set_group_id(self, group_id: str) -> Self:
        """Set the group for which offsets are committed at checkpoints. Readers do not join it."""
        return self.set_property(GROUP_ID, group_id)

    def set_topics(self, *topics: str) -> Self:
        """Read these topics."""
        names = tuple(dict.fromkeys(checked_topics(topics)))
        return self._subscribe("set_topics", KafkaSubscription(topics=names), SETTERS)

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """Read the topics whose whole name matches a regular expression.

        Topics that appear later are found every partition.discovery.interval.ms.
        """
        wanted = KafkaSubscription(pattern=checked_topic_pattern(topic_pattern))
        return self._subscribe("set_topic_pattern", wanted, SETTERS)

    def set_deleted_topics(self, *topics: str) -> Self:
        """Name topics that were deleted on purpose. Not in PyFlink.

        A job that is restored after that fails otherwise, because their offsets are in its state. Topics that the
        cluster still has are read, named or not. One that is made again later is read from its first record.
        """
        return self._with(deleted_topics=frozenset(checked_topics(topics)))

    def set_partitions(self, partitions: AbstractSet[KafkaTopicPartition]) -> Self:
        """Read these partitions."""
        found = frozenset(partitions)
        if not found or not all(isinstance(one, KafkaTopicPartition) for one in found):
            raise ConfigurationError(
                f"set_partitions: expected a set of KafkaTopicPartition, got {partitions!r}."
            )
        return self._subscribe("set_partitions", KafkaSubscription(partitions=found), SETTERS)

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Set where reading starts."""
        return self._with_a(
            KafkaOffsetsInitializer, "set_starting_offsets", starting=starting_offsets_initializer
        )

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Read each partition up to these offsets. The job does not end: partitions may appear."""
        return self._with_a(
            KafkaOffsetsInitializer,
            "set_unbounded",
            stopping=stopping_offsets_initializer,
            is_bounded=False,
        )

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Read each partition up to these offsets, then end."""
        return self._with_a(
            KafkaOffsetsInitializer,
            "set_bounded",
            stopping=stopping_offsets_initializer,
            is_bounded=True,
        )

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> Self:
        """Set what turns a record's value into a value of the stream."""
        return self._with(schema=deserialization_schema)

    def set_deserializer(self, deserialization_schema: KafkaRecordDeserializationSchema) -> Self:
        """Set what turns a whole record, with key, headers and place, into a value of the stream. Not in PyFlink.

        Raises TypeError: it is no KafkaRecordDeserializationSchema.
        """
        if not isinstance(deserialization_schema, KafkaRecordDeserializationSchema):
            raise TypeError(
                "set_deserializer: expected a KafkaRecordDeserializationSchema, got "
                f"{deserialization_schema!r}. For values alone call set_value_only_deserializer."
            )
        return self._with(schema=deserialization_schema)

    def set_client_id_prefix(self, prefix: str) -> Self:
        """Set the prefix of the clients' ids."""
        return self.set_property(CLIENT_ID_PREFIX, prefix)

    def set_property(self, key: str, value: str) -> Self:
        """Set a property of Kafka's client, or one of Flink's.

        Flink's are partition.discovery.interval.ms (300,000 ms; below 1: never) and
        commit.offsets.on.checkpoint (true).
        """
        key, value = checked_property(key, value, "set_property")
        return self._with(properties={**self.settings.properties, key: value})

    def set_properties(self, props: dict[str, Any]) -> Self:
        """Set several properties, as `set_property` does."""
        found = checked_properties(props, "set_properties")
        return self._with(properties={**self.settings.properties, **found})
