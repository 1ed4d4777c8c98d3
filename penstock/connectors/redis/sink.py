"""RedisStreamSink: appends an entry to a Redis stream for each record, at least or exactly once. Needs redis (`penstock[redis]`).

Source: Redis' XADD; Flink's KafkaSink for the guarantees and their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.common.serialization import SerializationSchema
from penstock.common.time import Duration
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.api.base import (
    Accepts,
    Committer,
    DeliveryGuarantee,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.api.staging_sink import StagingSink
from penstock.connectors.clients.tls import TlsFiles
from penstock.connectors.redis.client import RedisAddress, RedisBuilder, check_server, checked_name
from penstock.connectors.redis.entries import EntryWriter, RowWriter, ValueWriter, checked_row_type
from penstock.connectors.redis.writers import (
    DirectWriter,
    MarkingCommitter,
    StagingWriter,
    WriteSettings,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.time import millis_of

_NAME: Final = "RedisStreamSink"
_RETENTION: Final = Duration.of_days(7)


@dataclass(frozen=True, slots=True)
class _Settings:
    url: str = field(default="", repr=False)
    login: tuple[str | None, str | None] = field(default=(None, None), repr=False)
    tls: TlsFiles | None = None
    stream: str | Callable[[Any], str] | None = None
    entries: EntryWriter | None = None
    most_entries: int = 0
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    retention_s: int = _RETENTION.to_millis() // 1000


class RedisStreamSink(StagingSink):
    """Writes to Redis streams. Not in PyFlink. Build it with `RedisStreamSink.builder()`."""

    accepts = Accepts.ROWS
    is_converting = True

    def __init__(self, settings: _Settings, address: RedisAddress) -> None:
        """Use the builder."""
        assert settings.entries is not None
        assert settings.stream is not None
        self._settings = settings
        self._address = address
        self._writing = WriteSettings(
            self._address,
            settings.stream,
            settings.entries,
            settings.most_entries,
            settings.retention_s,
        )

    def __repr__(self) -> str:
        return f"{_NAME}({self._address}, {self._settings.stream})"

    @staticmethod
    def builder() -> RedisStreamSink.Builder:
        return RedisStreamSink.Builder()

    class Builder(RedisBuilder):
        """Builds a RedisStreamSink; the setters return the builder."""

        name = _NAME

        def __init__(self) -> None:
            super().__init__(_Settings())

        def set_stream(self, stream: str | Callable[[Any], str]) -> Self:
            """Set the stream's key, or a function from a record to the key of its stream."""
            if not callable(stream):
                checked_name(f"{_NAME}.set_stream", stream)
            return self._with(stream=stream)

        def set_value_serializer(self, schema: SerializationSchema, field: str = "value") -> Self:
            """Have entries with one field, whose value the schema makes of the record."""
            if not isinstance(schema, SerializationSchema):
                raise TypeError(
                    f"{_NAME}.set_value_serializer: expected a SerializationSchema, got "
                    f"{type(schema).__name__}."
                )
            return self._with(entries=ValueWriter(field, schema))

        def set_row_type(self, row_type: RowTypeInfo) -> Self:
            """Have entries with a field for each field of the Row, as text; None: the entry does not have the field."""
            return self._with(
                entries=RowWriter(checked_row_type(f"{_NAME}.set_row_type", row_type))
            )

        def set_max_length(self, entries: int) -> Self:
            """Have Redis trim the stream to about so many entries (`MAXLEN ~`). By default it grows without end."""
            if isinstance(entries, bool) or not isinstance(entries, int) or entries < 1:
                raise ConfigurationError(
                    f"{_NAME}.set_max_length: expected 1 or more, got {entries!r}."
                )
            return self._with(most_entries=entries)

        def set_delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
            """Set AT_LEAST_ONCE, the default, or EXACTLY_ONCE: entries come when a checkpoint is complete."""
            if guarantee not in {DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE}:
                raise ConfigurationError(
                    f"{_NAME}.set_delivery_guarantee: expected DeliveryGuarantee.AT_LEAST_ONCE or "
                    f"EXACTLY_ONCE, got {guarantee!r}."
                )
            return self._with(guarantee=guarantee)

        def set_mark_retention(self, retention: Duration) -> Self:
            """Set how long Redis remembers a commit, 7 days by default; for EXACTLY_ONCE.

            A checkpoint or savepoint that is restored later may write its last entries again.
            """
            retention_s = millis_of(retention) // 1000
            if retention_s < 1:
                raise ConfigurationError(
                    f"{_NAME}.set_mark_retention: expected 1 s or more, got {retention}."
                )
            return self._with(retention_s=retention_s)

        def build(self) -> RedisStreamSink:
            """Return the sink. Raises ConfigurationError: something is missing."""
            settings = self._complete(
                stream='set_stream("orders")',
                entries="set_value_serializer(schema) or set_row_type(type)",
            )
            return RedisStreamSink(settings, self._address(settings))

    @property
    def is_exactly_once(self) -> bool:
        return self._settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def validate(self) -> None:
        """Check client, login and stream. Raises ConfigurationError.

        A server that the driver does not reach is no error: only the subtasks must reach it.
        """
        stream = self._settings.stream
        streams = (stream,) if isinstance(stream, str) else ()
        check_server(self._address, streams, f"{_NAME} on the driver")

    def validate_input(self, input_type: Any) -> None:
        self._writing.entries.check_input(_NAME, input_type)

    def direct_writer(self, context: WriterContext) -> SinkWriter:
        return DirectWriter(self._writing, _where(context))

    def staging_writer(self, context: WriterContext) -> SinkWriter:
        return StagingWriter(self._writing, context, _where(context))

    def committer(self) -> Committer:
        return MarkingCommitter(self._writing)


def _where(context: WriterContext) -> str:
    return f"{_NAME}, subtask {context.subtask} of {context.parallelism}"
