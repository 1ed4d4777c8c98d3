"""What a change source knows of tables: columns with types, and the key. Does not know databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.cdc.splits import TableId
from penstock.engine.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Column:
    """`kind`: the type's name in the database, in its short form. `declared`: as it is written in DDL. `oid`: of PostgreSQL's type.

    `charset`: MySQL's name of the character set of a text.
    """

    name: str
    kind: str
    declared: str
    type_info: TypeInformation
    oid: int = 0
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as it was when the job was submitted. `key`: places of the primary key's columns."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def common_row_type(
    shapes: Sequence[TableShape], more: Mapping[str, TypeInformation], where: str
) -> RowTypeInfo:
    """The ROW type of the tables' rows. `more`: further fields.

    Raises: ConfigurationError: tables differ, or a further field has a column's name.
    """
    first = shapes[0]
    for other in shapes[1:]:
        if [(one.name, one.type_info) for one in other.columns] != [
            (one.name, one.type_info) for one in first.columns
        ]:
            raise ConfigurationError(
                f"{where}: the tables {first.table} and {other.table} have different columns: "
                f"{shown_columns(first)}, and {shown_columns(other)}. Rows of one stream have one "
                "type. Use a source for each, or "
                ".deserializer(JsonDebeziumDeserializationSchema()), whose records are texts."
            )
    if taken := [name for name in more if name in first.names]:
        raise ConfigurationError(
            f"{where}: the table {first.table} has a column {taken[0]!r}, and metadata_columns "
            "adds a field of that name. Leave that one out."
        )
    types = [*(column.type_info for column in first.columns), *more.values()]
    return RowTypeInfo(types, [*first.names, *more])


def shown_columns(shape: TableShape) -> str:
    """The columns as text."""
    return ", ".join(f"{one.name} {one.declared}" for one in shape.columns)
