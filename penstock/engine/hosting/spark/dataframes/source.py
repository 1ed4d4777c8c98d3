"""A DataFrame as a source, as tasks see it. Knows nothing of Spark, so that a TaskManager need not
load it.

In a streaming job, a split is a partition and the position reached in it: a count of batches and
their checksum. In a BATCH job, the stage itself reads the partitions, and a subtask has one split:
the messages of its Spark task.

The format in which Spark gives a DataFrame's partition: Arrow messages without schema, one
record batch each.

Source: Spark ArrowConverters.toBatchIterator.
"""

from __future__ import annotations

import socket
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.spark.dataframes.feed_reader import (
    FeedFailed,
    FeedPlace,
    FeedStream,
    Position,
)
from penstock.engine.hosting.spark.dataframes.spool import SpoolFile, SpoolStream
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.types import RowTypeInfo
from penstock.engine.runtime.codecs.convert import arrow_schema
from penstock.engine.runtime.codecs.time_columns import epoch_ms
from penstock.engine.runtime.elements import ColumnBatch, Int64s
from penstock.engine.runtime.sources.contract import (
    Boundedness,
    EnumeratorContext,
    Fetched,
    Polled,
    ReaderContext,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
    SplitReader,
)
from penstock.engine.runtime.sources.reader_base import QueueEnumerator, SourceReaderBase


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """`has_large_types`: Spark writes strings and bytes with 64 bit offsets. `timestamp_column`:
    the column with the records' time; None: they have no time.
    """

    type_info: RowTypeInfo
    has_large_types: bool = False
    timestamp_column: str | None = None


class MessageDecoder:
    """Decodes messages of one DataFrame to batches."""

    def __init__(self, form: FrameFormat) -> None:
        self._wanted = arrow_schema(form.type_info)
        self._written = _large(self._wanted) if form.has_large_types else self._wanted
        self._column = form.timestamp_column

    def batch(self, message: bytes | bytearray) -> ColumnBatch:
        """Raises: ValueError: a record has no time."""
        data = pa.ipc.read_record_batch(pa.py_buffer(message), self._written)
        if self._written is not self._wanted:
            data = data.cast(self._wanted)
        stamps = None if self._column is None else _epoch_ms(data, self._column)
        return ColumnBatch(data, stamps)


def _epoch_ms(data: pa.RecordBatch, name: str) -> Int64s:
    column = data.column(name)
    if column.null_count:
        row = pc.index(column.is_null(), value=True).as_py()
        record = data.slice(row, 1).to_pylist()[0]
        raise ValueError(
            f"the timestamp column {name!r} is NULL in {record}, but every record needs a "
            "time. Filter out such rows, or give them a time with coalesce."
        )
    return epoch_ms(column)


def _large(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _large_type(field.type)) for field in schema])


def _large_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_map(kind):
        return pa.map_(_large_type(kind.key_type), _large_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_large_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _large_type(one.type)) for one in kind])
    return kind


_LOOK_MS: Final = 100


@dataclass(frozen=True, slots=True)
class FrameSplit:
    """`file`: where the partition is kept. None: Spark computes it directly for its reader."""

    partition: int
    position: Position = field(default_factory=Position)
    file: SpoolFile | None = None


class FrameRun(Protocol):
    """A DataFrame in one streaming job, on the driver."""

    def place_for_reader(self) -> FeedPlace | None:
        """Return where one reader gets feeds, with a ticket that is valid once; None: all partitions are in files."""

    def partitions(self) -> int | None:
        """Return the number of partitions; may take as long as Spark takes for the shuffles below the DataFrame.

        None: it is known when all of them are written to files.
        """

    @property
    def is_spooled(self) -> bool: ...

    def spool(self, partitions: Sequence[int]) -> None:
        """Have Spark write these partitions to files, unless it does already."""

    def spooled(self) -> dict[int, SpoolFile] | None:
        """Return the partitions that are written by now; None: their number is not known yet.

        Raises: ExternalError: Spark has given up.
        """


class Frame(Protocol):
    """A DataFrame on the driver. `run`: its run in the streaming job that is being started, or None."""

    run: FrameRun | None

    def messages_of(self, subtasks: int) -> Any:
        """Return an RDD of Arrow messages with a partition for each of `subtasks`."""

    def collected(self, subtasks: int, subtask: int) -> list[bytes]:
        """Return the messages of one subtask, in this process."""


class FrameSource(Source):
    """The source that `env.from_spark` makes. It is pickled without its DataFrame, which stays on the driver."""

    def __init__(self, frame: Frame, form: FrameFormat) -> None:
        self.frame: Frame | None = frame
        self.form = form

    def __getstate__(self) -> dict[str, Any]:
        return {"frame": None, "form": self.form}

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> RowTypeInfo:
        return self.form.type_info

    def in_batch(self) -> FrameSource:
        return StageFrameSource(self.frame, self.form) if self.frame is not None else self

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        run = None if self.frame is None else self.frame.run
        if run is None:
            raise ConfigurationError(
                "a job that reads a DataFrame needs the program that makes the DataFrame to "
                "continue: run that program again with the same "
                "high-availability.cluster-id, instead of `penstock recover`."
            )
        return FrameEnumerator(context, run)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return FrameReader(context, self.form)


class StageFrameSource(FrameSource):
    """The source in a BATCH job."""

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return StageReader(self.form)


