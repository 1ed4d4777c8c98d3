"""PulsarSink: writes messages to topics, exactly once or at least once. Needs pulsar-client
(`penstock[pulsar]`).

At least once: messages are sent as records come, and all are delivered before the task forwards a
checkpoint's barrier. Exactly once: messages wait in the checkpoint and are sent, deduplicated by
the broker, when it is complete (`staging`). Source: pyflink.datastream.connectors.pulsar, Flink's
PulsarSink; differs: the Python client has no transactions, so that none can time out, and messages
of one checkpoint become visible one after the other.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from time import monotonic, time
from typing import Any, Final, NamedTuple, Self

import numpy as np

from penstock.common.serialization import SerializationSchema
from penstock.common.time import Duration
from penstock.connectors.api.base import (
    Accepts,
    Committer,
    DeliveryGuarantee,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.api.builder import MISSING, checked_kind, checked_topics
from penstock.connectors.api.messaging.properties import flag_of, int_of
from penstock.connectors.api.messaging.source import topics_of_settings
from penstock.connectors.api.messaging.staging import (
    DirectMessageWriter,
    ProducedRecords,
    StagedRecords,
    StagingCommitter,
    StagingMessageWriter,
    unpack,
)
from penstock.connectors.api.sending import StagingSink, bodies_of, subtask_of
from penstock.connectors.pulsar.client import (
    close_client,
    import_pulsar,
    make_client,
    pulsar_errors,
    text_of,
)
from penstock.connectors.pulsar.options import (
    BATCHING,
    BATCHING_MESSAGES,
    BATCHING_MESSAGES_DEFAULT,
    CHUNKING,
    CLIENT,
    GUARANTEE,
    PRODUCER,
    PRODUCER_NAME,
    PROPERTIES,
    REFRESH_INTERVAL_DEFAULT_MS,
    REFRESH_INTERVAL_MS,
    SEND_TIMEOUT_DEFAULT_MS,
    SEND_TIMEOUT_MS,
    SERVICE_URL,
    Options,
    PulsarBuilder,
    arguments_of,
    operation_timeout_s,
    parameters_of,
    properties_of,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.time import millis_of
from penstock.engine.runtime.elements import Batch, RowBatch

# ---------------------------------------------------------------------- routing
# Chooses the partition of a message, and the time of its delivery. Does not know any client.
#
# Source: pyflink.datastream.connectors.pulsar, Flink's RoundRobinTopicRouter, KeyHashTopicRouter, MessageDelayer.


class TopicRoutingMode(Enum):
    """How a message's partition is chosen. CUSTOM needs a Java class, and is not supported."""

    ROUND_ROBIN = 0
    MESSAGE_KEY_HASH = 1
    CUSTOM = 2


@dataclass(frozen=True, slots=True)
class MessageDelayer:
    """Sets when messages are delivered. Make it with one of the static methods."""

    delay_ms: int = 0

    @staticmethod
    def never() -> MessageDelayer:
        """Deliver messages at once."""
        return MessageDelayer()

    @staticmethod
    def fixed(duration: Duration) -> MessageDelayer:
        """Deliver messages to shared subscriptions this long after they are sent.

        Other subscriptions, and readers, get them at once.

        Raises:
            ConfigurationError: the duration cannot be used.
        """
        delay_ms = millis_of(duration)
        if delay_ms <= 0:
            raise ConfigurationError(
                f"MessageDelayer.fixed: expected a Duration of at least 1 ms, got {duration!r}."
            )
        return MessageDelayer(delay_ms)


