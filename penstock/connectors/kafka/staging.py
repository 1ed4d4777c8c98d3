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

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple

from penstock.connectors.api.messaging.properties import int_of
from penstock.connectors.api.messaging.staging import ProducedRecords, StagingCommitter, unpack
from penstock.connectors.kafka.client import (
    API_TIMEOUT_DEFAULT_MS,
    GRACE_S,
    committed,
    import_kafka,
    kafka_errors,
    make_client,
    make_consumer,
    refusal_of,
    text_of,
)
from penstock.connectors.kafka.properties import API_TIMEOUT_MS, GROUP_ID, shared_properties
from penstock.engine.hosting.os.clock import within
from penstock.engine.model.errors import ExternalError, RefusedForGood

# ---------------------------------------------------------------------- producing
# A Kafka producer as sinks use it: sends batches of records, and reports failed deliveries. Needs confluent-kafka.


WAIT_S: Final = 0.1


class RecordProducer:
    """Sends records in the background. A failed delivery is raised by the next call.

    The delivery callback is a C function (`dict.setdefault`), not Python code. After a fatal error
    the client keeps calling back with that error pending. It leaks the exception that results from
    this in Python code, with all stack frames that the exception refers to.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        where: str,
        **more: Any,
    ) -> None:
        """`more`: librdkafka properties, with __ for each dot."""
        self._where = where
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
            **more,
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
        while self._flush():
            self.check()
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
        if self._undelivered:
            raise ExternalError(self._text_of(*next(iter(self._undelivered.items()))))

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

    def _text_of(self, error: Any, message: Any) -> str:
        size = ""
        if error.name() == "MSG_SIZE_TOO_LARGE":
            size = (
                f" Its value has {len(message)} bytes. Brokers (message.max.bytes) or the topic "
                "(max.message.bytes) take less: set that higher, or message.max.bytes of the sink "
                "to the same, which then refuses such records one by one."
            )
        return (
            f"{self._where}: a record for the topic {message.topic()!r} was not delivered: "
            f"{error.str()} ({error.name()}).{size}{self.last.reason()}"
        )


# ---------------------------------------------------------------------- staging


MAX_BYTES: Final = "message.max.bytes"
MAX_RECORD_BYTES: Final = 1_000_000


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
        self._producer = RecordProducer(properties, self._where, transactional__id=transactional_id)
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
            except ExternalError:
                # Records that the client has only dropped say nothing of what has ended the
                # transaction. This raises it, if there is anything.
                self._add_marker(what, place)
                raise
            self._add_marker(what, place)
            self._within(what, lambda: self._producer.client.commit_transaction(timeout_s))
        self.marker = after

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
