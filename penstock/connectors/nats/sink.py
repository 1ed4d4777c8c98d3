"""JetStreamSink: publishes a message to NATS JetStream for each record, at least or exactly once. Needs nats-py (`penstock[nats]`).

Source: NATS JetStream's publish acknowledgements and Nats-Msg-Id; Flink's KafkaSink for the guarantees and their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.common.extras import extra
from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.base import (
    Accepts,
    Committer,
    DeliveryGuarantee,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.api.sending import StagingSink
from penstock.connectors.clients.tls import TlsFiles
from penstock.connectors.nats.client import NatsAddress, NatsBuilder, checked_subject, look
from penstock.connectors.nats.writers import (
    DirectWriter,
    PublishingCommitter,
    StagingWriter,
    WriteSettings,
)
from penstock.engine.model.errors import ConfigurationError, RefusedForGood

_NAME: Final = "JetStreamSink"


@dataclass(frozen=True, slots=True)
class _Settings:
    urls: tuple[str, ...] = field(default=(), repr=False)
    login: tuple[str | None, str | None] = field(default=(None, None), repr=False)
    token: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None
    subject: str | Callable[[Any], str] | None = None
    schema: SerializationSchema | None = None
    message_id: Callable[[Any], str] | None = None
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE


class JetStreamSink(StagingSink):
    """Publishes to streams. Not in PyFlink. Build it with `JetStreamSink.builder()`."""

    accepts = Accepts.ROWS
    is_converting = True

    def __init__(self, settings: _Settings, address: NatsAddress) -> None:
        """Use the builder."""
        assert settings.subject is not None
        assert settings.schema is not None
        self._settings = settings
        self._address = address
        self._writing = WriteSettings(
            address, settings.subject, settings.schema, settings.message_id
        )

    def __repr__(self) -> str:
        return f"{_NAME}({self._address}, {self._settings.subject})"

    @staticmethod
    def builder() -> JetStreamSink.Builder:
        return JetStreamSink.Builder()

    class Builder(NatsBuilder):
        """Builds a JetStreamSink; the setters return the builder."""

        name = _NAME

        def __init__(self) -> None:
            super().__init__(_Settings())

        def set_subject(self, subject: str | Callable[[Any], str]) -> Self:
            """Set the subject, or a function from a record to its subject. A stream must take it."""
            if not callable(subject):
                checked_subject(f"{_NAME}.set_subject", subject, is_filter=False)
            return self._with(subject=subject)

        def set_serializer(self, schema: SerializationSchema) -> Self:
            """Set the schema that makes a message of a record."""
            if not isinstance(schema, SerializationSchema):
                raise TypeError(
                    f"{_NAME}.set_serializer: expected a SerializationSchema, got "
                    f"{type(schema).__name__}."
                )
            return self._with(schema=schema)

        def set_message_id(self, function: Callable[[Any], str]) -> Self:
            """Set a function from a record to its `Nats-Msg-Id`.

            The server stores a message only if it has not seen the id within the stream's duplicate window.
            """
            if not callable(function):
                raise TypeError(f"{_NAME}.set_message_id: expected a function, got {function!r}.")
            return self._with(message_id=function)

        def set_delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
            """Set AT_LEAST_ONCE, the default, or EXACTLY_ONCE: messages come when a checkpoint is complete.

            A commit that is repeated within the stream's duplicate window (2 min by default) publishes nothing.
            """
            if guarantee not in {DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE}:
                raise ConfigurationError(
                    f"{_NAME}.set_delivery_guarantee: expected DeliveryGuarantee.AT_LEAST_ONCE or "
                    f"EXACTLY_ONCE, got {guarantee!r}."
                )
            return self._with(guarantee=guarantee)

        def build(self) -> JetStreamSink:
            """Return the sink. Raises ConfigurationError: something is missing."""
            settings = self._complete(
                subject='set_subject("orders")', schema="set_serializer(schema)"
            )
            if settings.message_id and settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
                raise ConfigurationError(
                    f"{_NAME}: EXACTLY_ONCE gives messages ids of its own. Leave set_message_id "
                    "out, or set_delivery_guarantee."
                )
            return JetStreamSink(settings, self._address(settings))

    @property
    def is_exactly_once(self) -> bool:
        return self._settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def validate(self) -> None:
        """Check client and login, and that a stream takes the subject. Raises ConfigurationError.

        A server that the driver does not reach is no error: only the subtasks must reach it.
        """
        where = f"{_NAME} on the driver"
        subject = self._settings.subject
        not_found = extra("nats.js.errors", "nats", where).NotFoundError

        async def check(client: Any) -> None:
            if not isinstance(subject, str):
                return
            try:
                await client.jetstream().find_stream_name_by_subject(subject)
            except not_found as error:
                raise RefusedForGood(
                    f"{where}: no stream on {self._address} takes the subject {subject!r}. Create "
                    "one (nats stream add), or correct set_subject."
                ) from error

        look(self._address, where, check)

    def direct_writer(self, context: WriterContext) -> SinkWriter:
        return DirectWriter(self._writing, _where(context))

    def staging_writer(self, context: WriterContext) -> SinkWriter:
        return StagingWriter(self._writing, context, _where(context))

    def committer(self) -> Committer:
        return PublishingCommitter(self._writing)


def _where(context: WriterContext) -> str:
    return f"{_NAME}, subtask {context.subtask} of {context.parallelism}"
