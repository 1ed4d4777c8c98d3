"""SqlSource: reads a table, view or query of a SQL database once, in ranges of a column. Needs SQLAlchemy 2 (`penstock[sql]`).

Bounded. The driver asks for the smallest and largest value of the column, and cuts the numbers between them into ranges of
equal width, each of which is a split. A range is read in the order of the column, so that a restart continues after the rows
that it has read. Rows that others change meanwhile are read as they are when their range is opened, and again after a
restart: read a table that stands still, or a query of rows that no longer change.
Source: Flink JdbcSource with JdbcNumericBetweenParametersProvider; differs: ranges are cut by the driver, exactly once.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    PolledSplitReader,
    QueueEnumerator,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.connectors.api.builder import MISSING
from penstock.connectors.sql.checks import field_kind
from penstock.connectors.sql.engine import (
    QUERY_TIMEOUT_S,
    SqlAccess,
    SqlBuilder,
    SqlTarget,
    each_answered,
)
from penstock.connectors.sql.values import instants_of
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.model.row import make_row
from penstock.engine.runtime.elements import Batch, RowBatch

if TYPE_CHECKING:
    pass

# ---------------------------------------------------------------------- queries
# Queries of users, made fit to stand in a FROM clause. Does not parse SQL: it only separates texts
# and comments from the rest.


_PARTS: Final = re.compile(
    r"""(?P<kept>'(?:[^']|'')*'|"[^"]*"|`[^`]*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<passed>--[^\n]*|/\*.*?\*/|\s+)|(?P<end>;)|.""",
    re.DOTALL,
)


def without_end(query: str) -> str:
    """The query without semicolons that only comments and blanks follow."""
    ends: list[int] = []
    for part in _PARTS.finditer(query):
        if part["end"]:
            ends.append(part.start())
        elif not part["passed"]:
            ends = []
    for end in reversed(ends):
        query = query[:end] + query[end + 1 :]
    return query


# ---------------------------------------------------------------------- sql source


FETCH_ROWS: Final = 1000
SPLITS: Final = 16
_READ: Final = "cannot read"


@dataclass(frozen=True, slots=True)
class _Settings(SqlTarget):
    """`query` empty: the table is read. `column` empty: it is one split."""

    timeout_s: float = QUERY_TIMEOUT_S
    query: str = ""
    column: str = ""
    order: tuple[str, ...] = ()
    splits: int = SPLITS
    fetch_rows: int = FETCH_ROWS
    row_type: RowTypeInfo = MISSING

    @property
    def what(self) -> str:
        return f"the query {self.query!r}" if self.query else f"the table {self.table!r}"


@dataclass(frozen=True, slots=True)
class Range:
    """Rows with low <= column < high; None: without this bound. `is_null`: those without a value instead."""

    low: Any = None
    high: Any = None
    is_null: bool = False


