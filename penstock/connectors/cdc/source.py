"""CdcSource: what sources of changes share. A subclass looks at its database, and gives its sides of driver and readers.

Source: Flink CDC's IncrementalSource.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Batch,
    Boundedness,
    CommittingReader,
    CommittingSplitReader,
    EnumeratorContext,
    Fetched,
    ReaderContext,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
    taken_up_to,
)
from penstock.connectors.cdc.options import CdcSettings, ChangelogMode
from penstock.connectors.cdc.records import (
    DEBEZIUM,
    METADATA_COLUMNS,
    NOTHING,
    Change,
    DebeziumMaker,
    RecordMaker,
    RowMaker,
    SeenChanges,
    TableReading,
)
from penstock.connectors.cdc.tables import (
    STREAM,
    Piece,
    SnapshotSplit,
    StreamSplit,
    TableId,
    TableShape,
    View,
    common_row_type,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError

# ---------------------------------------------------------------------- database
# What a change source needs of a database: where the stream begins, ranges of tables, their rows, and the changes.


class Begin(NamedTuple):
    """Where the stream begins. `horizon`: what readers of ranges need to know; None: there is no snapshot."""

    position: Any
    has_snapshot: bool
    horizon: Any = None


class DriverSide(ABC):
    """The driver's connection. `shapes`: of the tables."""

    def __init__(self, settings: Any, shapes: Sequence[TableShape], where: str) -> None:
        self.settings = settings
        self._shapes = {shape.table: shape for shape in shapes}
        self._where = where
        self._open: Any = None

    @abstractmethod
    def begin(self) -> Begin:
        """Return where a new job begins. What the job needs later is made, or kept, by the database from here on."""

    @abstractmethod
    def next_bound(self, table: TableId, low: Any, rows: int) -> Any:
        """Return the first part of the key that lies about `rows` rows after `low`; None: the range
        is the last one.

        `low`: None: of the whole table.
        """

    def close(self) -> None:
        """Release the connection."""


class ChangeStream(ABC):
    """Reads changes on the fetcher's thread."""

    def __init__(self, reading: TableReading, reader: Any, position: Any) -> None:
        self.settings = reading.settings
        self._reader = reader
        self._maker = reading.maker
        self._where = reading.where
        self._position = self._reported = position

    def poll(self) -> tuple[Batch, StreamSplit] | None:
        """Return records, and the split after them; None: none for now. An empty batch only moves
        the position.

        It waits for up to about 0.1 s.
        """
        changes: list[Change] = []
        self._fill(changes)
        if self._position == self._reported:
            return None
        self._reported = self._position
        batch = self._maker.batch(changes) if changes else NOTHING
        return batch, StreamSplit(self._position, self._reader.pieces)

    @abstractmethod
    def _fill(self, changes: list[Change]) -> None:
        """Add changes, and move the position after them."""

    def acknowledge(self, position: Any) -> None:
        """Note that what lies before this position is never asked for again."""

    def close(self) -> None:
        """Release connections."""


class RangeReader(ABC):
    """Reads ranges, on the fetcher's thread."""

    def __init__(self, reading: TableReading) -> None:
        self.settings = reading.settings
        self._maker = reading.maker
        self._where = reading.where

    @abstractmethod
    def rows(
        self, split: SnapshotSplit, shape: TableShape
    ) -> Iterator[tuple[Batch, SnapshotSplit]]:
        """Yield the rows of a range that come after `split.after`, each batch with the split after
        it.

        The last split is finished, with an empty batch.
        """


class ReaderSide:
    """A subtask's connections."""

    def __init__(self, source: type[CdcSource], reading: TableReading) -> None:
        self._source = source
        self._reading = reading

    def rows(self, split: SnapshotSplit) -> Iterator[tuple[Batch, SnapshotSplit]]:
        """Yield as `RangeReader.rows`."""
        shape = self._reading.shapes[split.table]
        return self._source.range_reader(self._reading).rows(split, shape)

    def changes(self, split: StreamSplit) -> ChangeStream:
        """Return the changes after the split's position."""
        reader = self._source.change_reader(self._reading, split.pieces)
        return self._source.change_stream(self._reading, reader, split.position)


