"""Staged records: they wait in the checkpoint, and are written to Kafka in one transaction when it is complete.

With librdkafka another process cannot take over a producer's transaction. So a subtask keeps the records of a
checkpoint until the checkpoint is complete. Then its committer writes them in a transaction, together with a marker.
The marker is an offset that is committed in the same transaction to a group of its own. Its metadata says which
stagings of the last writers are written. A process that commits the same staging again first becomes the only one that
can write under its transactional id (Kafka ends or aborts transactions that others began with it). Then it reads the
marker, and leaves out the stagings that are written. Each attempt has writers of new names. Group and transactional id
stay the same, because Kafka keeps each of them for days.
Source: replaces Flink's KafkaCommitter; Kafka's consume-transform-produce transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import repeat
from time import monotonic
from typing import Any, Final, NamedTuple

from penstock.common.extras import extra
from penstock.connectors.api.messaging.properties import int_of
from penstock.connectors.api.messaging.staging import ProducedRecords, StagingCommitter, unpack
from penstock.connectors.kafka.client import (
    API_TIMEOUT_DEFAULT_MS,
    GRACE_S,
    LOGIN_TIMEOUT_S,
    LastError,
    committed,
    import_kafka,
    kafka_errors,
    make_client,
    make_consumer,
    refusal_of,
    text_of,
)
from penstock.connectors.kafka.properties import (
    API_TIMEOUT_MS,
    BOOTSTRAP_SERVERS,
    GROUP_ID,
    TRANSACTIONAL_ID,
    shared_properties,
)
from penstock.engine.hosting.os.clock import within
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

# ---------------------------------------------------------------------- producing
# A Kafka producer as sinks use it: sends batches of records, and reports failed deliveries. Needs confluent-kafka.


_LOG: Final = logging.getLogger(__name__)
WAIT_S: Final = 0.1
WARN_EVERY_S: Final = 60.0
ONE_BY_ONE: Final = "batch.num.messages"
BATCH_BYTES: Final = "batch.size"
BATCH_BYTES_DEFAULT: Final = 1_000_000


class BatchTooLarge(ExternalError):
    """The brokers take less than a batch has; its records may each be small enough."""


class RecordDropped(ExternalError):
    """The client has not sent a record, because an error before it has ended the transaction."""


class RecordProducer:
    """Sends records in the background. A failed delivery is raised by the next call.

    The delivery callback is a C function (`dict.setdefault`), not Python code. After a fatal error
    the client keeps calling back with that error pending. It leaks the exception that results from
    this in Python code, with all stack frames that the exception refers to.
    """

    def __init__(self, properties: Mapping[str, str], where: str) -> None:
        self._where, self._servers = where, properties.get(BOOTSTRAP_SERVERS)
        self._most_in_batch = (
            int_of(properties, ONE_BY_ONE, 2),
            int_of(properties, BATCH_BYTES, BATCH_BYTES_DEFAULT),
        )
        self._undelivered: dict[Any, Any] = {}
        """Each error, with the first record that had it."""
        usual: dict[str, str] = {"partitioner": "murmur2_random"}  # the default of Java's producers
        if properties.get("acks", "all") in {"all", "-1"}:
            # A record that is sent again is then neither written twice nor out of order.
            usual["enable.idempotence"] = "true"
        self.client, self.last = make_client(
            "Producer",
            {**usual, **properties},
            where,
            delivery__report__only__error=True,
            on_delivery=self._undelivered.setdefault,
        )

    def send(self, records: ProducedRecords) -> None:
        """Sends the records. Waits while the client's queue is full. Raises: ExternalError."""
        produce = self.client.produce
        stamps = repeat(0) if records.timestamps is None else records.timestamps.tolist()
        keys = repeat(None) if records.keys is None else records.keys
        headers = repeat(None) if records.headers is None else map(list, records.headers)
        rows = zip(records.topics, records.values, keys, stamps, headers, strict=False)
        for topic, value, key, stamp, found in rows:
            # 0 means now. Kafka has no times before 1970, and NO_TIMESTAMP is such a time.
            at_ms = max(0, stamp)
            try:
                produce(topic, value, key, timestamp=at_ms, headers=found)
            except BufferError:
                self._produce_when_there_is_room(topic, value, key, at_ms, found)
            except Exception as error:  # the client's errors have no common base class
                raise ExternalError(
                    f"{self._where}: cannot write to the topic {topic!r}: {text_of(error)}"
                ) from error
        self.client.poll(0)
        self.check()

    def flush(self) -> None:
        """Waits until all records are delivered.

        Raises: ExternalError: a record is not delivered within delivery.timeout.ms.
        """
        since_s = monotonic()
        while left := self._flush():
            self.check()
            if monotonic() - since_s >= WARN_EVERY_S:
                since_s = monotonic()
                _LOG.warning(
                    "%s: waits for %s to take %d records.%s",
                    self._where, self._servers, left, self.last.reason(),
                )  # fmt: skip
        self.check()

    def _flush(self) -> int:
        """Waits for one second. Returns how many records are still under way."""
        try:
            return int(self.client.flush(1))
        except SystemError as error:  # the client's only sign that it was fenced off
            raise ExternalError(
                f"{self._where}: the client has ended.{self.last.reason()}"
            ) from error

    def check(self) -> None:
        """Raises: ExternalError: a record was not delivered; this producer cannot be used any more. RefusedForGood."""
        if refusal := self.last.refusal():
            raise RefusedForGood(f"{self._where}: cannot write: {refusal}.")
        for error, message in self._undelivered.items():
            if refusal := refusal_of(error):
                raise RefusedForGood(
                    f"{self._where}: cannot write to the topic {message.topic()!r}: {refusal}."
                )
            raise self._failure(error, message)

    def drop(self) -> None:
        """Ends the producer without waiting; records that were not sent are lost."""
        client = self.client
        self.client = None  # the client ends when its last user drops it
        if client is not None:
            client.purge()
            client.poll(0)

    def _produce_when_there_is_room(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        at_ms: int,
        headers: list[tuple[str, bytes | None]] | None,
    ) -> None:
        while True:
            self.client.poll(WAIT_S)
            self.check()
            try:
                self.client.produce(topic, value, key, timestamp=at_ms, headers=headers)
            except BufferError:
                continue
            return

    def _failure(self, error: Any, message: Any) -> ExternalError:
        said, topic = f"{error.str()} ({error.name()})", message.topic()
        if error.name() != "MSG_SIZE_TOO_LARGE":
            kind = RecordDropped if error.name() == "_PURGE_QUEUE" else ExternalError
            return kind(
                f"{self._where}: a record for the topic {topic!r} was not delivered: {said}."
                f"{self.last.reason()}"
            )
        count, size = self._most_in_batch
        if count > 1 and len(message) < size:
            return BatchTooLarge(
                f"{self._where}: a batch of records for the topic {topic!r} was not delivered: "
                f"{said}. Set batch.size of the sink to max.message.bytes of the topic, or that "
                "higher: a batch is as large as batch.size, 1,000,000 bytes by default."
            )
        return ExternalError(
            f"{self._where}: a record for the topic {topic!r} was not delivered: {said}. Its value "
            f"has {len(message)} bytes. Brokers (message.max.bytes) or the topic "
            "(max.message.bytes) take less: set that higher, or message.max.bytes of the sink "
            "to the same, which then refuses such records one by one."
        )