class SqlSource(Source):
    """Reads rows of a database once. Not in PyFlink.

    Build it: `SqlSource.builder().set_url(url).set_table("orders").set_partition_column("id")`,
    then `.set_row_type(type).build()`.
    """

    boundedness = Boundedness.BOUNDED

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings

    @staticmethod
    def builder() -> SqlSource.Builder:
        """Return a builder."""
        return SqlSource.Builder()

    class Builder(SqlBuilder):
        """Builds an SqlSource; URL, row type, and a table or query are required."""

        name = "SqlSource"
        always: ClassVar = {"url": "set_url"}
        begin = _Settings

        def set_url(self, url: str) -> Self:
            """Set the URL, as SQLAlchemy takes it; the executors get it with the job, password included."""
            return self._with(url=url)

        def set_query(self, query: str) -> Self:
            """Set a SELECT statement instead of a table. It must do in a FROM clause."""
            return self._with(query=query)

        def set_row_type(self, row_type: TypeInformation) -> Self:
            """Set the ROW type of the records, with names: these columns are read."""
            if not isinstance(row_type, RowTypeInfo):
                raise TypeError(
                    f"set_row_type takes Types.ROW_NAMED([...], [...]), got {row_type}."
                )
            return self._with(row_type=row_type)

        def set_partition_column(
            self, column: str, splits: int = SPLITS, *, order: Sequence[str] = ()
        ) -> Self:
            """Set the column of numbers, dates or times by whose ranges subtasks share the rows.

            Without it, one subtask reads everything, in the order of all columns.

            Args:
                column: an index on it makes the reading fast.
                splits: the number of ranges.
                order: more columns that make the order of rows unique, if `column` alone does not.
                    By default all columns of the row type.
            """
            return self._with_number(
                "set_partition_column: splits", 1, splits=splits, column=column, order=tuple(order)
            )

        def set_fetch_size(self, rows: int) -> Self:
            """Set how many rows are fetched at once and make a batch; 1,000 by default.

            On MySQL and MariaDB the whole of a range is fetched at once, and cut into batches.
            """
            return self._with_number("set_fetch_size", 1, fetch_rows=rows)

        def build(self) -> SqlSource:
            """Return the source. Raises ConfigurationError if something required is missing."""
            settings = self._complete(row_type="set_row_type")
            if bool(settings.table) == bool(settings.query):
                raise ConfigurationError("SqlSource: set either a table or a query before build().")
            return SqlSource(settings)

    @property
    def produced_type(self) -> TypeInformation | None:
        return self.settings.row_type

    def validate(self) -> None:
        """Check columns and connection. Raises ConfigurationError."""
        try:
            reading = _Reading(self.settings, "SqlSource on the driver")
            reading.answered(_READ, reading.check)
        except ExternalError as error:
            raise ConfigurationError(
                f"{error}. The driver and all executors must reach the database and be allowed to "
                "read."
            ) from error

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        reading = _Reading(self.settings, "SqlSource's enumerator")
        return QueueEnumerator(context, reading.answered(_READ, reading.ranges))

    def restore_enumerator(self, context: EnumeratorContext, state: Any) -> SplitEnumerator:
        """The ranges of the checkpoint: the table may have grown."""
        return QueueEnumerator(context, state if state is not None else ())

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _RangeReader(context, self.settings)


class _RangeReader(PolledSplitReader):
    def __init__(self, context: ReaderContext, settings: _Settings) -> None:
        super().__init__(context)
        self._reading = _Reading(settings, f"SqlSource, subtask {context.subtask()}")

    def read(self, split: Range) -> Iterator[Batch]:
        return self._reading.rows(split)

    def split_id(self, split: Range) -> Any:
        return f"[{split.low}, {split.high})" if not split.is_null else "NULL"