# ---------------------------------------------------------------------- source


# ---------------------------------------------------------------------- enumerator
# The enumerator of a change source assigns ranges of tables to the readers that ask, and then the
# stream to one reader.
#
# The stream is assigned when all ranges are in complete checkpoints. Then everything downstream of
# the source has had the snapshot's rows, and a change cannot overtake the row that it changes,
# whichever subtask read that row. Source: Flink CDC HybridSplitAssigner, SnapshotSplitAssigner,
# IncrementalSourceEnumerator; differs: ranges are cut when they are asked for.


_LOG: Final = logging.getLogger(__name__)


FINISHED: Final = "finished"
"""A reader's event: (FINISHED, ranges): it has read them, and with checkpoints they are in a complete one. See `reported_range`."""
NO_CHECKPOINTS: Final = "no checkpoints"
"""A reader's event: the job takes none. Then one subtask reads everything, in order."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Goes to a reader as a split: the enumerator has its finished ranges for good."""


def reported_range(split: SnapshotSplit) -> tuple[Any, ...]:
    """A finished range as plain data: its id, and its pieces."""
    pieces = tuple(
        (*piece.table, piece.low, piece.high, piece.after, piece.upto, piece.view.plain)
        for piece in split.pieces
    )
    return split.split_id, pieces


