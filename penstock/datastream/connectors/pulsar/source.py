"""PulsarSource: messages of topics, from place to place, each once. Needs pulsar-client (`penstock[pulsar]`).

Positions lie in checkpoints; what is acknowledged besides lets the broker remove messages, and shows others how far a job is.
Source: pyflink.datastream.connectors.pulsar, Flink's PulsarSource.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import (
    Boundedness,
    EnumeratorContext,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.datastream.connectors.messaging.properties import flag_of, int_of
from penstock.datastream.connectors.messaging.topics import topics_of_settings
from penstock.datastream.connectors.pulsar.authentication import parameters_of
from penstock.datastream.connectors.pulsar.builders import PulsarBuilder, names_of
from penstock.datastream.connectors.pulsar.client import Cluster
from penstock.datastream.connectors.pulsar.cursors import RangeGenerator, StartCursor, StopCursor
from penstock.datastream.connectors.pulsar.enumerator import (
    EnumeratorSettings,
    PulsarEnumerator,
    Subscription,
)
from penstock.datastream.connectors.pulsar.options import (
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
from penstock.datastream.connectors.pulsar.reader import PulsarReader, ReaderSettings
from penstock.model.errors import ConfigurationError

NAME = "PulsarSource"


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What the builder collected."""

    options: Mapping[str, str] = field(default_factory=dict)
    subscription: Subscription | None = None
    start: StartCursor = field(default_factory=StartCursor.default_start_cursor)
    stop: StopCursor = field(default_factory=StopCursor.default_stop_cursor)
    is_bounded: bool = False
    schema: DeserializationSchema | None = None
    keys: RangeGenerator = field(default_factory=RangeGenerator.full)


class PulsarSource(Source):
    """Made by `builder()`."""

    def __init__(self, settings: SourceSettings) -> None:
        """Raises: ConfigurationError: something is missing, or goes not together."""
        self._settings = _checked(settings)

    @staticmethod
    def builder() -> PulsarSourceBuilder:
        return PulsarSourceBuilder()

    @property
    def boundedness(self) -> Boundedness:
        if self._settings.is_bounded:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation | None:
        schema = self._settings.schema
        return None if schema is None else schema.produced_type

    def validate(self) -> None:
        """Looks at the topics. Raises: ConfigurationError: the cluster does not answer, or they are not there."""
        with closing(self._connect()) as cluster, topics_of_settings("advertisedAddress"):
            self._enumerator_settings().subscription.find(cluster)

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return PulsarEnumerator(context, self._enumerator_settings(), self._connect)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        settings = self._settings
        assert settings.schema is not None, "checked when it was made"
        return PulsarReader(
            context, ReaderSettings(settings.options, settings.schema, settings.keys)
        )

    def _connect(self) -> Cluster:
        return Cluster(self._settings.options, f"{NAME} on the driver")

    def _enumerator_settings(self) -> EnumeratorSettings:
        settings = self._settings
        assert settings.subscription is not None, "checked when it was made"
        interval_ms = int_of(settings.options, DISCOVERY_INTERVAL_MS, DISCOVERY_INTERVAL_DEFAULT_MS)
        return EnumeratorSettings(
            settings.subscription,
            settings.start.start,
            settings.stop.stop,
            settings.is_bounded,
            0 if settings.is_bounded else interval_ms,
        )


