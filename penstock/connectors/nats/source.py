"""JetStreamSource: reads a stream of NATS JetStream by its sequence numbers, exactly once. Needs nats-py (`penstock[nats]`).

A position is the sequence of the last message. The consumer on the server is temporary and acknowledges nothing: checkpoints have
the position. Source: NATS JetStream's consumers (ordered consumers, by sequence); Flink's KafkaSource for positions and ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.api.base import Boundedness, Poller, PollingSource
from penstock.connectors.api.builder import checked_number
from penstock.connectors.clients.tls import TlsFiles
from penstock.connectors.nats.client import (
    NatsAddress,
    NatsBuilder,
    checked_stream,
    checked_subject,
    look,
    overlap,
)
from penstock.connectors.nats.stream_reader import (
    FIELDS,
    JetStreamPoller,
    ReadSettings,
    check_stream,
)
from penstock.engine.model.errors import ConfigurationError

_NAME: Final = "JetStreamSource"
_ALL: Final = ">"


@dataclass(frozen=True, slots=True)
class _Settings:
    """`start`: the first sequence to read; 0: that of the next message that comes. `start_ms`: the time instead."""

    urls: tuple[str, ...] = field(default=(), repr=False)
    login: tuple[str | None, str | None] = field(default=(None, None), repr=False)
    token: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None
    stream: str = ""
    subjects: tuple[str, ...] = (_ALL,)
    schema: DeserializationSchema | None = None
    with_subject: bool = False
    start: int = 1
    start_ms: int | None = None
    is_bounded: bool = False
    fails_on_loss: bool = True


class JetStreamSource(PollingSource):
    """Reads a stream from front to back. Not in PyFlink. Build it with `JetStreamSource.builder()`.

    A record's timestamp is the time at which the server got its message, in epoch ms.
    """

    def __init__(self, settings: _Settings, address: NatsAddress) -> None:
        """Use the builder."""
        self._settings = settings
        self._address = address
        self.shards = len(settings.subjects)
        self.default_parallelism = self.shards

    def __repr__(self) -> str:
        return f"{_NAME}({self._address}, {self._settings.stream})"

    @staticmethod
    def builder() -> JetStreamSource.Builder:
        return JetStreamSource.Builder()

    class Builder(NatsBuilder):
        """Builds a JetStreamSource; the setters return the builder."""

        name = _NAME

        def __init__(self) -> None:
            super().__init__(_Settings())

        def set_stream(self, name: str) -> Self:
            """Set the stream. It must be there, and keep messages by limits (retention "limits", the server's default)."""
            return self._with(stream=checked_stream(f"{_NAME}.set_stream", name))

        def set_subjects(self, *filters: str) -> Self:
            """Set which subjects of the stream are read, with * for a token and > for all that follow; by default all.

            Each filter is read by itself, so several of them are read in parallel, without an order between them.
            """
            where = f"{_NAME}.set_subjects"
            found = tuple(checked_subject(where, one, is_filter=True) for one in filters)
            if not found:
                raise ConfigurationError(f"{where}: expected at least one subject.")
            if both := overlap(found):
                raise ConfigurationError(
                    f"{where}: {both[0]!r} and {both[1]!r} have subjects in common, whose messages "
                    "would come twice."
                )
            return self._with(subjects=found)

        def set_deserializer(
            self, schema: DeserializationSchema, *, with_subject: bool = False
        ) -> Self:
            """Set the schema that makes a record of a message; None of it: no record.

            `with_subject`: records are Rows with the fields `subject` and `value`.
            """
            if not isinstance(schema, DeserializationSchema):
                raise TypeError(
                    f"{_NAME}.set_deserializer: expected a DeserializationSchema, got "
                    f"{type(schema).__name__}."
                )
            return self._with(schema=schema, with_subject=with_subject)

        def set_starting_sequence(self, sequence: int) -> Self:
            """Begin with this sequence number; by default with the first message that is there."""
            where = f"{_NAME}.set_starting_sequence"
            return self._with(start=checked_number(where, sequence, 1), start_ms=None)

        def set_starting_timestamp(self, epoch_ms: int) -> Self:
            """Begin with the first message that the server got at this time or later."""
            where = f"{_NAME}.set_starting_timestamp"
            return self._with(start=1, start_ms=checked_number(where, epoch_ms, 0))

        def set_starting_latest(self) -> Self:
            """Begin with the messages that come after the start of the job."""
            return self._with(start=0, start_ms=None)

        def set_bounded(self) -> Self:
            """End behind the last message that is there when the job starts."""
            return self._with(is_bounded=True)

        def set_fail_on_missing_messages(self, fails: bool) -> Self:
            """Set whether messages that the stream's limits have removed before they were read end the job; by default they do.

            If not, or if only some subjects are read, a warning is logged.
            """
            return self._with(fails_on_loss=fails)

        def build(self) -> JetStreamSource:
            """Return the source. Raises ConfigurationError: something is missing."""
            settings = self._complete(
                stream='set_stream("ORDERS")', schema="set_deserializer(schema)"
            )
            return JetStreamSource(settings, self._address(settings))

    @property
    def boundedness(self) -> Boundedness:
        if self._settings.is_bounded:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        assert self._settings.schema is not None
        kind = self._settings.schema.produced_type
        if self._settings.with_subject:
            return Types.ROW_NAMED(list(FIELDS), [Types.STRING(), kind])
        return kind

    def validate(self) -> None:
        """Check client, login and stream. Raises ConfigurationError.

        A server that the driver does not reach is no error: only the subtasks must reach it.
        """
        where = f"{_NAME} on the driver"
        stream = self._settings.stream

        async def check(client: Any) -> None:
            await check_stream(client.jetstream(), stream, f"{where}: {self._address}")

        look(self._address, where, check)

    def create_poller(self, shard: int) -> Poller:
        settings = self._settings
        assert settings.schema is not None
        subject = settings.subjects[shard]
        return JetStreamPoller(
            ReadSettings(
                address=self._address,
                stream=settings.stream,
                subject=subject,
                reads_all=subject == _ALL,
                schema=settings.schema,
                with_subject=settings.with_subject,
                start=settings.start,
                start_ms=settings.start_ms,
                is_bounded=settings.is_bounded,
                fails_on_loss=settings.fails_on_loss,
                where=f"{_NAME}, stream {settings.stream!r}, subject {subject!r}",
            )
        )