class Router:
    """Chooses partitions for one subtask.

    Flink's serializer for Python gives messages no keys, so MESSAGE_KEY_HASH chooses at random.
    """

    def __init__(self, mode: TopicRoutingMode, switch_after: int) -> None:
        """`switch_after`: after this many messages ROUND_ROBIN switches to the next partition."""
        self._mode = mode
        self._switch_after = switch_after
        self._sent = 0
        self._random = random.Random()

    def route(self, count: int, partitions: Sequence[str]) -> list[str]:
        """The partitions of the next `count` messages."""
        if self._mode is TopicRoutingMode.MESSAGE_KEY_HASH:
            return self._random.choices(partitions, k=count)
        first, self._sent = self._sent, self._sent + count
        return [
            partitions[number // self._switch_after % len(partitions)]
            for number in range(first, first + count)
        ]


# ---------------------------------------------------------------------- sink


# ---------------------------------------------------------------------- producing
# Pulsar producers as sinks use them: send batches of records, and report failed deliveries. Needs
# pulsar-client.


class Partitions:
    """The partitions of a sink's topics, looked up again every `pulsar.sink.topicMetadataRefreshInterval` (30 min)."""

    def __init__(self, client: Any, topics: Sequence[str], options: Options, where: str) -> None:
        self._client = client
        self._topics = topics
        self._options = options
        self._where = where
        self._interval_s = int_of(options, REFRESH_INTERVAL_MS, REFRESH_INTERVAL_DEFAULT_MS) / 1000
        self._found: list[str] = []
        self._found_at = 0.0

    def now(self) -> list[str]:
        """The partitions now. Raises: UnknownTopic; ExternalError."""
        if not self._found or monotonic() - self._found_at > self._interval_s:
            pulsar = import_pulsar(self._where)
            found = []
            for topic in self._topics:
                at = self._options[SERVICE_URL]
                what = f"{self._where}: cannot look up the topic {topic!r} at {at}"
                with pulsar_errors(pulsar, what):
                    found += self._client.get_topic_partitions(topic)
            self._found = list(dict.fromkeys(found))
            self._found_at = monotonic()
        return self._found


class RecordProducers:
    """The producers of a sink, one for each partition. A failed delivery is raised by the next call."""

    def __init__(self, options: Options, where: str, delay_ms: int = 0) -> None:
        """`delay_ms`: a message is delivered this long after it is sent; 0: at once."""
        self._options = options
        self._where = where
        self._delay_ms = delay_ms
        self.pulsar = import_pulsar(where)
        self.client = make_client(options, where)
        self._producers: dict[str, Any] = {}
        self._failure: str | None = None
        # The client's own send timeout starts again with each connection. A connection that breaks
        # again and again would let a flush wait for ever.
        # So a thread waits for the flush, with a timeout of ours.
        self._flusher = ThreadPoolExecutor(1, "pulsar-flush")
        timeout_ms = int_of(options, SEND_TIMEOUT_MS, SEND_TIMEOUT_DEFAULT_MS)
        self._flush_timeout_s = (
            timeout_ms / 1000 + operation_timeout_s(options) if timeout_ms else None
        )

    def open(self, topic: str, **more: Any) -> Any:
        """Opens the first producer of this partition. `more`: arguments of the client. Raises: ExternalError."""
        arguments = producer_arguments(self._options, self.pulsar, self._where) | more
        with pulsar_errors(self.pulsar, f"{self._where}: cannot write to {topic}"):
            self._producers[topic] = self.client.create_producer(topic, **arguments)
        return self._producers[topic]

    def close_producer(self, topic: str) -> None:
        """Closes the producer of a partition. Raises: ExternalError."""
        producer = self._producers.pop(topic)
        with pulsar_errors(self.pulsar, f"{self._where}: cannot close the producer of {topic}"):
            producer.close()

    def send(self, records: ProducedRecords, first_sequence_id: int | None = None) -> None:
        """Sends records to partitions that were opened. Waits while the client's queue is full. Raises: ExternalError."""
        stamps = repeat(0) if records.timestamps is None else records.timestamps.tolist()
        deliver_at = int(time() * 1000) + self._delay_ms if self._delay_ms else None
        producers = {topic: self._producers[topic] for topic in dict.fromkeys(records.topics)}
        number = first_sequence_id
        with pulsar_errors(self.pulsar, f"{self._where}: cannot send"):
            for topic, value, stamp in zip(records.topics, records.values, stamps, strict=False):
                producers[topic].send_async(
                    value,
                    self._on_done,
                    sequence_id=number,
                    event_timestamp=stamp if stamp > 0 else None,
                    deliver_at=deliver_at,
                )
                if number is not None:
                    number += 1
        self.check()

    def flush(self) -> None:
        """Waits until all messages are delivered.

        Raises: ExternalError: one is not delivered within pulsar.producer.sendTimeoutMs.
        """
        for topic, producer in self._producers.items():
            what = f"{self._where}: cannot deliver to {topic}"
            with pulsar_errors(self.pulsar, what):
                try:
                    self._flusher.submit(producer.flush).result(self._flush_timeout_s)
                except TimeoutError as error:
                    raise ExternalError(
                        f"{what}: not all messages were delivered in {self._flush_timeout_s:g} s. "
                        "Check whether the connection breaks again and again."
                    ) from error
        self.check()

    def check(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise ExternalError(failure)

    def close(self) -> None:
        """Closes the client without waiting; messages that were not sent are lost."""
        self._producers.clear()
        close_client(self.client, self.pulsar)
        self._flusher.shutdown(wait=False)

    def _on_done(self, result: Any, message_id: object) -> None:
        """The client calls it on its own thread. It must not raise."""
        if result != self.pulsar.Result.Ok and self._failure is None:
            self._failure = f"{self._where}: a message was not delivered: {text_of(result)}."


def producer_arguments(options: Options, pulsar: Any, where: str) -> dict[str, Any]:
    """The client's arguments. Batches are sent at once when Java's would be. Raises: ConfigurationError."""
    usual = {"batching_enabled": True, "batching_max_publish_delay_ms": 1}
    found = usual | arguments_of(options, PRODUCER) | {"block_if_queue_full": True}
    if "compression_type" in found:
        found["compression_type"] = compression_of(found["compression_type"], pulsar, where)
    properties = properties_of(options, PROPERTIES[0])
    return found | ({"properties": properties} if properties else {})


def compression_of(name: str, pulsar: Any, where: str) -> Any:
    """Raises: ConfigurationError."""
    known: Mapping[str, Any] = {
        "NONE": pulsar.CompressionType.NONE,
        "LZ4": pulsar.CompressionType.LZ4,
        "ZLIB": pulsar.CompressionType.ZLib,
        "ZSTD": pulsar.CompressionType.ZSTD,
        "SNAPPY": pulsar.CompressionType.SNAPPY,
    }
    if name.upper() not in known:
        raise ConfigurationError(
            f"{where}: the option 'pulsar.producer.compressionType' must be one of "
            f"{', '.join(known)}, got {name!r}."
        )
    return known[name.upper()]


# ---------------------------------------------------------------------- staging
# Staged messages: they wait in the checkpoint, and are sent when it is complete; the broker drops
# duplicates.
#
# The Python client has no transactions. So a subtask keeps the messages of a checkpoint until the
# checkpoint is complete. Then its committer sends them under a producer name that belongs to this
# staging alone. It numbers them from 1 in each partition, in batches whose boundaries depend on
# the messages alone. Any process that commits the same staging again sends the same batches, and
# the broker drops every batch whose number it has seen under this name. Whether the broker does
# that is checked when a partition is written for the first time. Source: replaces Flink's
# PulsarCommitter; Pulsar's message deduplication (producer name and sequence id).


CHUNK_MESSAGES: Final = 1000
CHUNK_BYTES: Final = 128 * 1024
MAX_BATCH_BYTES: Final = 5 << 20
"""The default of a broker's maxMessageSize."""

MAX_RECORD_BYTES: Final = MAX_BATCH_BYTES - 10 * 1024
"""Leaves room for what the client puts around a message."""

_IN_CHUNKS: Final[Mapping[str, Any]] = {
    # Only a flush may end a batch, never a limit or a timer of the client.
    "batching_enabled": True,
    "chunking_enabled": False,
    "batching_max_messages": 2 * CHUNK_MESSAGES,
    "batching_max_allowed_size_in_bytes": MAX_BATCH_BYTES,
    "batching_max_publish_delay_ms": 24 * 60 * 60 * 1000,
    "max_pending_messages": 2 * CHUNK_MESSAGES,
    # If it were set, the client would report it as the broker's last one, which must show whether
    # the broker deduplicates.
    "initial_sequence_id": None,
}


class PulsarStaging(NamedTuple):
    """The messages of one writer for one checkpoint. `producer`: a name that no other staging has. `pieces`: packed
    records.
    """

    producer: str
    pieces: tuple[bytes, ...]


@dataclass(slots=True)
class Chunk:
    """The messages of one partition that make a batch. `first`: the number of its first message."""

    topic: str
    first: int = 1
    values: list[bytes | None] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    size: int = 0

    def records(self) -> ProducedRecords:
        stamps = np.array(self.stamps, np.int64)
        return ProducedRecords([self.topic] * len(self.values), None, self.values, stamps)

    def is_full_with(self, size: int) -> bool:
        is_large = self.size + size > CHUNK_BYTES
        return bool(self.values) and (is_large or len(self.values) >= CHUNK_MESSAGES)


def chunks_of(staging: PulsarStaging) -> Iterator[Chunk]:
    """The batches of a staging, always the same ones; those of a partition in order."""
    open_chunks: dict[str, Chunk] = {}
    for piece in staging.pieces:
        for records in unpack(piece):
            assert records.timestamps is not None, "unpacked records have timestamps"
            rows = zip(
                records.topics,
                records.values,
                records.timestamps.tolist(),
                records.sizes(),
                strict=True,
            )
            for topic, value, stamp, size in rows:
                chunk = open_chunks.setdefault(topic, Chunk(topic))
                if chunk.is_full_with(size):
                    yield chunk
                    chunk = open_chunks[topic] = Chunk(topic, chunk.first + len(chunk.values))
                chunk.values.append(value)
                chunk.stamps.append(stamp)
                chunk.size += size
    yield from open_chunks.values()


class DeduplicatedLog:
    """Sends stagings; the broker drops messages that it has already."""

    def __init__(self, settings: PulsarSinkSettings, where: str) -> None:
        """Raises: ConfigurationError: the client is missing, or refuses the options."""
        self._where = where
        self._producers = RecordProducers(settings.options, where, settings.delayer.delay_ms)
        self._deduplicating: set[str] = set()

    def write(self, staging: PulsarStaging) -> None:
        """Sends the staging. Raises: ExternalError; ConfigurationError: a broker does not deduplicate."""
        opened: set[str] = set()
        for chunk in chunks_of(staging):
            if chunk.topic not in opened:
                self._open(chunk.topic, staging.producer)
                opened.add(chunk.topic)
            self._producers.send(chunk.records(), chunk.first)
            self._producers.flush()
            if chunk.topic not in self._deduplicating:
                self._look_for_deduplication(chunk.topic, staging.producer)
        for topic in opened:
            self._producers.close_producer(topic)

    def close(self) -> None:
        self._producers.close()

    def _open(self, topic: str, name: str) -> None:
        producer = self._producers.open(topic, producer_name=name, **_IN_CHUNKS)
        if producer.last_sequence_id() >= 0:
            self._deduplicating.add(topic)

    def _look_for_deduplication(self, topic: str, name: str) -> None:
        """Check that the broker deduplicates: then it sends a producer that reconnects the last
        number that it has.
        """
        self._producers.close_producer(topic)
        self._open(topic, name)
        if topic not in self._deduplicating:
            raise ConfigurationError(
                f"{self._where}: EXACTLY_ONCE needs message deduplication, which {topic} does not "
                "have. Switch it on for its namespace (pulsar-admin namespaces set-deduplication "
                "--enable) or for all (brokerDeduplicationEnabled=true), or use AT_LEAST_ONCE."
            )


class PulsarCommitter(StagingCommitter):
    """Commits stagings, with one log for all of them."""

    staging = PulsarStaging
    sink_name = "PulsarSink"

    def __init__(self, settings: PulsarSinkSettings) -> None:
        super().__init__()
        self.settings = settings

    def log_key(self, staging: PulsarStaging) -> None:
        return None

    def open_log(self, staging: PulsarStaging) -> DeduplicatedLog:
        return DeduplicatedLog(self.settings, "PulsarSink's committer")


# ---------------------------------------------------------------------- sink


NAME = "PulsarSink"


@dataclass(frozen=True, slots=True)
class PulsarSinkSettings:
    """The settings that the builder collected."""

    options: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    schema: SerializationSchema = MISSING
    mode: TopicRoutingMode = TopicRoutingMode.ROUND_ROBIN
    delayer: MessageDelayer = field(default_factory=MessageDelayer.never)

    @property
    def guarantee(self) -> DeliveryGuarantee:
        """Raises: KeyError: there is no such guarantee."""
        return DeliveryGuarantee[self.options.get(GUARANTEE, DeliveryGuarantee.NONE.name)]

    def new_producer_name(self, subtask: int) -> str:
        """A new name each time: a broker lets in only one producer of a name."""
        prefix = self.options.get(PRODUCER_NAME, "penstock")
        return f"{prefix}-{subtask}-{uuid.uuid4().hex[:16]}"


class PulsarSink(StagingSink):
    """Writes messages to Pulsar. Build it with `PulsarSink.builder()`."""

    accepts = Accepts.ROWS
    is_converting = True

    settings: PulsarSinkSettings

    @staticmethod
    def builder() -> PulsarSinkBuilder:
        """Return a builder."""
        return PulsarSinkBuilder()

    def validate(self) -> None:
        """Check topics and options.

        Raises:
            ConfigurationError: a topic does not exist, or the client refuses the options.
        """
        settings, where = self.settings, f"{NAME} on the driver"
        pulsar = import_pulsar(where)
        producer_arguments(settings.options, pulsar, where)
        client = make_client(settings.options, where)
        try:
            with topics_of_settings("advertisedAddress"):
                Partitions(client, settings.topics, settings.options, where).now()
        finally:
            close_client(client, pulsar)

    def staging_writer(self, context: WriterContext) -> SinkWriter:
        return _PulsarStagingWriter(self.settings, context)

    def direct_writer(self, context: WriterContext) -> SinkWriter:
        return _PulsarDirectWriter(self.settings, context)

    def committer(self) -> Committer:
        return PulsarCommitter(self.settings)

    def _check(self) -> None:
        settings, options = self.settings, self.settings.options
        if not options.get(SERVICE_URL):
            raise ConfigurationError(
                f"{NAME}: the option {SERVICE_URL!r} is required: call set_service_url('pulsar://host:6650')."
            )
        if not settings.topics:
            raise ConfigurationError(
                f"{NAME}: there is no topic to write to: call set_topics('...')."
            )
        if settings.schema is None:
            raise ConfigurationError(
                f"{NAME}: a serializer is required: call set_serialization_schema(SimpleStringSchema()), or with another "
                "SerializationSchema."
            )
        guarantee = options.get(GUARANTEE, DeliveryGuarantee.NONE.name)
        if guarantee not in DeliveryGuarantee.__members__:
            raise ConfigurationError(
                f"{NAME}: the option {GUARANTEE!r} must be one of "
                f"{', '.join(DeliveryGuarantee.__members__)}, got {guarantee!r}."
            )
        if flag_of(options, CHUNKING, default=False) and (
            self.is_exactly_once or flag_of(options, BATCHING, default=True)
        ):
            raise ConfigurationError(
                f"{NAME}: {CHUNKING!r} needs {BATCHING!r}: 'false', and cannot be used with "
                "EXACTLY_ONCE, whose messages are sent in batches."
            )
        if int_of(options, BATCHING_MESSAGES, BATCHING_MESSAGES_DEFAULT) < 1:
            raise ConfigurationError(
                f"{NAME}: the option {BATCHING_MESSAGES!r} must be at least 1, got "
                f"{options[BATCHING_MESSAGES]!r}."
            )
        int_of(options, REFRESH_INTERVAL_MS, REFRESH_INTERVAL_DEFAULT_MS)
        parameters_of(options, NAME)
        for table in (CLIENT, PRODUCER):
            arguments_of(options, table)


class PulsarSinkBuilder(PulsarBuilder):
    """Builds a PulsarSink; service URL, topics and serializer are required."""

    begin = PulsarSinkSettings

    def build(self) -> PulsarSink:
        """Return the sink. Raises ConfigurationError if something required is missing."""
        return PulsarSink(self.settings)

    def set_producer_name(self, producer_name: str) -> Self:
        """Set the prefix of the producers' names."""
        return self.set_config(PRODUCER_NAME, producer_name)

    def set_topics(self, topics: str | list[str]) -> Self:
        """Set topics, with all their partitions, or single partitions (`topic-partition-0`)."""
        if self.settings.topics:
            raise ConfigurationError(
                f"set_topics: topics are set already: {', '.join(self.settings.topics)}. Call it once."
            )
        return self._with(topics=checked_topics(topics))

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Set the guarantee; NONE (default) sends as AT_LEAST_ONCE does."""
        guarantee = checked_kind("set_delivery_guarantee", delivery_guarantee, DeliveryGuarantee)
        return self.set_config(GUARANTEE, guarantee)

    def set_topic_routing_mode(self, topic_routing_mode: TopicRoutingMode) -> Self:
        """Set how partitions are chosen: ROUND_ROBIN by default.

        CUSTOM raises NotImplementedError.
        """
        checked_kind("set_topic_routing_mode", topic_routing_mode, TopicRoutingMode)
        if topic_routing_mode is TopicRoutingMode.CUSTOM:
            raise NotImplementedError(
                "pyflink.datastream.connectors.pulsar.TopicRoutingMode.CUSTOM has no counterpart "
                "in Penstock: it takes a Java class. Split the stream by side outputs or filters, "
                "and give each part a PulsarSink with its own topics."
            )
        return self._with(mode=topic_routing_mode)

    def set_topic_router(self, topic_router_class_name: str) -> Self:
        """Raise NotImplementedError: a router is a Java class."""
        raise NotImplementedError(
            "pyflink.datastream.connectors.pulsar.PulsarSinkBuilder.set_topic_router has no "
            f"counterpart in Penstock: it takes a Java class, got {topic_router_class_name!r}. "
            "Split the stream by side outputs or filters, and give each part a PulsarSink with "
            "its own topics."
        )

    def set_serialization_schema(self, serialization_schema: SerializationSchema) -> Self:
        """Set what serializes a message's payload."""
        return self._with_a(
            SerializationSchema, "set_serialization_schema", schema=serialization_schema
        )

    def delay_sending_message(self, message_delayer: MessageDelayer) -> Self:
        """Set when messages are delivered."""
        return self._with_a(MessageDelayer, "delay_sending_message", delayer=message_delayer)


class _MessageMaker:
    """Makes messages from a stream's records. `where`: names the sink and subtask in errors."""

    def __init__(self, settings: PulsarSinkSettings, context: WriterContext) -> None:
        self._schema = settings.schema
        self.where = subtask_of(NAME, context)
        switch = int_of(settings.options, BATCHING_MESSAGES, BATCHING_MESSAGES_DEFAULT)
        self._router = Router(settings.mode, switch)

    def records(self, batch: Batch, partitions: Sequence[str]) -> ProducedRecords:
        assert isinstance(batch, RowBatch), "a PulsarSink accepts rows"
        bodies = bodies_of(self._schema, batch.values)
        topics = self._router.route(len(batch), partitions)
        return ProducedRecords(topics, None, bodies, batch.timestamps)


class _PulsarDirectWriter(DirectMessageWriter):
    """Sends messages as records come."""

    def __init__(self, settings: PulsarSinkSettings, context: WriterContext) -> None:
        super().__init__()
        self._maker = _MessageMaker(settings, context)
        self._name = settings.new_producer_name(context.subtask)
        options, where = settings.options, self._maker.where
        self._producers = RecordProducers(options, where, settings.delayer.delay_ms)
        self._partitions = Partitions(self._producers.client, settings.topics, options, where)
        self._opened: set[str] = set()

    def convert(self, batch: Batch) -> ProducedRecords:
        return self._maker.records(batch, self._partitions.now())

    def write_converted(self, converted: ProducedRecords, watermark_ms: int) -> None:
        for topic in dict.fromkeys(converted.topics):
            if topic not in self._opened:
                self._producers.open(topic, producer_name=self._name)
                self._opened.add(topic)
        self._producers.send(converted)
        self.sent.bytes += converted.total_bytes()

    def flush(self) -> None:
        self._producers.flush()

    def close(self) -> None:
        """Closes the producers. Messages that are not delivered are sent again: the job restarts from its last
        checkpoint.
        """
        self._producers.close()


class _PulsarStagingWriter(StagingMessageWriter):
    """Stages messages. Each staging has its own producer name, by which the broker knows whether it
    is written.
    """

    def __init__(self, settings: PulsarSinkSettings, context: WriterContext) -> None:
        super().__init__(
            StagedRecords(
                MAX_RECORD_BYTES,
                f"A Pulsar broker takes at most {MAX_RECORD_BYTES}. Make the records smaller, or "
                f"use AT_LEAST_ONCE with {CHUNKING!r}: 'true' and {BATCHING!r}: 'false'",
            )
        )
        self._maker = _MessageMaker(settings, context)
        self._name = settings.new_producer_name(context.subtask)
        where = self._maker.where
        self._client = make_client(settings.options, where)
        self._partitions = Partitions(self._client, settings.topics, settings.options, where)

    def records(self, batch: Batch) -> ProducedRecords:
        return self._maker.records(batch, self._partitions.now())

    def committable(self, number: int, pieces: tuple[bytes, ...]) -> object:
        return f"{self._name}-{number}", pieces

    def close(self) -> None:
        close_client(self._client, import_pulsar(self._maker.where))
