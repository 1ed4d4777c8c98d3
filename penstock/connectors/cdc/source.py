"""CdcSource: what sources of changes share. A subclass looks at its database, and gives its sides of driver and readers.

Source: Flink CDC's IncrementalSource.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.connectors.cdc.database import DriverSide, ReaderSide
from penstock.connectors.cdc.enumerator import CdcEnumerator
from penstock.connectors.cdc.options import CdcSettings, ChangelogMode
from penstock.connectors.cdc.reader import CdcReader
from penstock.connectors.cdc.records import (
    DEBEZIUM,
    METADATA_COLUMNS,
    DebeziumMaker,
    RecordMaker,
    RowMaker,
)
from penstock.connectors.cdc.tables import TableShape, common_row_type
from penstock.engine.model.errors import ConfigurationError, ExternalError

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
    _settings: CdcSettings

    def __init__(self, settings: Any) -> None:
        """Use the builder."""
        self._settings = settings
        self._found: Reflected | None = None

    def __repr__(self) -> str:
        tables = ", ".join(map(str, self._settings.tables))
        return f"{self.name}({self._settings}, {tables})"

    @property
    def produced_type(self) -> TypeInformation:
        """The type of the records; the driver asks the database for it once."""
        return self._maker().produced_type

    def validate(self) -> None:
        """Check log, rights and tables. Raises ConfigurationError."""
        self._maker()
        self._reached(self._check)

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        settings = self._settings

        def open_database() -> DriverSide:
            return self._driver_side(self._reflected().shapes, self._on_driver)

        return CdcEnumerator(
            context, settings.tables, open_database, settings.limits.chunk_rows, self.view
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        where = f"{self.name}, subtask {context.subtask()}"

        def open_database() -> ReaderSide:
            return self._reader_side(self._reflected(), self._maker(), where)

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
        settings, shapes = self._settings, self._reflected().shapes
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

    @abstractmethod
    def _driver_side(self, shapes: Sequence[TableShape], where: str) -> DriverSide: ...

    @abstractmethod
    def _reader_side(self, found: Reflected, maker: RecordMaker, where: str) -> ReaderSide: ...