class CdcEnumerator(SplitEnumerator):
    """Cuts ranges, collects what became of them, and hands out the stream."""

    def __init__(
        self,
        context: EnumeratorContext,
        tables: Sequence[TableId],
        open_database: Callable[[], DriverSide],
        chunk_rows: int,
        view_type: Callable[..., View],
    ) -> None:
        """`chunk_rows`: about how many rows a range has, where the key can be cut. `view_type`: the class of views."""
        self._context = context
        self._open_database = open_database
        self._database: DriverSide | None = None
        self._chunk_rows = chunk_rows
        self._view_type = view_type
        self._begin: Begin | None = None
        self._tables: tuple[TableId, ...] | None = tuple(tables)
        """None: restored, so the readers have some of them in their own state."""
        self._left = list(tables)
        self._cut: SnapshotSplit | None = None
        self._back: list[Any] = []
        self._running: set[str] = set()
        self._finished: dict[str, tuple[Piece, ...]] = {}
        self._has_streamed = False
        self._waiting: list[int] = []
        self._has_checkpoints = True

    # ------------------------------------------------------------------ contract

    def start(self) -> None:
        if self._begin is None:
            try:
                self._begin = self._connected().begin()
            except BaseException:
                self.close()
                raise
            if not self._begin.has_snapshot:
                self._left = []

    def handle_source_event(self, subtask: int, event: object) -> None:
        if event == NO_CHECKPOINTS:
            self._has_checkpoints = False
            return
        assert isinstance(event, tuple), "there is no other event"
        for split_id, pieces in event[1]:
            self._finished[split_id] = tuple(map(self._piece, pieces))
            self._running.discard(split_id)
        if self._has_streamed:
            self._finished.clear()
            self._context.assign_splits(subtask, [Forget()])
        else:
            self._serve()

    def handle_split_request(self, subtask: int, host: str) -> None:
        if subtask not in self._waiting:
            self._waiting.append(subtask)
        self._serve()

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        if subtask in self._waiting:
            self._waiting.remove(subtask)
        if not self._has_checkpoints and self._tables is not None:
            if any(not isinstance(split, Forget) for split in splits):
                self._begin_anew(self._tables)
            return
        ranges = [split for split in splits if isinstance(split, SnapshotSplit)]
        for split in ranges:
            self._running.discard(split.split_id)
            self._finished.pop(split.split_id, None)
        if ranges and self._has_streamed:
            # Only without checkpoints, after a savepoint: read again, with other views than the
            # stream's.
            self._has_streamed = False
            splits = ranges
        # A reader that lacks a Forget reports its finished ranges again, and gets it then.
        self._back += [split for split in splits if not isinstance(split, Forget)]

    def snapshot_state(self) -> Any:
        return {
            "begin": self._begin,
            "left": list(self._left),
            "cut": self._cut,
            "back": list(self._back),
            "running": sorted(self._running),
            "finished": dict(self._finished),
            "has_streamed": self._has_streamed,
        }

    def restore_state(self, state: Any) -> None:
        self._tables = None
        self._begin = state["begin"]
        self._left = list(state["left"])
        self._cut = state["cut"]
        self._back = list(state["back"])
        self._running = set(state["running"])
        self._finished = dict(state["finished"])
        self._has_streamed = state["has_streamed"]

    def unassigned_splits(self) -> int:
        return len(self._back) + len(self._left)

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    # ------------------------------------------------------------------ inside

    def _begin_anew(self, tables: tuple[TableId, ...]) -> None:
        """Begin as a new job: the database may have removed what follows the former beginning.

        The position is asked for when a reader asks for a split, so that a server that is away
        fails that task.
        """
        self._begin = None
        self._left, self._cut, self._back = list(tables), None, []
        self._running, self._finished = set(), {}
        self._has_streamed = False

    def _serve(self) -> None:
        """Gives splits to those who wait for them. Without checkpoints only the first subtask gets any."""
        for subtask in sorted(self._waiting):
            if subtask and not self._has_checkpoints:
                continue
            split = self._next()
            if split is None:
                return
            self._waiting.remove(subtask)
            self._context.assign_splits(subtask, [split])

    def _next(self) -> SnapshotSplit | StreamSplit | None:
        self.start()
        if self._back:
            split: SnapshotSplit | StreamSplit = self._back.pop(0)
            if isinstance(split, SnapshotSplit):
                self._running.add(split.split_id)
            return split
        if self._cut is not None or self._left:
            split = self._next_range()
            self._running.add(split.split_id)
            return split
        if self._running or self._has_streamed:
            return None
        return self._stream()

    def _next_range(self) -> SnapshotSplit:
        assert self._begin is not None, "it was started"
        last = self._cut
        table = self._left.pop(0) if last is None else last.table
        number, low = (0, None) if last is None else (last.number + 1, last.high)
        high = self._connected().next_bound(table, low, self._chunk_rows)
        made = SnapshotSplit(table, number, low, high, self._begin.horizon)
        self._cut = None if high is None else made
        return made

    def _stream(self) -> StreamSplit:
        assert self._begin is not None, "it was started"
        pieces = tuple(piece for found in self._finished.values() for piece in found)
        if self._finished:
            _LOG.info("source=cdc snapshot finished, ranges=%d", len(self._finished))
            for subtask in self._context.registered_readers():
                self._context.assign_splits(subtask, [Forget()])
        self._has_streamed = True
        self._finished = {}
        return StreamSplit(self._begin.position, pieces)

    def _piece(self, plain: Sequence[Any]) -> Piece:
        schema, name, low, high, after, upto, view = plain
        return Piece(TableId(schema, name), low, high, after, upto, self._view_type(*view))

    def _connected(self) -> DriverSide:
        if self._database is None:
            self._database = self._open_database()
        return self._database


# ---------------------------------------------------------------------- reader
# The reader of a change source: ranges of tables one after the other, or the stream.
#
# It keeps the ranges that it has read in its checkpoints, and reports them to the enumerator when
# such a checkpoint is complete; see `CdcEnumerator`. Source: Flink CDC IncrementalSourceReader
# (finishedUnackedSplits).


_PAUSE_S: Final = 0.1


