"""Staged messages: they wait in the checkpoint, and are sent when it is complete; the broker drops duplicates.

The Python client has no transactions. So a subtask keeps the messages of a checkpoint until the checkpoint is complete.
Then its committer sends them under a producer name that belongs to this staging alone. It numbers them from 1 in each
partition, in batches whose boundaries depend on the messages alone. Any process that commits the same staging again
sends the same batches, and the broker drops every batch whose number it has seen under this name. Whether the broker
does that is checked when a partition is written for the first time.
Source: replaces Flink's PulsarCommitter; Pulsar's message deduplication (producer name and sequence id).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from penstock.connectors.api.messaging.staging import ProducedRecords, StagingCommitter, unpack
from penstock.connectors.pulsar.producing import RecordProducers
from penstock.engine.model.errors import ConfigurationError

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


@dataclass(frozen=True, slots=True)
class PulsarStaging:
    """The messages of one writer for one checkpoint. `producer`: a name that no other staging has. `pieces`: packed
    records.
    """

    producer: str
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PulsarCommitterSettings:
    """`delay_ms`: as in `RecordProducers`."""

    options: Mapping[str, str]
    delay_ms: int


@dataclass(slots=True)
class Chunk:
    """The messages of one partition that make a batch. `first`: the number of its first message."""

    topic: str
    first: int = 1
    values: list[bytes | None] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    size: int = 0

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

    def __init__(self, settings: PulsarCommitterSettings, where: str) -> None:
        """Raises: ConfigurationError: the client is missing, or refuses the options."""
        self._where = where
        self._producers = RecordProducers(settings.options, where, settings.delay_ms)
        self._deduplicating: set[str] = set()

    def write(self, staging: PulsarStaging) -> None:
        """Sends the staging. Raises: ExternalError; ConfigurationError: a broker does not deduplicate."""
        opened: set[str] = set()
        for chunk in chunks_of(staging):
            if chunk.topic not in opened:
                self._open(chunk.topic, staging.producer)
                opened.add(chunk.topic)
            self._producers.send(_records(chunk), chunk.first)
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
        """Checks that the broker deduplicates: it then tells a producer that reconnects the last number that it has."""
        self._producers.close_producer(topic)
        self._open(topic, name)
        if topic not in self._deduplicating:
            raise ConfigurationError(
                f"{self._where}: EXACTLY_ONCE needs message deduplication, which {topic} does not "
                "have. Switch it on for its namespace (pulsar-admin namespaces set-deduplication "
                "--enable) or for all (brokerDeduplicationEnabled=true), or use AT_LEAST_ONCE."
            )


def _records(chunk: Chunk) -> ProducedRecords:
    stamps = np.array(chunk.stamps, np.int64)
    return ProducedRecords([chunk.topic] * len(chunk.values), None, chunk.values, stamps)


class PulsarCommitter(StagingCommitter):
    """Commits stagings, with one log for all of them."""

    def __init__(self, settings: PulsarCommitterSettings) -> None:
        super().__init__()
        self._settings = settings

    def staging_of(self, committable: object) -> PulsarStaging:
        if isinstance(committable, tuple | list) and len(committable) == 2:
            producer, pieces = committable
            return PulsarStaging(str(producer), tuple(pieces))
        raise TypeError(
            f"a PulsarSink commits (producer, pieces), got {type(committable).__name__}"
        )

    def log_key(self, staging: PulsarStaging) -> None:
        return None

    def open_log(self, staging: PulsarStaging) -> DeduplicatedLog:
        return DeduplicatedLog(self._settings, "PulsarSink's committer")