class _Reading(SqlAccess):
    """The statements. A connection is opened for each call."""

    def __init__(self, settings: _Settings, where: str) -> None:
        super().__init__(settings, where)
        self.settings = settings
        row_type = settings.row_type
        self._instants = instants_of(self.engine, row_type)
        self._names = tuple(row_type.get_field_names())
        made = _query_types(self._sa, self.engine.dialect.name)
        types = zip(self._names, row_type.get_field_types(), strict=True)
        self._kinds = {name: made.get(field_kind(kind) or "") for name, kind in types}

    def check(self) -> None:
        """Raises: ConfigurationError: a column is missing. ExternalError: the database cannot be read."""
        settings = self.settings
        if not settings.query:
            with self.errors(_READ):
                there = set(self._from().c.keys())
            wanted = (
                *self._names,
                *settings.order,
                *([settings.column] if settings.column else []),
            )
            missing = sorted(set(wanted) - there)
            if missing:
                raise ConfigurationError(
                    f"{self.where}: the table {settings.table!r} has no columns {missing}; it "
                    f"has {sorted(there)}."
                )
        with self.errors(_READ), self.engine.connect() as connection:
            connection.execute(self._select(Range()).limit(0)).fetchall()

    def ranges(self) -> list[Range]:
        """The splits, in the order of the column."""
        settings, sql = self.settings, self._sa
        if not settings.column:
            return [Range()]
        with self.errors(_READ), self.engine.connect() as connection:
            column = self._column(settings.column)
            figures = sql.select(
                sql.func.min(column), sql.func.max(column), sql.func.count(column), sql.func.count()
            ).select_from(self._from())
            low, high, count, total = connection.execute(figures).one()
        made = _cut(low, high, settings.splits, self._refused) if count else []
        return [*made, Range(is_null=True)] if total > count else made

    def rows(self, part: Range) -> Iterator[Batch]:
        """The rows of a range, in the same order each time. Raises: NoAnswer."""
        return each_answered(self.settings.timeout_s, self._rows(part), self.failed(_READ))

    def _rows(self, part: Range) -> Generator[Batch]:
        size, names = self.settings.fetch_rows, self._names
        instants = self._instants or tuple
        # PyMySQL cannot leave a stream before its end.
        is_stream = self.engine.dialect.name not in {"mysql", "mariadb"}
        options = {"stream_results": is_stream, "max_row_buffer": size}
        with self.errors(_READ), self.engine.connect() as connection:
            found = connection.execute(self._select(part), execution_options=options)
            for rows in found.partitions(size):
                yield RowBatch([make_row(names, instants(row)) for row in rows])

    def _select(self, part: Range) -> Any:
        settings, sql = self.settings, self._sa
        found = sql.select(*map(self._column, self._names)).select_from(self._from())
        if settings.column:
            column = self._column(settings.column)
            found = found.where(column.is_(None) if part.is_null else column.is_not(None))
            if part.low is not None:
                found = found.where(column >= part.low)
            if part.high is not None:
                found = found.where(column < part.high)
        order = [settings.column] if settings.column else []
        order += [name for name in settings.order or self._names if name != settings.column]
        return found.order_by(*map(self._order, order))

    def _from(self) -> Any:
        settings, sql = self.settings, self._sa
        if settings.query:
            query = without_end(settings.query).replace(":", "\\:")
            inner = sql.text(f"{query}\n")  # it may end in a comment
            return inner.columns().subquery("penstock_query")
        return self.table  # Its types are those that values come in.

    def _column(self, name: str) -> Any:
        """Return a column. Of a table, with its type. Of a query, whose text has no types, by name,
        and with the type of the record's field where the driver gives something else.
        """
        if not self.settings.query:
            return self._from().c[name]
        return self._sa.column(name, self._kinds.get(name))

    def _order(self, name: str) -> Any:
        """PostgreSQL has no order for some types: json, xml, geometries. Their texts have one."""
        sql, column = self._sa, self._column(name)
        if self.engine.dialect.name != "postgresql" or self.settings.query:
            return column
        from sqlalchemy.dialects.postgresql import JSONB

        is_json = isinstance(column.type, sql.JSON) and not isinstance(column.type, JSONB)
        is_unknown = isinstance(column.type, sql.types.NullType)
        return sql.cast(column, sql.Text) if is_json or is_unknown else column

    def advice(self, text: str) -> str:
        if "ordering operator" not in text:
            return ""
        return (
            ". Rows are read in the order of all columns, and this database has none for one of "
            "them: name columns that make rows unique, set_partition_column(..., order=[...]), or "
            "cast the column to text in the query"
        )

    def _refused(self, text: str) -> ExternalError:
        return RefusedForGood(f"{self.failed(_READ)}: {text}")

    def failed(self, what: str) -> str:
        return f"{self.where}: {what} {self.settings.what} in {self.shown_url}"


def _query_types(sql: Any, dialect: str) -> dict[str, Any]:
    """Kinds of fields, and the types of columns that make their values of what the driver gives."""
    if dialect == "sqlite":  # texts and numbers
        return {
            "timestamp": sql.DateTime, "date": sql.Date, "time": sql.Time, "boolean": sql.Boolean
        }  # fmt: skip
    if dialect in {"mysql", "mariadb"}:  # numbers, and intervals
        from sqlalchemy.dialects.mysql import TIME

        return {"time": TIME, "boolean": sql.Boolean}
    return {}


def _cut(low: Any, high: Any, splits: int, failure: Callable[[str], ExternalError]) -> list[Range]:
    """Ranges of equal width. The first and the last one are open, for rows that come meanwhile."""
    if isinstance(low, bool) or not isinstance(low, int | float | Decimal | dt.date):
        raise failure(
            f"its partition column has {low!r} of type {type(low).__name__}. Expected a column of "
            "numbers, dates or times."
        )
    if isinstance(low, float | Decimal) and not (math.isfinite(low) and math.isfinite(high)):
        return [Range()]  # Nothing lies in the middle between a number and NaN.
    is_day = isinstance(low, dt.date) and not isinstance(low, dt.datetime)
    span: Any = (high - low).days if is_day else high - low
    steps: list[Any] = [
        span * number // splits if isinstance(span, int) else span * number / splits
        for number in range(1, splits)
    ]
    if is_day:
        steps = [dt.timedelta(days=one) for one in steps]
    bounds = list(dict.fromkeys(low + step for step in steps if low + step > low))
    return [Range(begin, end) for begin, end in zip([None, *bounds], [*bounds, None], strict=True)]
