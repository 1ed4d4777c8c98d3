"""What a change source needs of a database: where the stream begins, ranges of tables, their rows, and the changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from penstock.connectors.api.base import Batch
from penstock.connectors.cdc.records import RecordMaker
from penstock.connectors.cdc.splits import SnapshotSplit, StreamSplit, TableId
from penstock.connectors.cdc.tables import TableShape


class Begin(NamedTuple):
    """Where the stream begins. `horizon`: what readers of ranges need to know; None: there is no snapshot."""

    position: Any
    has_snapshot: bool
    horizon: Any = None


class DriverSide(ABC):
    """The driver's connection. `shapes`: of the tables."""

    def __init__(self, settings: Any, shapes: Sequence[TableShape], where: str) -> None:
        self._settings = settings
        self._shapes = {shape.table: shape for shape in shapes}
        self._where = where
        self._open: Any = None

    @abstractmethod
    def begin(self) -> Begin:
        """Return where a new job begins. What the job needs later is made, or kept, by the database from here on."""

    @abstractmethod
    def next_bound(self, table: TableId, low: Any, rows: int) -> Any:
        """Return the first part of the key that lies about so many rows behind `low`; None: the range is the last one.

        `low`: None: of the whole table.
        """

    def close(self) -> None:
        """Release the connection."""


class ChangeStream(ABC):
    """Reads changes on the fetcher's thread."""

    @abstractmethod
    def poll(self) -> tuple[Batch, StreamSplit] | None:
        """Return records, and the split behind them; None: none for now. An empty batch only moves the position.

        It waits for up to about 0.1 s.
        """

    def acknowledge(self, position: Any) -> None:
        """Note that what lies before this position is never asked for again."""

    def close(self) -> None:
        """Release connections."""


class ReaderSide(ABC):
    """A subtask's connections. `reflected`: where the database's log ended when the shapes were read.

    `ranges`: reads ranges, on the fetcher's thread.
    """

    ranges: ClassVar[type[Any]]

    def __init__(
        self,
        settings: Any,
        shapes: Sequence[TableShape],
        maker: RecordMaker,
        reflected: Any,
        where: str,
    ) -> None:
        self._settings = settings
        self._shapes = {shape.table: shape for shape in shapes}
        self._maker = maker
        self._reflected = reflected
        self._where = where

    def rows(self, split: SnapshotSplit) -> Iterator[tuple[Batch, SnapshotSplit]]:
        """Yield the rows of a range that are behind `split.after`, each batch with the split behind it.

        The last split is finished, with an empty batch.
        """
        reader = self.ranges(self._settings, self._maker, self._where)
        rows: Iterator[tuple[Batch, SnapshotSplit]] = reader.rows(split, self._shapes[split.table])
        return rows

    @abstractmethod
    def changes(self, split: StreamSplit) -> ChangeStream:
        """Return the changes behind the split's position."""