# ---------------------------------------------------------------------- staging


MAX_BYTES: Final = "message.max.bytes"
MAX_RECORD_BYTES: Final = 1_000_000


TRANSACTION_TIMEOUT_MS: Final = "transaction.timeout.ms"
TRANSACTION_TIMEOUT_DEFAULT_MS: Final = 60_000
REQUEST_TIMEOUT_MS: Final = "socket.timeout.ms"
"""At least 100 ms below that of a transaction, or the client refuses it."""
MARKED_WRITERS: Final = 100
"""Their markers take 3 of the 4 KB that brokers keep with an offset (offset.metadata.max.bytes)."""


class KafkaStaging(NamedTuple):
    """The records of one writer for one checkpoint. `writer`: unique; `number`: counts its stagings from 1, without
    gaps. `transactional_id`: of its subtask, as all attempts have it.

    `topic`: the first topic that the writer wrote to; the marker is an offset of its partition 0. `pieces`: packed records.
    """

    transactional_id: str
    writer: str
    topic: str
    number: int
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """Which stagings of a writer are written: all up to `all_up_to`, and those in `besides`, which
    are higher.
    """

    all_up_to: int = 0
    besides: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number <= self.all_up_to or number in self.besides

    def plus(self, number: int) -> Written:
        found = {*self.besides, number}
        up_to = self.all_up_to
        while up_to + 1 in found:
            up_to += 1
        return Written(up_to, frozenset(one for one in found if one > up_to))


