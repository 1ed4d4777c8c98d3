"""KafkaSink: writes records to topics, exactly once or at least once. Needs confluent-kafka
(`penstock[kafka]`).

At least once: records are sent as they come, and all are delivered before the task forwards a
checkpoint's barrier. Exactly once: records wait in the checkpoint and are written, in one
transaction, when it is complete (`staging`). Source: pyflink.datastream.connectors.kafka, Flink's
KafkaSink; differs: no transaction is open between checkpoints, so that no transaction can time out
or delay the readers of a topic.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from penstock.connectors.api.base import (
    Accepts,
    Committer,
    DeliveryGuarantee,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.api.builder import MISSING, SettingsBuilder
from penstock.connectors.api.messaging.properties import checked_property, int_of
from penstock.connectors.api.messaging.staging import (
    DirectMessageWriter,
    ProducedRecords,
    StagedRecords,
    StagingMessageWriter,
    checked_sizes,
)
from penstock.connectors.api.sending import StagingSink, subtask_of
from penstock.connectors.kafka.client import check_login, make_client
from penstock.connectors.kafka.properties import (
    BOOTSTRAP_SERVERS,
    TRANSACTIONAL_ID,
    client_properties,
)
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.staging import (
    BATCH_BYTES,
    BATCH_BYTES_DEFAULT,
    MAX_BYTES,
    MAX_RECORD_BYTES,
    KafkaCommitter,
    RecordProducer,
    batch_limit,
    check_transactions,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.types import RowTypeInfo, TypeInformation
from penstock.engine.runtime.codecs.convert import field_values, to_rows
from penstock.engine.runtime.elements import Batch, ColumnBatch

NAME: Final = "KafkaSink"
MAX_PREFIX: Final = 200


@dataclass(frozen=True, slots=True)
class KafkaSinkSettings:
    """The settings that the builder collected."""

    properties: Mapping[str, str] = field(default_factory=dict)
    serializer: KafkaRecordSerializationSchema = MISSING
    guarantee: DeliveryGuarantee = DeliveryGuarantee.NONE
    transactional_id_prefix: str | None = None

    def records(self, batch: Batch, kind: TypeInformation | None) -> ProducedRecords:
        """Kafka's records of a batch. `kind`: the declared type of the stream's records."""
        serializer = self.serializer
        if isinstance(batch, ColumnBatch):
            # Without making Rows, where that can be.
            if serializer.takes_columns and isinstance(kind, RowTypeInfo):
                columns = field_values(batch, kind)
                made = serializer.records_of_columns(columns, len(batch), batch.timestamps)
                if made is not None:
                    return made
            batch = to_rows(batch, kind)
        return serializer.records(batch.values, batch.timestamps)

    @property
    def limit(self) -> tuple[int, str]:
        """The most bytes of a record, and what to do about it."""
        max_bytes = int_of(client_properties(self.properties, NAME), MAX_BYTES, MAX_RECORD_BYTES)
        return max_bytes, (
            f"Kafka's client sends at most {max_bytes}. Set the property {MAX_BYTES!r} higher, "
            "here and at the brokers, or make the records smaller"
        )


class KafkaSink(StagingSink):
    """Writes records to Kafka. Build it with `KafkaSink.builder()`."""

    accepts = Accepts.ROWS
    is_converting = True

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder."""
        return KafkaSinkBuilder()

    def get_transformer(self) -> None:
        """Return None: the sink itself selects topics."""
        return

    def validate(self) -> None:
        """Check client, properties, login, topic and rights.

        A cluster that the driver does not reach is no error: only the subtasks must reach it. Batches
        become no larger than the topic takes.

        Raises:
            ConfigurationError: confluent-kafka is missing or refuses the properties, or the brokers refuse user,
                certificate, rights or `transaction.timeout.ms`, or have no such topic.
        """
        settings, more = self.settings, {}
        if self.is_exactly_once:
            more["transactional__id"] = settings.transactional_id_prefix
        where = f"{NAME} on the driver"
        make_client("Producer", settings.properties, where, **more)
        topic = settings.serializer.topic
        if not check_login(settings.properties, where) or topic is None:
            return
        limit = batch_limit(settings.properties, topic, where)
        if (
            limit is not None
            and BATCH_BYTES not in settings.properties
            and limit < BATCH_BYTES_DEFAULT
        ):
            properties = {**settings.properties, BATCH_BYTES: str(limit)}
            self.settings = replace(settings, properties=properties)
        if settings.transactional_id_prefix is not None and self.is_exactly_once:
            prefix = settings.transactional_id_prefix
            check_transactions(settings.properties, topic, prefix)

    def staging_writer(self, context: WriterContext) -> SinkWriter:
        return _KafkaStagingWriter(self.settings, context)

    def direct_writer(self, context: WriterContext) -> SinkWriter:
        return _KafkaDirectWriter(self.settings, context)

    def committer(self) -> Committer:
        return KafkaCommitter(self.settings.properties)

    def _check(self) -> None:
        settings = self.settings
        if not settings.properties.get(BOOTSTRAP_SERVERS):
            raise ConfigurationError(
                f"{NAME}: the property {BOOTSTRAP_SERVERS!r} is required: call set_bootstrap_servers('host:9092')."
            )
        if not isinstance(settings.serializer, KafkaRecordSerializationSchema):
            raise ConfigurationError(
                f"{NAME}: a record serializer is required, got {settings.serializer!r}: call "
                "set_record_serializer(KafkaRecordSerializationSchema.builder()...build())."
            )
        if self.is_exactly_once and settings.transactional_id_prefix is None:
            raise ConfigurationError(
                f"{NAME}: EXACTLY_ONCE needs a prefix of transactional ids, a different one for "
                "each sink that writes to the same cluster: call "
                "set_transactional_id_prefix('...')."
            )
        if TRANSACTIONAL_ID in settings.properties:
            raise ConfigurationError(
                f"{NAME}: the sink sets {TRANSACTIONAL_ID!r} itself. Call "
                "set_transactional_id_prefix('...') instead."
            )
        if settings.serializer.takes_columns:
            self.accepts = Accepts.ANY


