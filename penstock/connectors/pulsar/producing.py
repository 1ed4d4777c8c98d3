"""Pulsar producers as sinks use them: send batches of records, and report failed deliveries. Needs pulsar-client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from time import monotonic, time
from typing import Any

from penstock.connectors.api.messaging.properties import int_of
from penstock.connectors.api.messaging.staging import ProducedRecords
from penstock.connectors.pulsar.client import (
    close_client,
    import_pulsar,
    make_client,
    pulsar_errors,
    text_of,
)
from penstock.connectors.pulsar.options import (
    PRODUCER,
    PROPERTIES,
    REFRESH_INTERVAL_DEFAULT_MS,
    REFRESH_INTERVAL_MS,
    SEND_TIMEOUT_DEFAULT_MS,
    SEND_TIMEOUT_MS,
    SERVICE_URL,
    Options,
    arguments_of,
    operation_timeout_s,
    properties_of,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError


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
                what = f"{self._where}: cannot look up the topic {topic!r} at {self._options[SERVICE_URL]}"
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
