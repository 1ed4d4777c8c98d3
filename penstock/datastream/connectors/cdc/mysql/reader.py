"""A subtask's side of a MySQL source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.datastream.connectors.base import Batch
from penstock.datastream.connectors.cdc.database import ChangeStream, ReaderSide
from penstock.datastream.connectors.cdc.mysql.binlog import BinlogStream
from penstock.datastream.connectors.cdc.mysql.changes import ChangeReader
from penstock.datastream.connectors.cdc.mysql.connection import MySqlSettings
from penstock.datastream.connectors.cdc.mysql.snapshot import RangeReader
from penstock.datastream.connectors.cdc.records import RecordMaker
from penstock.datastream.connectors.cdc.splits import SnapshotSplit, StreamSplit
from penstock.datastream.connectors.cdc.tables import TableShape


class MySqlReaderSide(ReaderSide):
    """`reflected`: where the binlog ended when the shapes were read."""

    def __init__(
        self,
        settings: MySqlSettings,
        shapes: Sequence[TableShape],
        maker: RecordMaker,
        reflected: tuple[int, int],
        where: str,
    ) -> None:
        self._settings = settings
        self._shapes = {shape.table: shape for shape in shapes}
        self._maker = maker
        self._reflected = reflected
        self._where = where

    def rows(self, split: SnapshotSplit) -> Iterator[tuple[Batch, SnapshotSplit]]:
        reader = RangeReader(self._settings, self._maker, self._where)
        return reader.rows(split, self._shapes[split.table])

    def changes(self, split: StreamSplit) -> ChangeStream:
        settings = self._settings
        reader = ChangeReader(
            self._shapes,
            split.pieces,
            ignores_truncate=settings.ignores_truncate,
            reflected=self._reflected,
            where=self._where,
        )
        return BinlogStream(settings, reader, self._maker, split.position, self._where)
