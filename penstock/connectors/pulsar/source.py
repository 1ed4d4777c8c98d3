"""PulsarSource: reads messages of topics between places, each exactly once. Needs pulsar-client (`penstock[pulsar]`).

Reading positions are kept in checkpoints. Messages are also acknowledged: the broker may then remove them, and others
see how far the job has read. Source: pyflink.datastream.connectors.pulsar, Flink's PulsarSource.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.common.serialization import DeserializationSchema
from penstock.connectors.api.base import ReaderContext, SourceReader
from penstock.connectors.api.builder import (
    MessageSourceBuilder,
    checked_topic_pattern,
    checked_topics,
)
from penstock.connectors.api.messaging.enumerator import PartitionEnumerator, ReadingPlan
from penstock.connectors.api.messaging.properties import flag_of, int_of
from penstock.connectors.api.messaging.source import MessageSource
from penstock.connectors.api.messaging.splits import owner_of
from penstock.connectors.api.messaging.topics import partitions_seen
from penstock.connectors.pulsar.authentication import parameters_of
from penstock.connectors.pulsar.builders import PulsarBuilder
from penstock.connectors.pulsar.client import PulsarCluster
from penstock.connectors.pulsar.cursors import RangeGenerator, StartCursor, StopCursor
from penstock.connectors.pulsar.options import (
    AUTO_ACKNOWLEDGE,
    CLIENT,
    CONSUMER,
    CONSUMER_NAME,
    DISCOVERY_INTERVAL_DEFAULT_MS,
    DISCOVERY_INTERVAL_MS,
    FAILS,
    SERVICE_URL,
    SUBSCRIPTION,
    VERIFY_START,
    WARNS,
    arguments_of,
)
from penstock.connectors.pulsar.reader import PulsarReader, PulsarReaderSettings
from penstock.connectors.pulsar.splits import PulsarSplit, Start, StartKind, Stop, TopicPartition
from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- enumerator
# The enumerator of a PulsarSource, on the driver: finds partitions, and where each is read from
# and to.
#
# Source: Flink PulsarSourceEnumerator, TopicListSubscriber, TopicPatternSubscriber; differs: with
# `latest`, partitions that are found later are read from their first message.


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


# ---------------------------------------------------------------------- source


NAME: Final = "PulsarSource"
SETTERS: Final = "set_topics and set_topic_pattern"


@dataclass(frozen=True, slots=True)
class PulsarSourceSettings:
    """The settings that the builder collected."""

    options: Mapping[str, str] = field(default_factory=dict)
    subscription: PulsarSubscription | None = None
    start: StartCursor = field(default_factory=StartCursor.default_start_cursor)
    stop: StopCursor = field(default_factory=StopCursor.default_stop_cursor)
    is_bounded: bool = False
    schema: DeserializationSchema | None = None
    keys: RangeGenerator = field(default_factory=RangeGenerator.full)


class PulsarSource(MessageSource):
    """Reads messages from Pulsar. Build it with `PulsarSource.builder()`."""

    enumerator = PulsarEnumerator
    advertised = "advertisedAddress"
    _settings: PulsarSourceSettings

    def __init__(self, settings: PulsarSourceSettings) -> None:
        """Check the settings.

        Raises ConfigurationError if one is missing or two contradict each other.
        """
        self._settings = _checked(settings)

    @staticmethod
    def builder() -> PulsarSourceBuilder:
        """Return a builder."""
        return PulsarSourceBuilder()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        settings = self._settings
        return PulsarReader(
            context, PulsarReaderSettings(settings.options, self._schema, settings.keys)
        )

    def _connect(self) -> PulsarCluster:
        return PulsarCluster(self._settings.options, f"{NAME} on the driver")

    def _plan(self) -> ReadingPlan[Start, Stop]:
        settings = self._settings
        interval_ms = int_of(settings.options, DISCOVERY_INTERVAL_MS, DISCOVERY_INTERVAL_DEFAULT_MS)
        return ReadingPlan(
            self._subscription,
            settings.start.start,
            settings.stop.stop,
            settings.is_bounded,
            0 if settings.is_bounded else interval_ms,
        )


class PulsarSourceBuilder(PulsarBuilder, MessageSourceBuilder):
    """Builds a PulsarSource. By default reading starts at the first message.

    Service URL, subscription name, topics and deserializer are required.
    """

    def __init__(self) -> None:
        super().__init__(PulsarSourceSettings())

    def build(self) -> PulsarSource:
        """Return the source. Raises ConfigurationError if something required is missing."""
        return PulsarSource(self._settings)

    def set_subscription_name(self, subscription_name: str) -> PulsarSourceBuilder:
        """Set the subscription for which messages are acknowledged.

        It is exclusive: each source that runs needs its own.
        """
        return self.set_config(SUBSCRIPTION, subscription_name)

    def set_topics(self, topics: str | list[str]) -> PulsarSourceBuilder:
        """Set topics, with all their partitions, or single partitions (`topic-partition-0`)."""
        wanted = PulsarSubscription(topics=checked_topics(topics))
        return self._subscribe("set_topics", wanted, SETTERS)

    def set_topic_pattern(self, topic_pattern: str) -> PulsarSourceBuilder:
        """Read the topics whose whole name matches a regular expression.

        The form is `persistent://tenant/namespace/<regular expression>`: the namespace is taken
        literally. Topics that appear later are found every
        pulsar.source.partitionDiscoveryIntervalMs.
        """
        wanted = PulsarSubscription(pattern=checked_topic_pattern(topic_pattern))
        if topic_pattern.count("://") > 1:
            raise ConfigurationError(
                f"set_topic_pattern: {topic_pattern!r} names two namespaces. Make a source for "
                "each, and unite them with union()."
            )
        return self._subscribe("set_topic_pattern", wanted, SETTERS)

    def set_consumer_name(self, consumer_name: str) -> PulsarSourceBuilder:
        """Set the consumer's name, as the topic's statistics show it."""
        return self.set_config(CONSUMER_NAME, consumer_name)

    def set_range_generator(self, range_generator: RangeGenerator) -> PulsarSourceBuilder:
        """Set which keys are read; all by default."""
        return self._with_a(RangeGenerator, "set_range_generator", keys=range_generator)

    def set_start_cursor(self, start_cursor: StartCursor) -> PulsarSourceBuilder:
        """Set where reading starts."""
        return self._with_a(StartCursor, "set_start_cursor", start=start_cursor)

    def set_unbounded_stop_cursor(self, stop_cursor: StopCursor) -> PulsarSourceBuilder:
        """Read each partition up to this cursor; the job does not end, as partitions may appear."""
        self._with_a(StopCursor, "set_unbounded_stop_cursor", stop=stop_cursor)
        return self._with(is_bounded=False)

    def set_bounded_stop_cursor(self, stop_cursor: StopCursor) -> PulsarSourceBuilder:
        """Read each partition up to this cursor, then end."""
        self._with_a(StopCursor, "set_bounded_stop_cursor", stop=stop_cursor)
        return self._with(is_bounded=True)

    def set_deserialization_schema(
        self, deserialization_schema: DeserializationSchema
    ) -> PulsarSourceBuilder:
        """Set what deserializes a message's payload."""
        return self._with_a(
            DeserializationSchema, "set_deserialization_schema", schema=deserialization_schema
        )

    def set_config_with_dict(self, config: dict[str, Any]) -> PulsarSourceBuilder:
        """Set several options of the client or the source."""
        return self._set_all(config, "set_config_with_dict")