@dataclass(frozen=True, slots=True)
class Marker:
    """What is written of the last `MARKED_WRITERS` writers; the one that has written last comes last."""

    writers: Mapping[str, Written] = field(default_factory=dict)

    def __contains__(self, staging: KafkaStaging) -> bool:
        return staging.number in self.writers.get(staging.writer, Written())

    def plus(self, staging: KafkaStaging) -> Marker:
        others = dict(self.writers)
        own = others.pop(staging.writer, Written()).plus(staging.number)
        last = list(others.items())[-(MARKED_WRITERS - 1) :]
        return Marker({**dict(last), staging.writer: own})

    @property
    def metadata(self) -> str:
        """The text that is stored with the offset: `writer=up to,besides,... writer=...`."""
        return " ".join(
            f"{name}={','.join(map(str, (one.all_up_to, *sorted(one.besides))))}"
            for name, one in self.writers.items()
        )

    @classmethod
    def of(cls, metadata: str | None) -> Marker:
        """The marker in the metadata of a committed offset; None: there is none yet."""
        found = {}
        for entry in (metadata or "").split():
            name, _, numbers = entry.partition("=")
            up_to, *besides = map(int, numbers.split(","))
            found[name] = Written(up_to, frozenset(besides))
        return cls(found)


class TransactionLog:
    """Writes the stagings with one transactional id, each once. A new log excludes all earlier ones from writing."""

    def __init__(self, transactional_id: str, topic: str, properties: Mapping[str, str]) -> None:
        """Raises: ExternalError: the cluster does not answer."""
        self._where = f"KafkaSink's committer for the transactional id {transactional_id!r}"
        self._kafka = import_kafka(self._where)
        self._topic = topic
        self._timeout_s = int_of(properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
        # Some calls take as long as a request may, whatever they are given, and hold the client up.
        request_ms = min(
            self._timeout_s * 1000,
            int_of(properties, TRANSACTION_TIMEOUT_MS, TRANSACTION_TIMEOUT_DEFAULT_MS) - 100,
        )
        self._properties = {
            REQUEST_TIMEOUT_MS: str(round(request_ms)),
            **properties,
            TRANSACTIONAL_ID: transactional_id,
        }
        self._producer = RecordProducer(self._properties, self._where)
        shared = shared_properties(properties)
        self._consumer, _ = make_consumer({**shared, GROUP_ID: transactional_id}, self._where)
        try:
            self.marker = self._begin()
        except (
            BaseException
        ):  # Otherwise the producer keeps trying, and would fence off the next one.
            self.close()
            raise

    def _begin(self) -> Marker:
        """Fences off all other producers, then reads which stagings are written."""
        what, timeout_s = "cannot begin", self._timeout_s
        place = self._kafka.TopicPartition(self._topic, 0)
        with self._errors(what):
            self._within(what, lambda: self._producer.client.init_transactions(timeout_s))
            (found,) = self._within(
                what,
                lambda: committed(
                    self._kafka, self._consumer, [place], timeout_s, self._producer.last
                ),
            )
        return Marker.of(found.metadata)

    def write(self, staging: KafkaStaging) -> None:
        """Writes the staging, unless it is written already. Raises: ExternalError.

        After an error the log must not be used any more: it is not known whether the staging was written.
        """
        if staging in self.marker:
            return
        try:
            self._write(staging)
        except BatchTooLarge:
            self._producer.drop()
            self._producer = RecordProducer({**self._properties, ONE_BY_ONE: "1"}, self._where)
            self.marker = self._begin()  # it ends what the former has begun
            if staging not in self.marker:
                self._write(staging)

    def _write(self, staging: KafkaStaging) -> None:
        after = self.marker.plus(staging)
        place = self._kafka.TopicPartition(self._topic, 0, staging.number, after.metadata)
        what, timeout_s = f"cannot commit staging {staging.number}", self._timeout_s
        with self._errors(what):
            self._producer.client.begin_transaction()
            try:
                for piece in staging.pieces:
                    for records in unpack(piece):
                        self._producer.send(records)
                self._producer.flush()
            except RecordDropped:
                self._add_marker(what, place)  # this raises what has ended the transaction
                raise
            self._add_marker(what, place)
            self._within(what, lambda: self._producer.client.commit_transaction(timeout_s))
        self.marker = after

    def rehearse(self) -> None:
        """Writes a marker in a transaction that is aborted. Raises: ExternalError: what a commit would raise."""
        what, timeout_s = "cannot commit", self._timeout_s
        with self._errors(what):
            self._producer.client.begin_transaction()
            self._add_marker(what, self._kafka.TopicPartition(self._topic, 0, 0))
            self._within(what, lambda: self._producer.client.abort_transaction(timeout_s))

    def _add_marker(self, what: str, place: Any) -> None:
        group, timeout_s = self._consumer.consumer_group_metadata(), self._timeout_s
        self._within(
            what,
            lambda: self._producer.client.send_offsets_to_transaction([place], group, timeout_s),
        )

    def _within(self, what: str, call: Callable[[], Any]) -> Any:
        """Calls the client, which may wait for a broker that was killed or stands still without regard to its own timeout.

        `call`: holds no client, for that would outlive `close`. Raises: NoAnswer.
        """
        return within(self._timeout_s + GRACE_S, call, f"{self._where}: {what}")

    def _errors(self, what: str) -> AbstractContextManager[None]:
        producer = self._producer
        return kafka_errors(self._kafka, f"{self._where}: {what}", producer.last, producer.client)

    def close(self) -> None:
        self._producer.drop()
        self._consumer.close()


class KafkaCommitter(StagingCommitter):
    """Commits stagings, with one log for each transactional id and topic of a marker."""

    staging = KafkaStaging
    sink_name = "KafkaSink"

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__()
        self._properties = properties

    def log_key(self, staging: KafkaStaging) -> tuple[str, str]:
        return staging.transactional_id, staging.topic

    def open_log(self, staging: KafkaStaging) -> TransactionLog:
        return TransactionLog(staging.transactional_id, staging.topic, self._properties)


# ---------------------------------------------------------------------- submit
# What the brokers say, before a job starts, to what its sink will ask of them.


def batch_limit(properties: Mapping[str, str], topic: str, where: str) -> int | None:
    """The most bytes of a batch that the topic takes. None: the brokers do not say.

    Raises: ConfigurationError: there is no such topic, and the brokers make none; or this user may not write to it.
    """
    kafka, shared = import_kafka(where), shared_properties(properties)
    at = f"{where}: cannot write to the topic {topic!r} of {properties[BOOTSTRAP_SERVERS]}"
    limit = None
    with _as_settings(), kafka_errors(kafka, at, LastError()):
        if _is_known(kafka, shared, topic, at):
            limit = _described(kafka, shared, topic, at)
    return limit


def check_transactions(properties: Mapping[str, str], topic: str, prefix: str) -> None:
    """Raises: ConfigurationError: the brokers refuse what a commit asks of them."""
    short = {**properties, API_TIMEOUT_MS: str(round(LOGIN_TIMEOUT_S * 1000))}
    with _as_settings(), closing(TransactionLog(f"{prefix}-submit", topic, short)) as log:
        log.rehearse()


@contextmanager
def _as_settings() -> Generator[None]:
    """What is refused is an error of the settings. Brokers that do not answer now may do so when the job runs."""
    with suppress(ExternalError):
        try:
            yield
        except RefusedForGood as error:
            raise ConfigurationError(str(error)) from error


def _is_known(kafka: Any, shared: Mapping[str, str], topic: str, at: str) -> bool:
    """Whether the cluster has the topic, and a controller to ask about it."""
    client, _ = make_client("Producer", shared, at)
    end = monotonic() + LOGIN_TIMEOUT_S
    try:
        while True:  # Brokers that create topics do so when a producer asks for one.
            found = client.list_topics(topic, timeout=LOGIN_TIMEOUT_S)
            error = found.topics[topic].error
            if error is None:
                return found.controller_id in found.brokers
            if error.name() != "UNKNOWN_TOPIC_OR_PART":
                raise kafka.KafkaException(error)
            if monotonic() >= end:
                raise ConfigurationError(f"{at}: there is none. Create it before the job starts.")
            client.poll(WAIT_S)
    finally:
        del client  # an error has this frame, and the client would live as long


def _described(kafka: Any, shared: Mapping[str, str], topic: str, at: str) -> int | None:
    module = extra("confluent_kafka.admin", "kafka", at)
    admin, _ = make_client("AdminClient", shared, at)
    resource = module.ConfigResource(module.ConfigResource.Type.TOPIC, topic)
    limits = {"request_timeout": LOGIN_TIMEOUT_S}
    try:
        described = admin.describe_topics(
            kafka.TopicCollection([topic]), include_authorized_operations=True, **limits
        )[topic]
        configs = admin.describe_configs([resource], **limits)[resource]
        rights = within(LOGIN_TIMEOUT_S + GRACE_S, described.result, at).authorized_operations
        if rights and module.AclOperation.WRITE not in rights:
            refused = kafka.KafkaError(kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)
            raise kafka.KafkaException(refused)
        with suppress(kafka.KafkaException, KeyError):  # Few users may see it, few brokers lack it.
            found = within(LOGIN_TIMEOUT_S + GRACE_S, configs.result, at)
            return int(found["max.message.bytes"].value)
        return None
    finally:
        del admin
