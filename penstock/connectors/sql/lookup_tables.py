"""The database side of a lookup: the table's columns with their types, and one query for the rows of many keys.

Keys are equal as in Python. Where the database finds more (a collation that ignores case, times of another zone), these rows are
left out, so that a record's rows never depend on which records came with it. Does not know streams.
Source: Flink JdbcRowDataLookupFunction; differs: one query for many keys.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.sql.checks import column_kind, field_kind
from penstock.connectors.sql.engine import (
    SqlAccess,
    SqlTarget,
    driver_text,
    import_sqlalchemy,
)
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.model.row import Row, make_row
from penstock.engine.model.type_information import UtcTimestampTypeInfo

if TYPE_CHECKING:
    pass

_LOG: Final = logging.getLogger(__name__)
_WITH_ROW_VALUES: Final = frozenset({"sqlite", "postgresql", "mysql", "mariadb", "oracle"})
"""Databases that take `(a, b) IN ((1, 2), ...)`."""
_BITS: Final = {"sqlite": 64, "mysql": 65, "mariadb": 65}
"""Of integers, where each column takes a comparison with all of them. 65: signed and unsigned ones of 64 bits."""
_WITH_AUTOCOMMIT: Final = frozenset({"sqlite", "postgresql", "mysql", "mariadb"})
_NUMBERS: Final = frozenset({"integer", "decimal"})
_EQUALS: Final = {
    "integer": _NUMBERS,
    "decimal": _NUMBERS,
    "boolean": frozenset({"boolean", "integer"}),
}
"""Kinds of columns whose values may equal those of a kind of field, if they are not the same kind."""
_TYPES: Final[dict[str, TypeInformation]] = {
    "text": Types.STRING(),
    "float": Types.DOUBLE(),
    "decimal": Types.BIG_DEC(),
    "boolean": Types.BOOLEAN(),
    "bytes": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "date": Types.SQL_DATE(),
    "time": Types.SQL_TIME(),
    "timestamp": Types.SQL_TIMESTAMP(),
}

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LookupTarget(SqlTarget):
    """The table. `keys`: the columns that rows are looked up by. `columns`: of the rows; empty: all others."""

    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


class LookupTable(SqlAccess):
    """The table as one process sees it. Threads may use it together; each query has a connection of the pool."""

    def __init__(self, target: LookupTarget, where: str, connections: int = 1) -> None:
        """`where`: begins errors. Raises: ConfigurationError: SQLAlchemy or the driver is missing."""
        super().__init__(
            target,
            where,
            poolclass=import_sqlalchemy(where).pool.QueuePool,
            pool_size=connections,
            max_overflow=0,
            hide_parameters=True,
        )
        if self.engine.dialect.name in _WITH_AUTOCOMMIT:
            # Each query sees what is there now, and none leaves a transaction open.
            self.engine = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._has_warned = False

    def check(self) -> None:
        """Looks at the table.

        Raises: ConfigurationError: a column is missing, or the database cannot be read. NoAnswer.
        """
        self.answered("cannot read the table", self._check)

    def _check(self) -> None:
        sql, target = self._sa, self.target
        try:
            table = self.table
        except sql.exc.NoSuchTableError as error:
            raise ConfigurationError(
                f"{self.where}: there is no table or view {str(target)!r} in {self.shown_url}."
            ) from error
        except sql.exc.SQLAlchemyError as error:
            raise ConfigurationError(
                f"{self.failed('cannot read the table')}: {driver_text(error)}. The driver "
                "and all executors must reach the database and be allowed to read."
            ) from error
        known = list(table.columns.keys())
        missing = [name for name in (*target.keys, *target.columns) if name not in known]
        if missing:
            raise ConfigurationError(
                f"{self.where}: the table {str(target)!r} has no columns {missing}; it has "
                f"{known}. Correct set_key_columns or set_columns."
            )
        dialect = self.engine.dialect.name
        if len(target.keys) > 1 and dialect not in _WITH_ROW_VALUES:
            raise ConfigurationError(
                f"{self.where}: {dialect} takes one key column only, got {list(target.keys)}. "
                "Make a view with a column that joins them."
            )

    def check_keys(self, fields: Sequence[tuple[str, TypeInformation]]) -> None:
        """Holds fields of the stream against the key columns. Raises: ConfigurationError: their values are never equal."""
        wrong = []
        for column, (name, kind) in zip(self.target.keys, fields, strict=True):
            reflected = self.table.columns[column].type
            if not _may_equal(kind, reflected):
                wrong.append(
                    f"the field {name!r} of type {kind} never equals the column {column!r}, "
                    f"which is {reflected!r}"
                )
        if wrong:
            raise ConfigurationError(
                f"{self.where}: keys do not fit the table {str(self.target)!r}: "
                f"{'; '.join(wrong)}. Convert the field in a map() before the lookup."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are looked up."""
        known = self.table.columns.keys()
        return self.target.columns or tuple(name for name in known if name not in self.target.keys)

    @property
    def row_type(self) -> RowTypeInfo:
        """The ROW type of the columns that are looked up."""
        dialect = self.engine.dialect.name
        kinds = [_type_of(self.table.columns[name].type, dialect) for name in self.names]
        return RowTypeInfo(kinds, list(self.names))

    def rows_of(self, keys: Sequence[Hashable]) -> Mapping[Hashable, Sequence[Row]]:
        """The rows of each key, by one query. Raises: ExternalError."""
        return self.answered("cannot look up in", partial(self._rows_of, keys))

    def _rows_of(self, keys: Sequence[Hashable]) -> Mapping[Hashable, Sequence[Row]]:
        found: dict[Hashable, list[Row]] = {key: [] for key in keys}
        with self._errors():
            columns = self._key_columns()
            kinds = [column.type for column in columns]
            wanted = [asked for key in keys if (asked := self._asked(key, kinds)) is not None]
            if not wanted:
                return found
            names = self.names
            chosen = [self.table.columns[name].label(f"p{n}") for n, name in enumerate(names)]
            of_key = [column.label(f"k{n}") for n, column in enumerate(columns)]
            is_one = (
                columns[0].in_([key[0] for key in wanted])
                if len(columns) == 1
                else self._sa.tuple_(*columns).in_(wanted)
            )
            with self.engine.connect() as connection:
                rows = connection.execute(
                    self._sa.select(*of_key, *chosen).where(is_one)
                ).fetchall()
        count = len(columns)
        is_padded = [self._is_padded(kind) for kind in kinds]
        for row in rows:
            values = tuple(row)
            key = values[:count]
            if any(is_padded):
                key = tuple(
                    value.rstrip(" ") if padded else value
                    for value, padded in zip(key, is_padded, strict=True)
                )
            rows_of_key = found.get(key)
            if rows_of_key is None:
                self._warn(key)
            else:
                rows_of_key.append(make_row(names, values[count:]))
        return found

    def close(self) -> None:
        self.engine.dispose()

    def _key_columns(self) -> list[Any]:
        """Raises: RefusedForGood: columns that were there at submit are gone."""
        known = self.table.columns
        wanted = (*self.target.keys, *self.target.columns)
        if missing := [name for name in wanted if name not in known]:
            raise RefusedForGood(
                f"{self.where}: the table {str(self.target)!r} in {self.shown_url} has no columns "
                f"{missing} any more; it has {list(known.keys())}."
            )
        return [known[name] for name in self.target.keys]

    def _asked(self, key: Any, kinds: Sequence[Any]) -> Key | None:
        """The key as the database takes it; None: no row has it, and many databases would refuse the query."""
        asked = tuple(self._value(value, kind) for value, kind in zip(key, kinds, strict=True))
        return None if None in asked else asked

    def _value(self, value: Any, kind: Any) -> Any:
        """None: no column of this kind has this value."""
        dialect = self.engine.dialect.name
        if value is None or value != value:  # noqa: PLR0124 - NaN
            return None
        if isinstance(value, str):
            is_refused = dialect == "postgresql" and "\0" in value
            if isinstance(kind, self._sa.Enum) and value not in kind.enums:
                return None  # PostgreSQL would refuse the query.
            return None if is_refused or not _is_encodable(value) else value
        if isinstance(value, int | float | Decimal) and column_kind(kind) == "integer":
            if not math.isfinite(value) or int(value) != value:
                return None
            bits = _BITS.get(dialect) or _bits(kind)
            return int(value) if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None
        return value

    def _is_padded(self, kind: Any) -> bool:
        return self.engine.dialect.name in {"postgresql", "oracle"} and isinstance(
            kind, self._sa.CHAR
        )

    def _warn(self, key: Key) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%s: the database finds rows with the key %r, which equals none that was asked "
                "for. They are left out. Its collation may ignore case or accents: convert keys "
                "with upper() on both sides, or give the column a binary collation.",
                self.where,
                key,
            )

    @contextmanager
    def _errors(self) -> Generator[None]:
        with self.errors("cannot look up in"):
            try:
                yield
            except self._sa.exc.NoSuchTableError as error:
                raise RefusedForGood(
                    f"{self.where}: there is no table {str(self.target)!r} in {self.shown_url} "
                    "any more"
                ) from error


