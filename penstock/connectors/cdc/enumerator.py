"""The enumerator of a change source: ranges of tables to whoever asks, and then the stream to one reader.

The stream is handed out when all ranges are in complete checkpoints. Then everything behind the source has had the
snapshot's rows, and a change cannot overtake the row that it changes, whichever subtask read that row.
Source: Flink CDC HybridSplitAssigner, SnapshotSplitAssigner, IncrementalSourceEnumerator; differs: ranges are cut when
they are asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.connectors.api.base import EnumeratorContext, SplitEnumerator
from penstock.connectors.cdc.database import Begin, DriverSide
from penstock.connectors.cdc.splits import Piece, SnapshotSplit, StreamSplit, TableId, View

_LOG: Final = logging.getLogger(__name__)


FINISHED: Final = "finished"
"""A reader's event: (FINISHED, ranges): it has read them, and with checkpoints they are in a complete one. See `told_range`."""
NO_CHECKPOINTS: Final = "no checkpoints"
"""A reader's event: the job takes none. Then one subtask reads everything, in order."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Goes to a reader as a split: the enumerator has its finished ranges for good."""


def told_range(split: SnapshotSplit) -> tuple[Any, ...]:
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
            # Only without checkpoints, behind a savepoint: read again, with other views than the stream's.
            self._has_streamed = False
            splits = ranges
        # Whoever lacks a Forget tells its finished ranges again, and gets it then.
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
        """As a new job: the database may have let go what lies behind the former beginning.

        Where it begins is asked when somebody wants a split, so that a server that is away fails that task.
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

    def _piece(self, told: Sequence[Any]) -> Piece:
        schema, name, low, high, after, upto, view = told
        return Piece(TableId(schema, name), low, high, after, upto, self._view_type(*view))

    def _connected(self) -> DriverSide:
        if self._database is None:
            self._database = self._open_database()
        return self._database
