"""A producer as sinks use it: records by the batch, and what became of them. Needs confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any, Final

from penstock.datastream.connectors.kafka.client import make_client, text_of
from penstock.datastream.connectors.messaging.staging import ProducedRecords
from penstock.model.errors import ExternalError

WAIT_S: Final = 0.1


class RecordProducer:
    """Sends in the background; a record that cannot be delivered is an error of the next call, or is shown, if only that is wished.

    What the client calls back is no code of ours where a producer may be fenced off: after a fatal error it goes on calling
    with that error pending, and forgets the exception which comes of it, with the whole stack of frames that it names.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        where: str,
        *,
        only_shows_failures: bool = False,
        **more: Any,
    ) -> None:
        """`more`: of librdkafka's, dots written as __."""
        self._where = where
        self._shows = only_shows_failures
        self._undelivered: dict[Any, Any] = {}
        """Error -> the first record that met it."""
        usual: dict[str, str] = {"partitioner": "murmur2_random"}  # as Java's producers choose
        if properties.get("acks", "all") in {"all", "-1"}:
            # What is sent again is neither written twice nor out of turn.
            usual["enable.idempotence"] = "true"
        self.client, self._last = make_client(
            "Producer",
            {**usual, **properties},
            where,
            delivery__report__only__error=True,
            on_delivery=self._show if only_shows_failures else self._undelivered.setdefault,
            **more,
        )

    def send(self, records: ProducedRecords) -> None:
        """Waits while the client's queue is full. Raises: ExternalError."""
        produce = self.client.produce
        stamps = repeat(0) if records.timestamps is None else records.timestamps.tolist()
        keys = repeat(None) if records.keys is None else records.keys
        rows = zip(records.topics, records.values, keys, stamps, strict=False)
        for topic, value, key, stamp in rows:
            # 0: now. Kafka has no times before 1970, and NO_TIMESTAMP is one.
            at_ms = max(0, stamp)
            try:
                produce(topic, value, key, timestamp=at_ms)
            except BufferError:
                self._produce_when_there_is_room(topic, value, key, at_ms)
            except Exception as error:  # the client's, of which there is no one base class
                raise ExternalError(
                    f"{self._where}: cannot write to the topic {topic!r}: {text_of(error)}"
                ) from error
        self.client.poll(0)
        self.check()

    def flush(self) -> None:
        """Until all is delivered. Raises: ExternalError: some is not; delivery.timeout.ms says how long it is tried."""
        while self._flush():
            self.check()
        self.check()

    def _flush(self) -> int:
        """How many are still on their way."""
        try:
            return int(self.client.flush(1))
        except SystemError as error:  # the client's only way to say that it was fenced off
            raise ExternalError(
                f"{self._where}: the client has ended.{self._last.reason()}"
            ) from error

    def check(self) -> None:
        """Raises: ExternalError: a record was not delivered; this producer is of no use then."""
        if self._undelivered:
            raise ExternalError(self._text_of(*next(iter(self._undelivered.items()))))

    def drop(self) -> None:
        """Without waiting for anything; what was not sent is forgotten."""
        self._shows = False
        client = self.client
        self.client = None  # it ends with the last who has it
        if client is not None:
            client.purge()
            client.poll(0)

    def _produce_when_there_is_room(
        self, topic: str, value: bytes | None, key: bytes | None, at_ms: int
    ) -> None:
        while True:
            self.client.poll(WAIT_S)
            self.check()
            try:
                self.client.produce(topic, value, key, timestamp=at_ms)
            except BufferError:
                continue
            return

    def _show(self, error: Any, message: Any) -> None:
        if self._shows:
            print(self._text_of(error, message))  # ruff: ignore[print] - what tasks print appears at the driver

    def _text_of(self, error: Any, message: Any) -> str:
        return (
            f"{self._where}: a record for the topic {message.topic()!r} was not delivered: {error.str()} ({error.name()})."
            f"{self._last.reason()}"
        )