def _checked(settings: PulsarSourceSettings) -> PulsarSourceSettings:
    """The settings, if they are complete; the checks of Flink's builder. Raises: ConfigurationError."""
    options = settings.options
    for key, setter in (
        (SERVICE_URL, "set_service_url('pulsar://host:6650')"),
        (SUBSCRIPTION, "set_subscription_name('...')"),
    ):
        if not options.get(key):
            raise ConfigurationError(f"{NAME}: the option {key!r} is required: call {setter}.")
    if settings.subscription is None:
        raise ConfigurationError(f"{NAME}: there is nothing to read. Call one of {SETTERS}.")
    if settings.schema is None:
        raise ConfigurationError(
            f"{NAME}: a deserializer is required: call set_deserialization_schema(SimpleStringSchema()), or with another "
            "DeserializationSchema."
        )
    if options.get(VERIFY_START, WARNS) not in {WARNS, FAILS}:
        raise ConfigurationError(
            f"{NAME}: the option {VERIFY_START!r} must be {WARNS} or {FAILS}, got "
            f"{options[VERIFY_START]!r}."
        )
    int_of(options, DISCOVERY_INTERVAL_MS, DISCOVERY_INTERVAL_DEFAULT_MS)
    flag_of(options, AUTO_ACKNOWLEDGE, default=False)
    parameters_of(options, NAME)
    for table in (CLIENT, CONSUMER):
        arguments_of(options, table)
    return settings
