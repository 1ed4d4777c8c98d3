"""A Kafka producer as sinks use it: sends batches of records, and reports failed deliveries. Needs confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any, Final

from penstock.connectors.api.messaging.staging import ProducedRecords
from penstock.connectors.kafka.client import make_client, text_of
from penstock.engine.model.errors import ExternalError, RefusedForGood

WAIT_S: Final = 0.1


class RecordProducer:
    """Sends records in the background. A failed delivery is raised by the next call, or only printed if the sink wants
    so.

    If the producer may be fenced off, its delivery callback is a C function (`dict.setdefault`), not Python code.
    After a fatal error the client goes on calling back with that error pending. It leaks the exception that results
    from this in Python code, with all stack frames that the exception refers to.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        where: str,
        *,
        only_shows_failures: bool = False,
        **more: Any,
    ) -> None:
        """`more`: librdkafka properties, with __ for each dot."""
        self._where = where
        self._shows = only_shows_failures
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
            on_delivery=self._show if only_shows_failures else self._undelivered.setdefault,
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
        if self._undelivered:
            raise ExternalError(self._text_of(*next(iter(self._undelivered.items()))))

    def drop(self) -> None:
        """Ends the producer without waiting; records that were not sent are lost."""
        self._shows = False
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

    def _show(self, error: Any, message: Any) -> None:
        if self._shows:
            print(self._text_of(error, message))  # ruff: ignore[print] - what tasks print appears at the driver

    def _text_of(self, error: Any, message: Any) -> str:
        size = ""
        if error.name() == "MSG_SIZE_TOO_LARGE":
            size = (
                f" Its value has {len(message)} bytes. Brokers (message.max.bytes) or the topic "
                "(max.message.bytes) take less: set that higher, or message.max.bytes of the sink "
                "to the same, which then refuses such records one by one."
            )
        return (
            f"{self._where}: a record for the topic {message.topic()!r} was not delivered: {error.str()} ({error.name()})."
            f"{size}{self.last.reason()}"
        )