def _may_equal(kind: TypeInformation, column: Any) -> bool:
    import sqlalchemy as sa

    of_field, of_column = field_kind(kind), column_kind(column)
    if of_field is None:
        return True  # only its values show it
    if isinstance(column, sa.Enum):
        return of_field == "text"  # drivers give its members as texts
    if of_field == of_column == "timestamp":
        return isinstance(kind, UtcTimestampTypeInfo) == bool(getattr(column, "timezone", False))
    return of_column in _EQUALS.get(of_field, frozenset({of_field}))


def _type_of(column: Any, dialect: str) -> TypeInformation:
    kind = column_kind(column)
    if kind == "integer":
        return _integer_type(column, dialect)
    if kind == "timestamp" and getattr(column, "timezone", False):
        return UtcTimestampTypeInfo() if dialect == "postgresql" else Types.PICKLED_BYTE_ARRAY()
    return _TYPES.get(kind, Types.PICKLED_BYTE_ARRAY())


def _integer_type(column: Any, dialect: str) -> TypeInformation:
    if dialect == "sqlite":
        return Types.LONG()  # whatever it is declared as
    bits = _bits(column) * (2 if getattr(column, "unsigned", False) else 1)
    return {16: Types.SHORT(), 32: Types.INT(), 64: Types.LONG()}.get(bits, Types.BIG_INT())


def _bits(column: Any) -> int:
    import sqlalchemy as sa

    if isinstance(column, sa.BigInteger):
        return 64
    return 16 if isinstance(column, sa.SmallInteger) else 32


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
