"""Staged records: they wait in the checkpoint, and are written to Kafka in one transaction when it is complete.

With librdkafka another process cannot take over a producer's transaction. So a subtask keeps the records of a
checkpoint until the checkpoint is complete. Then its committer writes them in a transaction, together with a marker.
The marker is an offset that is committed in the same transaction to a group of its own, and says how many of this
writer's stagings are written. A process that commits the same staging again first becomes the only one that can write
under the writer's transactional id (Kafka ends or aborts transactions that others began with it). Then it reads the
marker, and leaves out the stagings that are written.
Source: replaces Flink's KafkaCommitter; Kafka's consume-transform-produce transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from penstock.connectors.api.messaging.properties import int_of
from penstock.connectors.api.messaging.staging import StagingCommitter, unpack
from penstock.connectors.kafka.client import (
    API_TIMEOUT_DEFAULT_MS,
    GRACE_S,
    import_kafka,
    kafka_errors,
    make_consumer,
)
from penstock.connectors.kafka.producing import RecordProducer
from penstock.connectors.kafka.properties import API_TIMEOUT_MS, GROUP_ID, shared_properties
from penstock.engine.hosting.os.clock import within

MAX_BYTES: Final = "message.max.bytes"
MAX_RECORD_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class KafkaStaging:
    """The records of one writer for one checkpoint. `writer`: unique; `number`: counts its stagings from 1, without
    gaps.

    `marker_topic`: the first topic that the writer wrote to; the marker is an offset of its partition 0. `pieces`:
    packed records.
    """

    writer: str
    marker_topic: str
    number: int
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Marker:
    """Tells which stagings of a writer are written: all up to `all_up_to`, and those in `besides`, which are higher."""

    all_up_to: int = 0
    besides: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number <= self.all_up_to or number in self.besides

    def plus(self, number: int) -> Marker:
        found = {*self.besides, number}
        up_to = self.all_up_to
        while up_to + 1 in found:
            up_to += 1
        return Marker(up_to, frozenset(one for one in found if one > up_to))

    @property
    def metadata(self) -> str:
        """The text that is stored with the offset: the numbers in `besides`."""
        return ",".join(map(str, sorted(self.besides)))

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> Marker:
        """The marker of a committed offset. An offset below 0 means that there is no marker yet."""
        besides = frozenset(int(one) for one in (metadata or "").split(",") if one)
        return cls(max(0, offset), besides)


@dataclass(frozen=True, slots=True)
class KafkaCommitterSettings:
    """`name`: the sink's name, for errors."""

    properties: Mapping[str, str]
    name: str = "KafkaSink"


class TransactionLog:
    """Writes the stagings of one writer, each once. A new log excludes all earlier ones from writing."""

    def __init__(self, writer: str, topic: str, settings: KafkaCommitterSettings) -> None:
        """Raises: ExternalError: the cluster does not answer."""
        self._where = f"{settings.name}'s committer for the transactional id {writer!r}"
        self._kafka = import_kafka(self._where)
        self._topic = topic
        self._timeout_s = int_of(settings.properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
        self._producer = RecordProducer(settings.properties, self._where, transactional__id=writer)
        shared = shared_properties(settings.properties)
        self._consumer, _ = make_consumer({**shared, GROUP_ID: writer}, self._where)
        try:
            self.marker = self._begin()
        except (
            BaseException
        ):  # Otherwise the producer goes on trying, and would fence off the next one.
            self.close()
            raise

    def _begin(self) -> Marker:
        """Fences off all other producers, then reads which stagings are written."""
        what, timeout_s = "cannot begin", self._timeout_s
        place = self._kafka.TopicPartition(self._topic, 0)
        with self._errors(what):
            self._within(what, lambda: self._producer.client.init_transactions(timeout_s))
            (found,) = self._within(
                what, lambda: self._consumer.committed([place], timeout=timeout_s)
            )
        return Marker.of(found.offset, found.metadata)

    def write(self, staging: KafkaStaging) -> None:
        """Writes the staging, unless it is written already. Raises: ExternalError.

        After an error the log must not be used any more: it is not known whether the staging was written.
        """
        if staging.number in self.marker:
            return
        after = self.marker.plus(staging.number)
        place = self._kafka.TopicPartition(self._topic, 0, after.all_up_to, after.metadata)
        what, timeout_s = f"cannot commit staging {staging.number}", self._timeout_s
        with self._errors(what):
            self._producer.client.begin_transaction()
            for piece in staging.pieces:
                for records in unpack(piece):
                    self._producer.send(records)
            self._producer.flush()
            group = self._consumer.consumer_group_metadata()
            self._within(
                what,
                lambda: self._producer.client.send_offsets_to_transaction(
                    [place], group, timeout_s
                ),
            )
            self._within(what, lambda: self._producer.client.commit_transaction(timeout_s))
        self.marker = after

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
    """Commits stagings, with one log for each writer."""

    def __init__(self, settings: KafkaCommitterSettings) -> None:
        super().__init__()
        self._settings = settings

    def staging_of(self, committable: object) -> KafkaStaging:
        return _staging(committable)

    def log_key(self, staging: KafkaStaging) -> str:
        return staging.writer

    def open_log(self, staging: KafkaStaging) -> TransactionLog:
        return TransactionLog(staging.writer, staging.marker_topic, self._settings)


def _staging(committable: object) -> KafkaStaging:
    if isinstance(committable, tuple | list) and len(committable) == 4:
        writer, topic, number, pieces = committable
        return KafkaStaging(str(writer), str(topic), int(number), tuple(pieces))
    raise TypeError(
        f"a KafkaSink commits (writer, topic, number, pieces), got {type(committable).__name__}"
    )
