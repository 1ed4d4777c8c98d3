"""FlinkKafkaConsumer and FlinkKafkaProducer: KafkaSource and KafkaSink under their former names and setters.

Source: pyflink.datastream.connectors.kafka; differs: they can also be used with from_source and sink_to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import DeliveryGuarantee
from penstock.connectors.api.messaging.properties import checked_properties
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.properties import (
    AUTO_OFFSET_RESET,
    COMMIT_ON_CHECKPOINT,
    DISCOVERY_INTERVAL_MS,
    GROUP_ID,
)
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink import KafkaSink, KafkaSinkSettings
from penstock.connectors.kafka.source import KafkaSource, KafkaSourceSettings, KafkaSubscription
from penstock.engine.model.errors import ConfigurationError

_DISCOVERY: Final = "flink.partition-discovery.interval-millis"
_RESETS: Final = {
    "earliest": KafkaOffsetResetStrategy.EARLIEST,
    "latest": KafkaOffsetResetStrategy.LATEST,
    "none": KafkaOffsetResetStrategy.NONE,
}


class FlinkKafkaConsumerBase(KafkaSource):
    """The base of FlinkKafkaConsumer. Its setters change the source itself."""

    def set_commit_offsets_on_checkpoints(
        self, commit_on_checkpoints: bool
    ) -> FlinkKafkaConsumerBase:
        """Set whether checkpoints commit offsets; true by default, if there is a group.id."""
        return self._with_property(COMMIT_ON_CHECKPOINT, str(commit_on_checkpoints).lower())

    def set_start_from_earliest(self) -> FlinkKafkaConsumerBase:
        """Start at the first record of each partition."""
        return self._starting(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> FlinkKafkaConsumerBase:
        """Start at the end of each partition."""
        return self._starting(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumerBase:
        """Start at the first record at or after this time in epoch ms."""
        return self._starting(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumerBase:
        """Start at the committed offsets (default); without one, as auto.offset.reset says (latest)."""
        return self._starting(_group_offsets(self._settings.properties))

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> FlinkKafkaConsumerBase:
        """Do nothing: restored partitions are always read on."""
        return self

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the records, as the deserialization schema declares it."""
        return self.produced_type

    def _starting(self, rule: KafkaOffsetsInitializer) -> FlinkKafkaConsumerBase:
        self._settings = replace(self._settings, starting=rule)
        return self

    def _with_property(self, key: str, value: str) -> FlinkKafkaConsumerBase:
        properties = {**self._settings.properties, key: value}
        self._settings = replace(self._settings, properties=properties)
        return self


class FlinkKafkaConsumer(FlinkKafkaConsumerBase):
    """Reads topics, without end, from the offsets that the group has committed."""

    def __init__(
        self,
        topics: str | Sequence[str],
        deserialization_schema: DeserializationSchema,
        properties: Mapping[str, Any],
    ) -> None:
        """Read `topics`; `properties` are those of Kafka's client.

        Partitions that appear later are read only if flink.partition-discovery.interval-millis is
        set.
        """
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        found = checked_properties(properties, "FlinkKafkaConsumer")
        interval = found.get(_DISCOVERY, "-1")
        super().__init__(
            KafkaSourceSettings(
                {DISCOVERY_INTERVAL_MS: interval, **found},
                KafkaSubscription(topics=names) if names else None,
                _group_offsets(found),
                schema=deserialization_schema,
                name="FlinkKafkaConsumer",
            )
        )


class Semantic(Enum):
    """The delivery guarantee of a FlinkKafkaProducer."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducerBase(KafkaSink):
    """The base of FlinkKafkaProducer. Its setters change the sink itself."""

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducerBase:
        """Print records that cannot be delivered, and lose them. Not possible with EXACTLY_ONCE."""
        return self._with(only_shows_failures=log_failures_only)

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducerBase:
        """Set whether a checkpoint waits until all records are sent (default true).

        Without that, records can be lost.
        """
        return self._with(flushes_on_checkpoint=flush_on_checkpoint)

    def set_write_timestamp_to_kafka(
        self, write_timestamp_to_kafka: bool
    ) -> FlinkKafkaProducerBase:
        """Write the records' timestamps; by default Kafka records have the time of sending."""
        return self._with(writes_timestamps=write_timestamp_to_kafka)

    def _with(self, **changes: Any) -> FlinkKafkaProducerBase:
        self._settings = replace(self._settings, **changes)
        return self


class FlinkKafkaProducer(FlinkKafkaProducerBase):
    """Writes values to one topic."""

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, Any],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        """Write to `topic`; `producer_config` has the properties of Kafka's client.

        `kafka_producer_pool_size` is ignored: no transaction is open between checkpoints here.
        """
        if not isinstance(semantic, Semantic):
            raise ConfigurationError(f"FlinkKafkaProducer: expected a Semantic, got {semantic!r}.")
        serializer = KafkaRecordSerializationSchema(topic, serialization_schema)
        super().__init__(
            KafkaSinkSettings(
                checked_properties(producer_config, "FlinkKafkaProducer"),
                serializer,
                DeliveryGuarantee[semantic.name],
                transactional_id_prefix=f"penstock-{topic}"[:200],
                writes_timestamps=False,
                name="FlinkKafkaProducer",
            )
        )

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Do nothing: a commit is repeated until it succeeds."""
        return self


def _group_offsets(properties: Mapping[str, str]) -> KafkaOffsetsInitializer:
    """The rule for committed offsets. Without a group there are none, and all partitions begin as auto.offset.reset
    says.
    """
    word = properties.get(AUTO_OFFSET_RESET, "latest")
    if word not in _RESETS:
        raise ConfigurationError(
            f"FlinkKafkaConsumer: the property {AUTO_OFFSET_RESET!r} is one of "
            f"{', '.join(_RESETS)}, got {word!r}."
        )
    if GROUP_ID in properties or _RESETS[word] is KafkaOffsetResetStrategy.NONE:
        return KafkaOffsetsInitializer.committed_offsets(_RESETS[word])
    earliest = _RESETS[word] is KafkaOffsetResetStrategy.EARLIEST
    return KafkaOffsetsInitializer.earliest() if earliest else KafkaOffsetsInitializer.latest()
