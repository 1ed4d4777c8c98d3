"""What of a stream does not fit a table: fields without a column, types that the column cannot hold, keys without an index.

Known at submit, where the database would lose, round or double values in silence, or fail much later. Does not connect.
Source: Flink's validation of a table sink's schema, TypeInferenceUtil; differs: integers of any width fit any integer
column, and a kind of column that is not listed here takes everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.engine.model.type_information import (
    DateTypeInfo,
    DecimalTypeInfo,
    LocalTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    UtcTimestampTypeInfo,
)
from penstock.engine.model.types import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    InstantTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    Types,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

_NUMBERS: Final = frozenset({"integer", "float", "decimal"})
_LISTED: Final = frozenset({
    "text", "integer", "float", "decimal", "boolean", "bytes", "date", "time", "timestamp", "other",
})  # fmt: skip
_TAKES: Final = {
    # A database parses a text for its own kinds: times, UUID, JSON, enumerations.
    "text": _LISTED - _NUMBERS - {"boolean", "bytes"},
    "integer": _NUMBERS | {"text", "other"},
    "float": {"float", "decimal", "text", "other"},
    "decimal": {"float", "decimal", "text", "other"},
    "boolean": {"boolean", "integer", "other"},
    "bytes": {"bytes", "other"},
    "date": {"date", "timestamp", "text", "other"},
    "time": {"time", "text", "other"},
    "timestamp": {"timestamp", "text", "other"},
    "list": {"other"},  # some drivers make a text of it that nothing reads, or several values
    "map": {"other"},
    "instant": set(),
}
"""Kinds of columns that take a kind of field."""
_INSTEAD: Final = {
    "list": "json.dumps in a map() makes a text of it",
    "map": "json.dumps in a map() makes a text of it",
    "instant": "make it a datetime in a map(), of the type Types.SQL_TIMESTAMP()",
}
_BASIC: Final = {
    **dict.fromkeys((BasicType.STRING, BasicType.CHAR), "text"),
    **dict.fromkeys(
        (BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT),
        "integer",
    ),
    **dict.fromkeys((BasicType.FLOAT, BasicType.DOUBLE), "float"),
    BasicType.BIG_DEC: "decimal",
    BasicType.BOOLEAN: "boolean",
}


def misfits(table: sa.Table, columns: Sequence[str], row_type: RowTypeInfo) -> Iterable[str]:
    """What is wrong with writing rows of this type into these columns; nothing if they fit.

    Fields are taken by name if the type has all the names of `columns`, else by position.
    """
    known = list(table.columns.keys())
    for name in columns:
        if name not in known:
            near = [one for one in known if one.lower() == name.lower()]
            hint = f" (it has {near[0]!r}: capital letters count)" if near else ""
            yield f"it has no column {name!r}{hint}"
    names, types = list(row_type.get_field_names()), list(row_type.get_field_types())
    if not set(columns) <= set(names):
        if len(columns) != len(names):
            yield f"{len(columns)} columns are set, but rows have {len(names)} fields: {names}"
            return
        names = list(columns)
    for name, field in zip(names, types, strict=True):
        if name not in columns or name not in known:
            continue
        kind, column = _written_kind(field), table.columns[name].type
        if kind is not None and column_kind(column) not in _TAKES[kind]:
            hint = f" ({_INSTEAD[kind]})" if kind in _INSTEAD else ""
            yield (
                f"the column {name!r} is {column}, which does not take the field's type "
                f"{field}{hint}"
            )
        elif table.columns[name].computed is not None:
            yield f"the column {name!r} is generated: the database computes it, and takes no value"


def is_unique(inspector: sa.Inspector, table: sa.Table, keys: Sequence[str]) -> bool:
    """Whether the table has a primary key or a whole unique index of exactly these columns."""
    name, schema = table.name, table.schema
    found = [inspector.get_pk_constraint(name, schema).get("constrained_columns", [])]
    if inspector.dialect.name not in {"mysql", "mariadb"}:  # there each constraint is an index, too
        found += [one["column_names"] for one in inspector.get_unique_constraints(name, schema)]
    # SQLite shows a constraint in a column's definition by its index alone.
    for index in inspector.get_indexes(name, schema, include_auto_indexes=True):
        options = index.get("dialect_options", {})
        is_partial = any(
            key.endswith(("_where", "_length"))
            for key, value in options.items()
            if value is not None
        )
        if index["unique"] and not is_partial:
            found.append([str(one) for one in index["column_names"]])
    return any(set(one) == set(keys) for one in found)


_CLASSES: Final = (
    (DecimalTypeInfo, "decimal"),
    (DateTypeInfo, "date"),
    (TimestampTypeInfo | UtcTimestampTypeInfo, "timestamp"),
    (TimeTypeInfo | LocalTimeTypeInfo, "time"),
)


_WRITTEN_ONLY: Final = (
    (BasicArrayTypeInfo | ListTypeInfo | ObjectArrayTypeInfo | PrimitiveArrayTypeInfo, "list"),
    (MapTypeInfo, "map"),
    (InstantTypeInfo, "instant"),
)


def _written_kind(kind: Any) -> str | None:
    """As `field_kind`, also of values that few columns take, or none."""
    found = field_kind(kind)
    if found is not None:
        return found
    return next((name for classes, name in _WRITTEN_ONLY if isinstance(kind, classes)), None)


def field_kind(kind: Any) -> str | None:
    """None: a value that only the database can judge, such as a list or a pickled object."""
    if isinstance(kind, BasicTypeInfo):
        return _BASIC.get(kind.basic_type)
    if kind == Types.PRIMITIVE_ARRAY(Types.BYTE()):
        return "bytes"
    return next((name for classes, name in _CLASSES if isinstance(kind, classes)), None)


def column_kind(kind: Any) -> str:
    import sqlalchemy as sa

    for name, classes in (
        ("boolean", sa.Boolean),
        ("integer", sa.Integer),
        ("float", sa.Float),
        ("decimal", sa.Numeric),
        ("bytes", sa.types._Binary),  # noqa: SLF001 - BYTEA, BLOB and VARBINARY have no public base
        ("date", sa.Date),
        ("timestamp", sa.DateTime),
        ("time", sa.Time),
        ("text", sa.String),
    ):
        if isinstance(kind, classes):
            return "other" if name == "text" and isinstance(kind, sa.Enum) else name
    return "other"