class KafkaSinkBuilder(SettingsBuilder):
    """Builds a KafkaSink.

    Servers and serializer are required; EXACTLY_ONCE needs an id prefix too.
    """

    begin = KafkaSinkSettings

    def build(self) -> KafkaSink:
        """Return the sink. Raises ConfigurationError if something required is missing."""
        return KafkaSink(self.settings)

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Set the servers: `host:port`, separated by commas."""
        return self.set_property(BOOTSTRAP_SERVERS, bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Set the guarantee; NONE (default) sends as AT_LEAST_ONCE does."""
        return self._with_a(
            DeliveryGuarantee, "set_delivery_guarantee", guarantee=delivery_guarantee
        )

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> Self:
        """Set the prefix of transactional ids and of the groups of the sink's markers.

        Access rules of the cluster must allow both.
        """
        prefix = transactional_id_prefix
        if not isinstance(prefix, str) or not 0 < len(prefix) <= MAX_PREFIX:
            raise ConfigurationError(
                f"set_transactional_id_prefix: expected a text of up to {MAX_PREFIX} characters, got {prefix!r}."
            )
        return self._with(transactional_id_prefix=prefix)

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> Self:
        """Set what turns values into records."""
        return self._with(serializer=record_serializer)

    def set_property(self, key: str, value: str) -> Self:
        """Set a property of Kafka's client.

        transaction.timeout.ms (60,000 ms) limits how long the records of one checkpoint are
        written.
        """
        key, value = checked_property(key, value, "set_property")
        return self._with(properties={**self.settings.properties, key: value})


class _KafkaDirectWriter(DirectMessageWriter):
    """Sends records as they come."""

    def __init__(self, settings: KafkaSinkSettings, context: WriterContext) -> None:
        super().__init__()
        self.settings = settings
        self._kind = context.input_type
        self._limit = settings.limit
        self._producer = RecordProducer(settings.properties, subtask_of(NAME, context))

    def convert(self, batch: Batch) -> ProducedRecords:
        records = self.settings.records(batch, self._kind)
        checked_sizes(records, *self._limit)
        return records

    def write_converted(self, converted: ProducedRecords, watermark_ms: int) -> None:
        self._producer.send(converted)
        self.sent.bytes += converted.total_bytes()

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        """Drops the records that are not delivered: the job restarts from its last checkpoint and sends them again."""
        self._producer.drop()


class _KafkaStagingWriter(StagingMessageWriter):
    """Stages records. The writer's name is unique, so that a committer always knows which of its
    stagings are written. The transactional id is the same in each attempt, and another sink of the job has another one.
    """

    def __init__(self, settings: KafkaSinkSettings, context: WriterContext) -> None:
        super().__init__(StagedRecords(*settings.limit))
        self.settings = settings
        self._kind = context.input_type
        operator = f"{zlib.crc32(context.operator_id.encode()):08x}"
        self._id = f"{settings.transactional_id_prefix}-{operator}-{context.subtask}"
        self._name = uuid.uuid4().hex[:16]

    def records(self, batch: Batch) -> ProducedRecords:
        return self.settings.records(batch, self._kind)

    def committable(self, number: int, pieces: tuple[bytes, ...]) -> object:
        return self._id, self._name, self._staged.first_topic, number, pieces
