"""RedisStreamSink: appends an entry to a Redis stream for each record, at least or exactly once. Needs redis (`penstock[redis]`).

Source: Redis' XADD; Flink's KafkaSink for the guarantees and their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Self, TypeAlias

from penstock.common.serialization import SerializationSchema
from penstock.common.time import Duration
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.api.base import DeliveryGuarantee
from penstock.connectors.api.builder import MISSING, checked_schema
from penstock.connectors.api.sending import Outlet, PieceSink
from penstock.connectors.redis.client import (
    RedisBuilder,
    RedisSettings,
    check_server,
    checked_name,
    clear_errors,
    connect,
)
from penstock.connectors.redis.entries import (
    EntryWriter,
    Flat,
    RowWriter,
    ValueWriter,
    checked_row_type,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.time import millis_of

_NAME: Final = "RedisStreamSink"
_RETENTION: Final = Duration.of_days(7)


MARKS: Final = "penstock:committed:"
# Keys: mark, stream. Arguments: seconds of the mark, most entries (0: no bound), then for each entry how many texts follow.
_APPEND: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local at, count = 3, 0
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  if ARGV[2] == '0' then
    redis.call('XADD', KEYS[2], '*', unpack(ARGV, at + 1, last))
  else
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, at + 1, last))
  end
  at, count = last + 1, count + 1
end
redis.call('SET', KEYS[1], count, 'EX', ARGV[1])
return count
"""

Addressed: TypeAlias = tuple[str, Flat]


@dataclass(frozen=True, slots=True)
class _Settings(RedisSettings):
    stream: str | Callable[[Any], str] = MISSING
    entries: EntryWriter = MISSING
    most_entries: int = 0
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    retention_s: int = _RETENTION.to_millis() // 1000


@dataclass(frozen=True, slots=True)
class StagedEntries:
    """In checkpoints: entries for one stream that are committed together. `mark`: names their commit."""

    mark: str
    stream: str
    entries: tuple[Flat, ...]


class EntryOutlet(Outlet[Addressed]):
    """Appends entries. Exactly once: a script appends those of a checkpoint and sets a mark that names it, both or neither, and a commit
    that finds its mark appends nothing. At least once: what was sent when the connection broke is sent again.
    """

    def converted(self, values: Sequence[Any]) -> list[Addressed]:
        stream, fields = self.settings.stream, self.settings.entries.fields
        if isinstance(stream, str):
            return [(stream, fields(value)) for value in values]
        where = f"{_NAME}: the function of set_stream"
        return [(checked_name(where, stream(value)), fields(value)) for value in values]

    def size(self, one: Addressed) -> int:
        return sum(map(len, one[1]))

    def pieces_to_stage(self, converted: list[Addressed]) -> Iterator[Sequence[Addressed]]:
        by_stream: dict[str, list[Addressed]] = {}
        for one in converted:
            by_stream.setdefault(one[0], []).append(one)
        return chain.from_iterable(map(self.pieces, by_stream.values()))

    def connect(self) -> Any:
        return connect(self.settings, self._where)

    def send(self, piece: Sequence[Addressed]) -> int:
        most = self.settings.most_entries
        bound = ("MAXLEN", "~", most) if most else ()
        pipeline = self.link.pipeline(transaction=False)
        for stream, flat in piece:
            pipeline.execute_command("XADD", stream, *bound, "*", *flat)
        with clear_errors(self.settings, self._where):
            pipeline.execute()
        return sum(map(self.size, piece))

    def staged(self, piece: Sequence[Addressed], attempt: str, number: str) -> StagedEntries:
        stream = piece[0][0]
        mark = f"{MARKS}{stream}:{attempt}:{number}"
        return StagedEntries(mark, stream, tuple(flat for _, flat in piece))

    def commit(self, committables: Sequence[Any]) -> None:
        append = self.link.register_script(_APPEND)
        for staged in committables:
            texts: list[Any] = [self.settings.retention_s, self.settings.most_entries]
            for flat in staged.entries:
                texts += (len(flat), *flat)
            with clear_errors(self.settings, self._where):
                append(keys=[staged.mark, staged.stream], args=texts)


class RedisStreamSink(PieceSink):
    """Writes to Redis streams. Not in PyFlink. Build it with `RedisStreamSink.builder()`."""

    name = _NAME
    outlet = EntryOutlet

    def __repr__(self) -> str:
        return f"{_NAME}({self.settings}, {self.settings.stream})"

    @staticmethod
    def builder() -> RedisStreamSink.Builder:
        return RedisStreamSink.Builder()

    class Builder(RedisBuilder):
        """Builds a RedisStreamSink; the setters return the builder."""

        name = _NAME
        begin = _Settings

        def set_stream(self, stream: str | Callable[[Any], str]) -> Self:
            """Set the stream's key, or a function from a record to the key of its stream."""
            if not callable(stream):
                checked_name(f"{_NAME}.set_stream", stream)
            return self._with(stream=stream)

        def set_value_serializer(self, schema: SerializationSchema, field: str = "value") -> Self:
            """Have entries with one field, whose value the schema makes of the record."""
            checked_schema(self._call("set_value_serializer"), schema, SerializationSchema)
            return self._with(entries=ValueWriter(field, schema))

        def set_row_type(self, row_type: RowTypeInfo) -> Self:
            """Have entries with a field for each field of the Row, as text; None: the entry does not have the field."""
            return self._with(
                entries=RowWriter(checked_row_type(f"{_NAME}.set_row_type", row_type))
            )

        def set_max_length(self, entries: int) -> Self:
            """Have Redis trim the stream to about this number of entries (`MAXLEN ~`). By default
            the stream grows without limit.
            """
            return self._with_number("set_max_length", 1, most_entries=entries)

        def set_delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
            """Set AT_LEAST_ONCE, the default, or EXACTLY_ONCE: entries come when a checkpoint is complete."""
            return self._with_guarantee(guarantee)

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
            return RedisStreamSink(settings)

    def validate(self) -> None:
        """Check client, login and stream. Raises ConfigurationError.

        A server that the driver does not reach is no error: only the subtasks must reach it.
        """
        stream = self.settings.stream
        streams = (stream,) if isinstance(stream, str) else ()
        check_server(self.settings, streams, f"{_NAME} on the driver")

    def validate_input(self, input_type: Any) -> None:
        self.settings.entries.check_input(_NAME, input_type)
