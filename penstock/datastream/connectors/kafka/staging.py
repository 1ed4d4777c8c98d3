"""Records of a checkpoint, staged in the checkpoint, and written to Kafka in one transaction when it is complete.

A producer's transaction cannot be taken over by another process through librdkafka. So a subtask keeps the records of a
checkpoint until that is complete; then its committer writes them in a transaction, and with them a marker: an offset that
is committed in the same transaction, to a group of its own, which says how many of this writer's stagings are written. Whoever
commits the same staging again, in any process, first becomes the only one who can write under the writer's transactional id
(Kafka ends or aborts what others began with it), reads the marker, and leaves out what is written.
Source: Flink KafkaCommitter, in its place; Kafka's consume-transform-produce transactions.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.datastream.connectors.base import Committer
from penstock.datastream.connectors.kafka.client import (
    API_TIMEOUT_DEFAULT_MS,
    import_kafka,
    kafka_errors,
    make_consumer,
)
from penstock.datastream.connectors.kafka.producing import RecordProducer
from penstock.datastream.connectors.kafka.properties import API_TIMEOUT_MS, GROUP_ID, int_of
from penstock.datastream.connectors.kafka.serialization import ProducedRecords
from penstock.model.errors import ExternalError
from penstock.runtime.elements import NO_TIMESTAMP

PIECE_BYTES: Final = 4 << 20
MAX_BYTES: Final = "message.max.bytes"
MAX_RECORD_BYTES: Final = 1_000_000
FRAME_BYTES: Final = 64
"""More than what is around a record's key and value; the client counts that too."""

MAX_RETRIES: Final = 3
_FOR_BOTH: Final = (
    "bootstrap.", "security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.", "client.id", API_TIMEOUT_MS,
)  # fmt: skip
_SCHEMA: Final = pa.schema([
    ("topic", pa.dictionary(pa.int32(), pa.string())),
    ("key", pa.large_binary()),
    ("value", pa.large_binary()),
    ("timestamp", pa.int64()),
])


@dataclass(frozen=True, slots=True)
class Staging:
    """What one writer wrote for one checkpoint. `writer`: unique; `number`: counts its stagings from 1, without gaps.

    `marker_topic`: the first topic that the writer wrote to; the marker is an offset of its partition 0. `pieces`: packed records.
    """

    writer: str
    marker_topic: str
    number: int
    pieces: tuple[bytes, ...]


class StagedRecords:
    """Records in memory, packed from `PIECE_BYTES` on.

    One that is larger than `max_bytes` is refused here: in a checkpoint it would fail each commit, and each restart.
    """

    def __init__(self, max_bytes: int = MAX_RECORD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._loose: list[ProducedRecords] = []
        self._loose_bytes = 0
        self._pieces: list[bytes] = []
        self.first_topic: str | None = None

    def add(self, records: ProducedRecords) -> None:
        """Raises: ValueError: one is too large; nothing of `records` is taken then."""
        if not len(records):
            return
        sizes = records.sizes()
        largest = max(sizes) + FRAME_BYTES
        if largest > self._max_bytes:
            raise ValueError(
                f"a record for the topic {records.topics[sizes.index(max(sizes))]!r} has {largest} bytes with its frame, and Kafka's client sends "
                f"at most {self._max_bytes}: set the property {MAX_BYTES!r} higher, here and at the brokers, or make smaller records"
            )
        if self.first_topic is None:
            self.first_topic = records.topics[0]
        self._loose.append(records)
        self._loose_bytes += sum(sizes)
        if self._loose_bytes >= PIECE_BYTES:
            self._pack()

    def take(self) -> tuple[bytes, ...]:
        """All of them, in order; none are left."""
        self._pack()
        pieces, self._pieces = tuple(self._pieces), []
        return pieces

    def _pack(self) -> None:
        if self._loose:
            self._pieces.append(pack(self._loose))
            self._loose, self._loose_bytes = [], 0


def pack(parts: Sequence[ProducedRecords]) -> bytes:
    """Compressed."""
    batches = [_columns(part) for part in parts]
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, _SCHEMA, options=options) as stream:
        stream.write_table(
            pa.Table.from_batches(batches, _SCHEMA).unify_dictionaries().combine_chunks()
        )
    return sink.getvalue()


def unpack(piece: bytes) -> Iterable[ProducedRecords]:
    """As `pack` was given them."""
    for batch in pa.ipc.open_stream(piece):
        stamps = batch.column("timestamp")
        yield ProducedRecords(
            batch.column("topic").to_pylist(),
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            stamps.to_numpy(zero_copy_only=False),
        )