class CdcReader(CommittingReader):
    """`open_database`: opens the subtask's side; called on the task's thread, it does not connect yet."""

    def __init__(self, context: ReaderContext, open_database: Callable[[], ReaderSide]) -> None:
        self._takes_checkpoints = context.takes_checkpoints()
        super().__init__(context, commits=self._takes_checkpoints)
        self._open_database = open_database
        self._finished: dict[str, SnapshotSplit] = {}
        self._to_report: dict[int, tuple[str, ...]] = {}

    def open_split_reader(self) -> CommittingSplitReader:
        return _CdcSplitReader(self._open_database(), acknowledges=not self._takes_checkpoints)

    def split_id(self, split: SnapshotSplit | StreamSplit) -> Hashable:
        return split.split_id

    def split_ids(self, splits: Sequence[Any]) -> Sequence[Any]:
        return [one.split_id for one in splits if _is_open(one)]

    def position_after(self, batch: SplitBatch) -> Any:
        return batch.after.position if isinstance(batch.after, StreamSplit) else None

    def start(self) -> None:
        if not self._takes_checkpoints:
            self.context.send_source_event(NO_CHECKPOINTS)
        if self._finished:  # they were restored, so they are in a complete checkpoint
            self._report_finished(tuple(self._finished))
        if not self._open:
            self.context.send_split_request()

    def add_splits(self, splits: Sequence[Any]) -> None:
        for split in splits:
            if isinstance(split, Forget):
                self._finished.clear()
            elif isinstance(split, SnapshotSplit) and split.is_finished:
                self._finished[split.split_id] = split
        if left := [split for split in splits if _is_open(split)]:
            super().add_splits(left)

    def note_read(self, read: SplitBatch) -> None:
        super().note_read(read)
        split = read.after
        if isinstance(split, SnapshotSplit) and split.is_finished:
            self._finished[split.split_id] = split
            if not self._takes_checkpoints:
                self._report_finished((split.split_id,))

    def before_checkpoint(self, checkpoint_id: int) -> None:
        super().before_checkpoint(checkpoint_id)
        if self._finished:
            self._to_report[checkpoint_id] = tuple(self._finished)

    def snapshot_state(self) -> Sequence[Any]:
        return [*super().snapshot_state(), *self._finished.values()]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        super().notify_checkpoint_complete(checkpoint_id)
        found = taken_up_to(self._to_report, checkpoint_id)
        self._report_finished(found or ())

    def _report_finished(self, split_ids: Sequence[str]) -> None:
        found = tuple(
            reported_range(self._finished[one]) for one in split_ids if one in self._finished
        )
        if found:
            self.context.send_source_event((FINISHED, found))


def _is_open(split: object) -> bool:
    return isinstance(split, StreamSplit) or (
        isinstance(split, SnapshotSplit) and not split.is_finished
    )


class _CdcSplitReader(CommittingSplitReader):
    """Reads its ranges in turn. The stream is read when there are no ranges, and it stays."""

    def __init__(self, database: ReaderSide, *, acknowledges: bool) -> None:
        """`acknowledges`: everything at once, because there are no checkpoints."""
        self._database = database
        self._acknowledges = acknowledges
        self._ranges: deque[SnapshotSplit] = deque()
        self._rows: Iterator[tuple[Batch, SnapshotSplit]] | None = None
        self._stream: ChangeStream | None = None
        self._woken = threading.Event()

    def add_splits(self, splits: Sequence[Any]) -> None:
        for split in splits:
            if isinstance(split, StreamSplit):
                self._stream = self._database.changes(split)
            else:
                self._ranges.append(split)

    def fetch(self) -> Fetched:
        self._woken.clear()
        if self._rows is None and self._ranges:
            self._rows = self._database.rows(self._ranges.popleft())
        if self._rows is not None:
            return self._fetch_rows(self._rows)
        if self._stream is not None:
            return self._fetch_changes(self._stream)
        self._woken.wait(_PAUSE_S)
        return Fetched()

    def commit(self) -> None:
        for split_id, position in self.not_yet_reported().items():
            if split_id == STREAM and self._stream is not None:
                self._stream.acknowledge(position)

    def wake_up(self) -> None:
        self._woken.set()

    def close(self) -> None:
        try:
            self.commit()
        finally:
            close = getattr(self._rows, "close", None)
            if close is not None:
                close()
            if self._stream is not None:
                self._stream.close()

    def _fetch_rows(self, rows: Iterator[tuple[Batch, SnapshotSplit]]) -> Fetched:
        batch, split = next(rows)
        ended: tuple[str, ...] = ()
        if split.is_finished:
            self._rows, ended = None, (split.split_id,)
        return Fetched([SplitBatch(batch, split.split_id, split)], ended)

    def _fetch_changes(self, stream: ChangeStream) -> Fetched:
        found = stream.poll()
        if found is None:
            return Fetched()
        batch, split = found
        if self._acknowledges:
            stream.acknowledge(split.position)
        return Fetched([SplitBatch(batch, STREAM, split)])