class FrameEnumerator(QueueEnumerator):
    """Gives out one partition per request, once Spark has it. A new reader first gets the address of feeds."""

    def __init__(self, context: EnumeratorContext, run: FrameRun) -> None:
        super().__init__(context, (), is_final=False)
        self._run = run
        self._missing: set[int] | None = None
        self._is_spooling = False

    def start(self) -> None:
        is_new = self._missing is None
        if self._missing is None:
            partitions = self._run.partitions()
            if partitions is None:
                return
            self._missing = set(range(partitions))
        if is_new and not self._run.is_spooled:
            self._splits.extend(FrameSplit(one) for one in sorted(self._missing))
            self._missing = set()
        self._is_final = not self._missing

    def add_reader(self, subtask: int) -> None:
        """Register a reader. Files are written only from the first reader on: before, Spark's cores
        are for the TaskManagers.
        """
        place = self._run.place_for_reader()
        if place is not None:
            self._context.assign_splits(subtask, [place])
        if self._missing != set() and not self._is_spooling:
            self._is_spooling = True
            self._run.spool(sorted(self._missing or ()))
            self._context.call_periodically(_LOOK_MS, self._look)
            self._look()

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        super().add_splits_back([one for one in splits if isinstance(one, FrameSplit)], subtask)

    def snapshot_state(self) -> Any:
        missing = None if self._missing is None else sorted(self._missing)
        return missing, super().snapshot_state()

    def restore_state(self, state: Any) -> None:
        missing, splits = state
        self._missing = None if missing is None else set(missing)
        super().restore_state(splits)

    def _look(self) -> None:
        spooled = None if self._missing == set() else self._run.spooled()
        if spooled is None:
            return
        if self._missing is None:
            self._missing = set(spooled)
        there = {p: file for p, file in spooled.items() if p in self._missing}
        self._missing -= there.keys()
        self.add(FrameSplit(partition, file=file) for partition, file in there.items())
        if not self._missing:
            self._is_final = True
            waiting, self._waiting = self._waiting, {}
            for subtask, host in waiting.items():
                self.handle_split_request(subtask, host)


class FrameReader(SourceReaderBase):
    """Reads one partition after the other."""

    def __init__(self, context: ReaderContext, form: FrameFormat) -> None:
        super().__init__(context)
        self._form = form
        self._place: FeedPlace | None = None
        self._early: list[FrameSplit] = []

    def create_split_reader(self) -> SplitReader:
        return FrameSplitReader(self._form, self._place)

    def add_splits(self, splits: Sequence[Any]) -> None:
        """Take splits. Restored splits that no file has wait until the driver has said where to get feeds."""
        for one in splits:
            if isinstance(one, FeedPlace):
                self._place = one
            else:
                self._early.append(one)
        self._open.update((one.partition, one) for one in self._early)
        if self._early and (self._place is not None or all(one.file for one in self._early)):
            waiting, self._early = self._early, []
            super().add_splits(waiting)

    def split_ids(self, splits: Sequence[Any]) -> Sequence[Any]:
        """Return nothing: splits are read one after the other."""
        return ()

    def split_id(self, split: Any) -> Hashable:
        return int(split.partition)


class FrameSplitReader(SplitReader):
    """Reads splits on the fetcher's thread."""

    def __init__(self, form: FrameFormat, place: FeedPlace | None) -> None:
        """`place`: None: all splits are in files."""
        self._decoder = MessageDecoder(form)
        self._place = place
        self._credentials: Credentials | None = None
        self._splits: list[FrameSplit] = []
        self._stream: FeedStream | SpoolStream | None = None
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._splits.extend(splits)

    def fetch(self) -> Fetched:
        split = self._splits[0]
        if self._stream is None:
            self._stream = self._opened(split)
        message = self._stream.next()
        if message is not None:
            batch = self._decoder.batch(message)
            moved = replace(split, position=self._stream.position)
            return Fetched([SplitBatch(batch, split.partition, moved)])
        self._forget_wakes()
        if not self._stream.is_over:
            return Fetched()
        self._stream.close()
        self._stream = None
        self._splits.pop(0)
        return Fetched(finished=[split.partition])

    def wake_up(self) -> None:
        try:
            self._waker.send(b"x")
        except OSError:  # Either the socket is full, and so wakes as well, or it is closed.
            return

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._woken.close()
        self._waker.close()

    def _opened(self, split: FrameSplit) -> FeedStream | SpoolStream:
        if split.file is not None:
            return SpoolStream(split.file, split.position)
        assert self._place is not None
        try:
            if self._credentials is None:
                self._credentials = self._place.registered()
            return FeedStream(
                self._place, self._credentials, split.partition, split.position, self._woken
            )
        except OSError as error:
            raise FeedFailed(
                f"the driver cannot be reached at {self._place.host}:{self._place.port} for partition {split.partition} of "
                f"the DataFrame: {error}"
            ) from error

    def _forget_wakes(self) -> None:
        try:
            while self._woken.recv(64):
                pass
        except OSError:  # No more wakes are waiting.
            return


class StageReader(SourceReader):
    """Reads the messages of its Spark task. It blocks while Spark computes the next message."""

    def __init__(self, form: FrameFormat) -> None:
        self._decoder = MessageDecoder(form)
        self._messages: Iterator[bytes] | None = None

    def add_splits(self, splits: Sequence[Any]) -> None:
        (self._messages,) = splits

    def notify_no_more_splits(self) -> None:
        """Does nothing: there is exactly one split."""

    def poll_next(self) -> Polled:
        if self._messages is None:
            return ReaderStatus.NOTHING_AVAILABLE
        message = next(self._messages, None)
        if message is None:
            return ReaderStatus.END_OF_INPUT
        return SplitBatch(self._decoder.batch(message))