def _columns(part: ProducedRecords) -> pa.RecordBatch:
    count = len(part)
    stamps = np.full(count, NO_TIMESTAMP) if part.timestamps is None else part.timestamps
    keys = pa.nulls(count, pa.large_binary()) if part.keys is None else part.keys
    topics = pa.array(part.topics, pa.string()).dictionary_encode()
    arrays = [topics, pa.array(keys, pa.large_binary()), pa.array(part.values, pa.large_binary())]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(stamps, pa.int64())], schema=_SCHEMA)


@dataclass(frozen=True, slots=True)
class Marker:
    """Which stagings of a writer are written: all up to `all_up_to`, and `besides`, which are above it."""

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
        """Text that an offset carries: numbers above it."""
        return ",".join(map(str, sorted(self.besides)))

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> Marker:
        """Below 0: there is none."""
        besides = frozenset(int(one) for one in (metadata or "").split(",") if one)
        return cls(max(0, offset), besides)


@dataclass(frozen=True, slots=True)
class CommitterSettings:
    """`name`: of the sink, for errors."""

    properties: Mapping[str, str]
    name: str = "KafkaSink"


class TransactionLog:
    """Writes stagings of one writer, each once. From its making on nobody else can, until another one is made."""

    def __init__(self, writer: str, topic: str, settings: CommitterSettings) -> None:
        """Raises: ExternalError: the cluster does not answer."""
        self._where = f"{settings.name}'s committer for the transactional id {writer!r}"
        self._kafka = import_kafka(self._where)
        self._topic = topic
        self._timeout_s = int_of(settings.properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
        self._producer = RecordProducer(settings.properties, self._where, transactional__id=writer)
        shared = {key: value for key, value in settings.properties.items() if _is_for_both(key)}
        consumer, self._last = make_consumer({**shared, GROUP_ID: writer}, self._where)
        self._consumer = consumer
        with kafka_errors(self._kafka, f"{self._where}: cannot begin", self._last):
            self._producer.client.init_transactions(self._timeout_s)
            place = self._kafka.TopicPartition(topic, 0)
            (found,) = consumer.committed([place], timeout=self._timeout_s)
        self.marker = Marker.of(found.offset, found.metadata)

    def write(self, staging: Staging) -> None:
        """Nothing if it is written. After an error this log is of no use: it is not known what has become of it.

        Raises: ExternalError.
        """
        if staging.number in self.marker:
            return
        after = self.marker.plus(staging.number)
        client = self._producer.client
        what = f"{self._where}: cannot commit {staging.number}"
        with kafka_errors(self._kafka, what, self._last):
            client.begin_transaction()
            for piece in staging.pieces:
                for records in unpack(piece):
                    self._producer.send(records)
            self._producer.flush()
            place = self._kafka.TopicPartition(self._topic, 0, after.all_up_to, after.metadata)
            group = self._consumer.consumer_group_metadata()
            client.send_offsets_to_transaction([place], group, self._timeout_s)
            client.commit_transaction(self._timeout_s)
        self.marker = after

    def close(self) -> None:
        self._producer.drop()
        self._consumer.close()


def _is_for_both(key: str) -> bool:
    """How to reach a cluster; what is for producers alone a consumer does not take."""
    return key.startswith(_FOR_BOTH)


class KafkaCommitter(Committer):
    """Keeps the log that it used last. What fails for now is put off a few times, each time with a log made anew."""

    def __init__(self, settings: CommitterSettings) -> None:
        self._settings = settings
        self._log: tuple[str, TransactionLog] | None = None
        self._failures = 0

    def commit(self, committables: Sequence[object]) -> Sequence[object] | None:
        for place, committable in enumerate(committables):
            staging = _staging(committable)
            try:
                self._log_of(staging).write(staging)
            except ExternalError:
                self._drop_log()
                if self._failures >= MAX_RETRIES:
                    raise
                self._failures += 1
                return committables[place:]
            self._failures = 0
        return None

    def abort(self, job_prefix: str) -> None:
        """Nothing was left behind: what is not committed was never written."""
        self._drop_log()

    def close(self) -> None:
        self._drop_log()

    def _log_of(self, staging: Staging) -> TransactionLog:
        if self._log is None or self._log[0] != staging.writer:
            self._drop_log()
            made = TransactionLog(staging.writer, staging.marker_topic, self._settings)
            self._log = staging.writer, made
        return self._log[1]

    def _drop_log(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log[1].close()


def _staging(committable: object) -> Staging:
    if isinstance(committable, tuple | list) and len(committable) == 4:
        writer, topic, number, pieces = committable
        return Staging(str(writer), str(topic), int(number), tuple(pieces))
    raise TypeError(
        f"a KafkaSink commits (writer, topic, number, pieces), got {type(committable).__name__}"
    )
