"""Staged records: they are part of a checkpoint until it is complete; then their committer writes them to the broker.

Source: replaces Flink's KafkaCommitter and PulsarCommitter, with which a transaction stays open in the broker
meanwhile.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.connectors.api.base import Committer
from penstock.engine.model.errors import ExternalError, RefusedForGood
from penstock.engine.runtime.elements import NO_TIMESTAMP, Batch, Int64s
from penstock.engine.runtime.sink import SendFigures

# ---------------------------------------------------------------------- staging


PIECE_BYTES: Final = 4 << 20
FRAME_BYTES: Final = 64
"""An upper bound of the frame around a record's key and value, which clients count too."""

MAX_RETRIES: Final = 3
_SCHEMA: Final = pa.schema([
    ("topic", pa.dictionary(pa.int32(), pa.string())),
    ("key", pa.large_binary()),
    ("value", pa.large_binary()),
    ("timestamp", pa.int64()),
])


_HEADERS: Final = pa.list_(
    pa.struct([pa.field("name", pa.string(), nullable=False), ("value", pa.large_binary())])
)
_WITH_HEADERS: Final = _SCHEMA.append(pa.field("headers", _HEADERS))

Headers: TypeAlias = "Sequence[tuple[str, bytes | None]]"
"""Of one record, in order."""


@dataclass(frozen=True, slots=True)
class ProducedRecords:
    """Columns of equal length; `keys`, `timestamps` and `headers` None: no record has one."""

    topics: Sequence[str]
    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    timestamps: Int64s | None
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def total_bytes(self) -> int:
        """The bytes of all keys, values and headers."""
        return sum(self.sizes())

    def sizes(self) -> list[int]:
        """The bytes of key, value and headers of each record."""
        sizes = [0 if value is None else len(value) for value in self.values]
        if self.keys is not None:
            sizes = list(map(add, sizes, [0 if key is None else len(key) for key in self.keys]))
        if self.headers is not None:
            sizes = list(map(add, sizes, map(_bytes_of, self.headers)))
        return sizes


def checked_sizes(records: ProducedRecords, max_bytes: int, limit: str) -> list[int]:
    """The bytes of each record, without a frame.

    `limit`: ends the error of a record that is too large: who sets the limit, and what to do. Raises: ValueError.
    """
    sizes = records.sizes()
    largest = max(sizes, default=0)
    if largest + FRAME_BYTES > max_bytes:
        raise ValueError(
            f"a record for the topic {records.topics[sizes.index(largest)]!r} has "
            f"{largest + FRAME_BYTES} bytes with its frame. {limit}"
        )
    return sizes


class StagedRecords:
    """Staged records in memory; from `PIECE_BYTES` on they are packed.

    A record larger than `max_bytes` is refused here. In a checkpoint it would fail each commit and each restart.
    """

    def __init__(self, max_bytes: int, limit: str) -> None:
        """`limit`: as `checked_sizes` has it."""
        self._max_bytes = max_bytes
        self._limit = limit
        self._loose: list[ProducedRecords] = []
        self._loose_bytes = 0
        self._pieces: list[bytes] = []
        self.bytes = 0
        """Of all records that were staged."""
        self.first_topic: str | None = None

    def add(self, records: ProducedRecords) -> None:
        """Stages the records. Raises: ValueError: one is too large; then none of them is staged."""
        if not len(records):
            return
        sizes = self.checked(records)
        if self.first_topic is None:
            self.first_topic = records.topics[0]
        self._loose.append(records)
        self._loose_bytes += sum(sizes)
        self.bytes += sum(sizes)
        if self._loose_bytes >= PIECE_BYTES:
            self._pack()

    def checked(self, records: ProducedRecords) -> list[int]:
        """The bytes of each record. Raises: ValueError: one is too large."""
        return checked_sizes(records, self._max_bytes, self._limit)

    def take(self) -> tuple[bytes, ...]:
        """Takes all staged records, in order."""
        self._pack()
        pieces, self._pieces = tuple(self._pieces), []
        return pieces

    def _pack(self) -> None:
        if self._loose:
            self._pieces.append(pack(self._loose))
            self._loose, self._loose_bytes = [], 0


def pack(parts: Sequence[ProducedRecords]) -> bytes:
    """The records as compressed bytes."""
    has_headers = any(part.headers is not None for part in parts)
    schema = _WITH_HEADERS if has_headers else _SCHEMA
    batches = [_columns(part, schema) for part in parts]
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, schema, options=options) as stream:
        stream.write_table(
            pa.Table.from_batches(batches, schema).unify_dictionaries().combine_chunks()
        )
    return sink.getvalue()


def unpack(piece: bytes) -> Iterable[ProducedRecords]:
    """The records that were given to `pack`."""
    for batch in pa.ipc.open_stream(piece):
        stamps = batch.column("timestamp")
        has_headers = "headers" in batch.schema.names
        yield ProducedRecords(
            batch.column("topic").to_pylist(),
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            stamps.to_numpy(zero_copy_only=False),
            [_pairs(found) for found in batch.column("headers").to_pylist()]
            if has_headers
            else None,
        )


def _pairs(headers: list[dict[str, Any]] | None) -> Headers:
    return [(header["name"], header["value"]) for header in headers or ()]


