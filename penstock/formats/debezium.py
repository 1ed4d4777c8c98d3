"""Changes of a database's rows as Debezium writes them in JSON. Does not know any connector.

An insert is one Row of kind INSERT, a delete one of kind DELETE, and an update two: UPDATE_BEFORE and UPDATE_AFTER. So what is written
back may have a delete and an insert in place of an update.
Source: Flink's debezium-json format (DebeziumJsonDeserializationSchema, DebeziumJsonSerializationSchema). Not in PyFlink's DataStream API.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.common.serialization import DeserializationSchema, SerializationSchema, Several
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.engine.model.row import Row, RowKind
from penstock.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.formats.text_values import checked_row_type

_DELETES: Final = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})


class DebeziumJsonDeserializationSchema(DeserializationSchema):
    """Turns a change of Debezium into Rows with kinds. A tombstone gives no record."""

    def __init__(
        self,
        row_type: TypeInformation,
        *,
        schema_include: bool = False,
        ignore_parse_errors: bool = False,
    ) -> None:
        """Check the type. Raises TypeError or ConfigurationError: it is no ROW.

        Args:
            row_type: the ROW type of the table's rows. Columns that it does not have are skipped, missing ones are None.
            schema_include: whether each message has its schema, as Kafka Connect's JsonConverter writes it with `schemas.enable`: the change
                is in `payload` then.
            ignore_parse_errors: fields that cannot be read are None, and messages that are no changes are skipped.
        """
        self._row_type = checked_row_type(row_type)
        self._ignores_errors = ignore_parse_errors
        self._is_wrapped = schema_include
        change = Types.ROW_NAMED(
            ["before", "after", "op"], [self._row_type, self._row_type, Types.STRING()]
        )
        read = Types.ROW_NAMED(["payload"], [change]) if schema_include else change
        builder = JsonRowDeserializationSchema.builder().type_info(read)
        self._json = (builder.ignore_parse_errors() if ignore_parse_errors else builder).build()

    @property
    def produced_type(self) -> TypeInformation:
        """The ROW type of the table's rows."""
        return self._row_type

    def deserialize(self, data: bytes) -> Any:
        """Return `Several` Rows, one or two; None: there is none.

        Raises ValueError: it is no change, and errors are not ignored.
        """
        read = self._json.deserialize(data)
        change = read[0] if read is not None and self._is_wrapped else read
        if not data or (change is None and self._ignores_errors):
            return None
        try:
            return _changes(change)
        except ValueError as error:
            if self._ignores_errors:
                return None
            raise ValueError(f"{error} Message: {bytes(data[:200])!r}") from None


def _changes(change: Row | None) -> Several:
    if change is None:
        raise ValueError(
            "a message has no 'payload'. If its changes come without a schema, leave "
            "schema_include out."
        )
    before, after, op = change
    if op in {"c", "r"}:  # "r": of a snapshot
        return Several([_of_kind(RowKind.INSERT, after, "after", op)])
    if op == "u":
        return Several([
            _of_kind(RowKind.UPDATE_BEFORE, before, "before", op),
            _of_kind(RowKind.UPDATE_AFTER, after, "after", op),
        ])
    if op == "d":
        return Several([_of_kind(RowKind.DELETE, before, "before", op)])
    raise ValueError(
        f"a message's 'op' is {op!r}; expected 'c', 'r', 'u' or 'd'. If the change is in "
        "'payload', set schema_include."
    )


def _of_kind(kind: RowKind, row: Row | None, where: str, op: str) -> Row:
    if row is None:
        advice = (
            " For PostgreSQL, set REPLICA IDENTITY FULL for the table, so that it logs rows as "
            "they were."
            if where == "before"
            else ""
        )
        raise ValueError(f"a message with 'op' {op!r} has no row in {where!r}.{advice}")
    row.set_row_kind(kind)
    return row


class DebeziumJsonSerializationSchema(SerializationSchema):
    """Turns a Row with a kind into a change as Debezium writes it: `before`, `after` and `op`, without a schema.

    INSERT and UPDATE_AFTER become "c", UPDATE_BEFORE and DELETE "d".
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        """Raises TypeError or ConfigurationError: `row_type` is no ROW."""
        found = checked_row_type(row_type)
        self._json = JsonRowSerializationSchema.builder().with_type_info(found).build()

    def serialize(self, value: Any) -> bytes:
        """Return the change as bytes. Raises ValueError: the value is not of the declared type."""
        row = self._json.serialize(value)
        kind = value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT
        if kind in _DELETES:
            return b'{"before":%b,"after":null,"op":"d"}' % row
        return b'{"before":null,"after":%b,"op":"c"}' % row
