"""A subtask's side of a PostgreSQL source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.datastream.connectors.base import Batch
from penstock.datastream.connectors.cdc.database import ChangeStream, ReaderSide
from penstock.datastream.connectors.cdc.postgres.changes import ChangeReader
from penstock.datastream.connectors.cdc.postgres.connection import PostgresSettings
from penstock.datastream.connectors.cdc.postgres.replication import ReplicationStream
from penstock.datastream.connectors.cdc.postgres.snapshot import RangeReader
from penstock.datastream.connectors.cdc.records import RecordMaker
from penstock.datastream.connectors.cdc.splits import SnapshotSplit, StreamSplit
from penstock.datastream.connectors.cdc.tables import TableShape


class PostgresReaderSide(ReaderSide):
    """`reflected_lsn`: where the WAL ended when the shapes were read."""

    def __init__(
        self,
        settings: PostgresSettings,
        shapes: Sequence[TableShape],
        maker: RecordMaker,
        reflected_lsn: int,
        where: str,
    ) -> None:
        self._settings = settings
        self._shapes = {shape.table: shape for shape in shapes}
        self._maker = maker
        self._reflected_lsn = reflected_lsn
        self._where = where

    def rows(self, split: SnapshotSplit) -> Iterator[tuple[Batch, SnapshotSplit]]:
        reader = RangeReader(self._settings, self._maker, self._where)
        return reader.rows(split, self._shapes[split.table])

    def changes(self, split: StreamSplit) -> ChangeStream:
        settings = self._settings
        reader = ChangeReader(
            self._shapes,
            split.pieces,
            mode=settings.mode,
            ignores_truncate=settings.ignores_truncate,
            reflected_lsn=self._reflected_lsn,
            where=self._where,
        )
        return ReplicationStream(settings, reader, self._maker, split.position, self._where)