def _bytes_of(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def _columns(part: ProducedRecords, schema: pa.Schema) -> pa.RecordBatch:
    count = len(part)
    stamps = np.full(count, NO_TIMESTAMP) if part.timestamps is None else part.timestamps
    keys = pa.nulls(count, pa.large_binary()) if part.keys is None else part.keys
    topics = pa.array(part.topics, pa.string()).dictionary_encode()
    arrays = [topics, pa.array(keys, pa.large_binary()), pa.array(part.values, pa.large_binary())]
    arrays.append(pa.array(stamps, pa.int64()))
    if schema is _WITH_HEADERS:
        found = [()] * count if part.headers is None else part.headers
        rows = [[{"name": name, "value": value} for name, value in one] for one in found]
        arrays.append(pa.array(rows, _HEADERS))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class StagingLog(Protocol):
    """Writes stagings into a broker, each exactly once, also if another process has tried before."""

    def write(self, staging: Any) -> None:
        """Writes the staging, unless it is written already.

        Raises: ExternalError: it is not known whether it was written; the log must not be used any more.
        """

    def close(self) -> None: ...


class StagingCommitter(Committer):
    """Commits stagings, and keeps the log that it used last.

    A commit that fails is retried a few times later, each time with a new log. `staging`: the class of what a writer of `sink_name`
    prepares.
    """

    staging: ClassVar[Any]
    sink_name: ClassVar[str]

    def __init__(self) -> None:
        self._log: tuple[Hashable, StagingLog] | None = None
        self._failures = 0

    @abstractmethod
    def log_key(self, staging: Any) -> Hashable:
        """The key of a log: stagings with the same key are written by the same log."""

    @abstractmethod
    def open_log(self, staging: Any) -> StagingLog:
        """Opens a log. Raises: ExternalError."""

    def commit(self, committables: Sequence[object]) -> Sequence[object] | None:
        for place, committable in enumerate(committables):
            staging = self._staging_of(committable)
            try:
                self._log_of(staging).write(staging)
            except ExternalError as error:
                self._drop_log()
                if self._failures >= MAX_RETRIES or isinstance(error, RefusedForGood):
                    raise
                self._failures += 1
                return committables[place:]
            self._failures = 0
        return None

    def abort(self, job_prefix: str) -> None:
        """Only closes the log: records that are not committed were never written."""
        self._drop_log()

    def close(self) -> None:
        self._drop_log()

    def _staging_of(self, committable: object) -> Any:
        """The staging that the writer prepared. Raises: TypeError: the committable is something else."""
        fields = self.staging._fields
        if isinstance(committable, tuple | list) and len(committable) == len(fields):
            return self.staging(*committable)
        raise TypeError(
            f"a {self.sink_name} commits ({', '.join(fields)}), got {type(committable).__name__}"
        )

    def _log_of(self, staging: Any) -> StagingLog:
        key = self.log_key(staging)
        if self._log is None or self._log[0] != key:
            self._drop_log()
            self._log = key, self.open_log(staging)
        return self._log[1]

    def _drop_log(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log[1].close()


# ---------------------------------------------------------------------- writers
# Writers of sinks that send records to a broker: at once, or after their checkpoint.
#
# Source: Flink KafkaWriter, ExactlyOnceKafkaWriter, PulsarWriter; differs: exactly-once records
# wait in the checkpoint.


class DirectMessageWriter(ABC):
    """Sends as records come; all are delivered before the task forwards a checkpoint's barrier."""

    def __init__(self) -> None:
        self.sent = SendFigures()

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.convert(batch), watermark_ms)

    @abstractmethod
    def convert(self, batch: Batch) -> ProducedRecords:
        """The records to send. Raises what a record is refused with."""

    @abstractmethod
    def write_converted(self, converted: ProducedRecords, watermark_ms: int) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Waits until all sent records are delivered. Raises: ExternalError."""

    def prepare_commit(self) -> Sequence[object]:
        """Called at the end of the job."""
        self.flush()
        return ()

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        self.flush()
        return ()


class StagingMessageWriter(ABC):
    """Keeps records until their checkpoint; a committer writes them when it is complete."""

    def __init__(self, staged: StagedRecords) -> None:
        self._staged = staged
        self._number = 0
        self.sent = SendFigures()

    @abstractmethod
    def records(self, batch: Batch) -> ProducedRecords: ...

    @abstractmethod
    def committable(self, number: int, pieces: tuple[bytes, ...]) -> object:
        """What the committer gets. `number`: counts this writer's stagings, from 1."""

    def close(self) -> None:
        """Nothing to do: what is staged exists only in this process."""

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.records(batch), watermark_ms)

    def convert(self, batch: Batch) -> ProducedRecords:
        """Raises: whatever a record is refused with, also that it is too large: then the policy for errors has it."""
        records = self.records(batch)
        self._staged.checked(records)
        return records

    def write_converted(self, converted: ProducedRecords, watermark_ms: int) -> None:
        self._staged.add(converted)
        self.sent.bytes = self._staged.bytes

    def prepare_commit(self) -> Sequence[object]:
        """At most one committable, so that its records are written together."""
        pieces = self._staged.take()
        if not pieces:
            return ()
        self._number += 1
        return (self.committable(self._number, pieces),)
