"""RedisStreamSource: reads entries of Redis streams by their ids, exactly once. Needs redis (`penstock[redis]`).

A stream is a split, and its position is the id of the last entry. No consumer group: checkpoints have the positions, so
Redis has nothing to keep. Source: Redis' XREAD and XINFO STREAM; Flink's KafkaSource for what is a position and an end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.connectors.clients.tls import TlsFiles
from penstock.connectors.redis.client import RedisAddress, RedisBuilder, check_server, checked_name
from penstock.connectors.redis.entries import EntryReader, RowReader, ValueReader, checked_row_type
from penstock.connectors.redis.splits import (
    BEGINNING,
    LATEST,
    StreamsEnumerator,
    before_ms,
    parsed_id,
)
from penstock.connectors.redis.stream_reader import ReadSettings, RedisReader
from penstock.engine.model.errors import ConfigurationError

_NAME: Final = "RedisStreamSource"


@dataclass(frozen=True, slots=True)
class _Settings:
    url: str = field(default="", repr=False)
    login: tuple[str | None, str | None] = field(default=(None, None), repr=False)
    tls: TlsFiles | None = None
    streams: tuple[str, ...] = ()
    entries: EntryReader | None = None
    starting: str = BEGINNING
    is_bounded: bool = False
    fails_on_loss: bool = True


class RedisStreamSource(Source):
    """Reads Redis streams from front to back. Not in PyFlink. Build it with `RedisStreamSource.builder()`.

    A record's timestamp is the time in its entry's id, in epoch ms.
    """

    def __init__(self, settings: _Settings, address: RedisAddress) -> None:
        """Use the builder."""
        assert settings.entries is not None
        self._settings = settings
        self._entries = settings.entries
        self._address = address

    def __repr__(self) -> str:
        return f"{_NAME}({self._address}, {', '.join(self._settings.streams)})"

    @staticmethod
    def builder() -> RedisStreamSource.Builder:
        return RedisStreamSource.Builder()

    class Builder(RedisBuilder):
        """Builds a RedisStreamSource; the setters return the builder."""

        name = _NAME

        def __init__(self) -> None:
            super().__init__(_Settings())

        def set_streams(self, *names: str) -> Self:
            """Set the keys of the streams. One that is not there yet is waited for."""
            for name in names:
                checked_name(f"{_NAME}.set_streams", name)
            if len(set(names)) < len(names):
                raise ConfigurationError(f"{_NAME}.set_streams: a name is there twice: {names}.")
            return self._with(streams=names)

        def set_value_deserializer(
            self, schema: DeserializationSchema, field: str = "value"
        ) -> Self:
            """Set the schema that makes a record of one field's value; None of it: no record."""
            if not isinstance(schema, DeserializationSchema):
                raise TypeError(
                    f"{_NAME}.set_value_deserializer: expected a DeserializationSchema, got "
                    f"{type(schema).__name__}."
                )
            return self._with(entries=ValueReader(field, schema))

        def set_row_type(self, row_type: RowTypeInfo) -> Self:
            """Have records be Rows with the entry's fields of these names, read from text by their types."""
            return self._with(
                entries=RowReader(checked_row_type(f"{_NAME}.set_row_type", row_type))
            )

        def set_starting_id(self, entry_id: str) -> Self:
            """Begin behind this entry, such as "1526919030474-55". By default with the first one that is there."""
            return self._with(starting=parsed_id(f"{_NAME}.set_starting_id", entry_id))

        def set_starting_timestamp(self, epoch_ms: int) -> Self:
            """Begin with the first entry of this time or later."""
            return self._with(starting=before_ms(f"{_NAME}.set_starting_timestamp", epoch_ms))

        def set_starting_latest(self) -> Self:
            """Begin with the entries that come after the start of the job. The driver must reach the server."""
            return self._with(starting=LATEST)

        def set_bounded(self) -> Self:
            """End behind the last entry that is there when the job starts. The driver must reach the server."""
            return self._with(is_bounded=True)

        def set_fail_on_missing_entries(self, fails: bool) -> Self:
            """Set whether entries that were deleted or trimmed before they were read end the job; by default they do.

            If not, a warning is logged. Servers before Redis 7 do not tell.
            """
            return self._with(fails_on_loss=fails)

        def build(self) -> RedisStreamSource:
            """Return the source. Raises ConfigurationError: something is missing."""
            settings = self._complete(
                streams='set_streams("orders")',
                entries="set_value_deserializer(schema) or set_row_type(type)",
            )
            return RedisStreamSource(settings, self._address(settings))

    @property
    def boundedness(self) -> Boundedness:
        if self._settings.is_bounded:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._entries.produced_type

    def validate(self) -> None:
        """Check client, login and streams. Raises ConfigurationError.

        A server that the driver does not reach is no error here.
        """
        check_server(self._address, self._settings.streams, f"{_NAME} on the driver")

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        settings = self._settings
        return StreamsEnumerator(
            context,
            self._address,
            settings.streams,
            settings.starting,
            is_bounded=settings.is_bounded,
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        settings = self._settings
        where = f"{_NAME}, subtask {context.subtask()}"
        return RedisReader(
            context,
            ReadSettings(
                self._address, settings.streams, self._entries, settings.fails_on_loss, where
            ),
        )