# ---------------------------------------------------------------------- source


Found = TypeVar("Found")
_REACH: Final = "The driver and all executors must reach the database."


class Reflected(NamedTuple):
    """The tables as they were at `end` of the database's log."""

    shapes: tuple[TableShape, ...]
    end: Any


class CdcSource(Source):
    """Reads tables as they are, and then their changes.

    `name`: begins errors. `connector`: Debezium's name of the database. `view`: what a reading of a range saw.
    """

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED
    default_parallelism = 1
    name: ClassVar[str]
    connector: ClassVar[str]
    view: ClassVar[type]
    driver_side: ClassVar[type[DriverSide]]
    range_reader: ClassVar[type[RangeReader]]
    change_reader: ClassVar[type[SeenChanges]]
    change_stream: ClassVar[type[ChangeStream]]
    settings: CdcSettings

    def __init__(self, settings: Any) -> None:
        """Use the builder."""
        self.settings = settings
        self._found: Reflected | None = None

    def __repr__(self) -> str:
        tables = ", ".join(map(str, self.settings.tables))
        return f"{self.name}({self.settings}, {tables})"

    @property
    def produced_type(self) -> TypeInformation:
        """The type of the records; the driver asks the database for it once."""
        return self._maker().produced_type

    def validate(self) -> None:
        """Check log, rights and tables. Raises ConfigurationError."""
        self._maker()
        self._reached(self._check)

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        settings = self.settings

        def open_database() -> DriverSide:
            return self.driver_side(self.settings, self._reflected().shapes, self._on_driver)

        return CdcEnumerator(
            context, settings.tables, open_database, settings.chunk_rows, self.view
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        where = f"{self.name}, subtask {context.subtask()}"

        def open_database() -> ReaderSide:
            found = self._reflected()
            shapes = {shape.table: shape for shape in found.shapes}
            reading = TableReading(self.settings, shapes, self._maker(), found.end, where)
            return ReaderSide(type(self), reading)

        return CdcReader(context, open_database)

    @property
    def _on_driver(self) -> str:
        return f"{self.name} on the driver"

    def _reflected(self) -> Reflected:
        """The tables. The driver looks once, and the job's tasks get what it found."""
        if self._found is None:
            self._found = self._reached(self._look)
        return self._found

    def _reached(self, look: Callable[[str], Found]) -> Found:
        try:
            return look(self._on_driver)
        except ExternalError as error:
            raise ConfigurationError(f"{error} {_REACH}") from error

    def _maker(self) -> RecordMaker:
        settings, shapes = self.settings, self._reflected().shapes
        if settings.form == DEBEZIUM:
            tables = {shape.table: shape for shape in shapes}
            return DebeziumMaker(self.connector, settings.database, tables)
        more = {name: METADATA_COLUMNS[name] for name in settings.metadata}
        row_type = common_row_type(shapes, more, self.name)
        keeps_before = settings.mode is ChangelogMode.ALL
        return RowMaker(row_type, settings.metadata, settings.database, keeps_before)

    @abstractmethod
    def _check(self, where: str) -> None:
        """Raises: ConfigurationError; ExternalError: the database cannot be reached."""

    @abstractmethod
    def _look(self, where: str) -> Reflected:
        """Look at the tables. Raises: ConfigurationError; ExternalError."""