class PulsarSourceBuilder(PulsarBuilder):
    """Service URL, subscription name, what to read, and the deserializer are needed; reading begins at the first message."""

    def __init__(self) -> None:
        super().__init__(SourceSettings())

    def build(self) -> PulsarSource:
        """Raises: ConfigurationError."""
        return PulsarSource(self._settings)

    def set_subscription_name(self, subscription_name: str) -> PulsarSourceBuilder:
        """What messages are acknowledged for. It is exclusive: another one for each source that runs."""
        return self.set_config(SUBSCRIPTION, subscription_name)

    def set_topics(self, topics: str | list[str]) -> PulsarSourceBuilder:
        """With all their partitions, or single partitions (`topic-partition-0`)."""
        return self._subscribe("set_topics", Subscription(topics=names_of(topics)))

    def set_topic_pattern(self, topic_pattern: str) -> PulsarSourceBuilder:
        """A regular expression for whole names, `persistent://tenant/namespace/...`; the namespace is taken as it is written.
        Topics that come later are found by pulsar.source.partitionDiscoveryIntervalMs.
        """
        try:
            re.compile(topic_pattern)
        except (re.error, TypeError) as error:
            raise ConfigurationError(
                f"set_topic_pattern: {topic_pattern!r} is no regular expression: {error}."
            ) from error
        if topic_pattern.count("://") > 1:
            raise ConfigurationError(
                f"set_topic_pattern: {topic_pattern!r} names two namespaces. Make a source for each, and union them."
            )
        return self._subscribe("set_topic_pattern", Subscription(pattern=topic_pattern))

    def set_consumer_name(self, consumer_name: str) -> PulsarSourceBuilder:
        """For whoever looks at the topic's consumers."""
        return self.set_config(CONSUMER_NAME, consumer_name)

    def set_range_generator(self, range_generator: RangeGenerator) -> PulsarSourceBuilder:
        """Which keys are read; all, if it is not called."""
        return self._with_a(RangeGenerator, "set_range_generator", keys=range_generator)

    def set_start_cursor(self, start_cursor: StartCursor) -> PulsarSourceBuilder:
        return self._with_a(StartCursor, "set_start_cursor", start=start_cursor)

    def set_unbounded_stop_cursor(self, stop_cursor: StopCursor) -> PulsarSourceBuilder:
        """Read each partition up to there; the job goes on, for partitions may come."""
        self._with_a(StopCursor, "set_unbounded_stop_cursor", stop=stop_cursor)
        return self._with(is_bounded=False)

    def set_bounded_stop_cursor(self, stop_cursor: StopCursor) -> PulsarSourceBuilder:
        """Read each partition up to there, then end."""
        self._with_a(StopCursor, "set_bounded_stop_cursor", stop=stop_cursor)
        return self._with(is_bounded=True)

    def set_deserialization_schema(
        self, deserialization_schema: DeserializationSchema
    ) -> PulsarSourceBuilder:
        """Of the payload of a message."""
        return self._with_a(
            DeserializationSchema, "set_deserialization_schema", schema=deserialization_schema
        )

    def set_config_with_dict(self, config: dict[str, Any]) -> PulsarSourceBuilder:
        return self._set_all(config, "set_config_with_dict")

    def _subscribe(self, setter: str, subscription: Subscription) -> PulsarSourceBuilder:
        if self._settings.subscription is not None:
            raise ConfigurationError(
                f"{setter}: what to read is set already: {self._settings.subscription}. Call one of set_topics and "
                "set_topic_pattern, once."
            )
        return self._with(subscription=subscription)


def _checked(settings: SourceSettings) -> SourceSettings:
    """Raises: ConfigurationError: as Flink's builder finds it before it builds."""
    options = settings.options
    for key, setter in (
        (SERVICE_URL, "set_service_url('pulsar://host:6650')"),
        (SUBSCRIPTION, "set_subscription_name('...')"),
    ):
        if not options.get(key):
            raise ConfigurationError(f"{NAME}: the option {key!r} is required: call {setter}.")
    if settings.subscription is None:
        raise ConfigurationError(
            f"{NAME}: nothing to read. Call one of set_topics and set_topic_pattern."
        )
    if settings.schema is None:
        raise ConfigurationError(
            f"{NAME}: a deserializer is required: call set_deserialization_schema(SimpleStringSchema()), or with another "
            "DeserializationSchema."
        )
    if options.get(VERIFY_START, WARNS) not in {WARNS, FAILS}:
        raise ConfigurationError(
            f"{NAME}: the option {VERIFY_START!r} is {WARNS} or {FAILS}, got {options[VERIFY_START]!r}."
        )
    int_of(options, DISCOVERY_INTERVAL_MS, DISCOVERY_INTERVAL_DEFAULT_MS)
    flag_of(options, AUTO_ACKNOWLEDGE, False)
    parameters_of(options, NAME)
    for table in (CLIENT, CONSUMER):
        arguments_of(options, table)
    return settings
