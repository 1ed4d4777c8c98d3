"""JetStreamSink: publishes a message to NATS JetStream for each record, at least or exactly once. Needs nats-py (`penstock[nats]`).

Source: NATS JetStream's publish acknowledgements and Nats-Msg-Id; Flink's KafkaSink for the guarantees and their names.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from penstock.common.extras import extra
from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.base import DeliveryGuarantee
from penstock.connectors.api.builder import MISSING
from penstock.connectors.api.sending import Outlet, PieceSink, bodies_of
from penstock.connectors.nats.client import (
    NatsBuilder,
    NatsLink,
    NatsSettings,
    checked_subject,
    look,
    most_bytes_of,
)
from penstock.engine.model.errors import ConfigurationError, RefusedForGood

_NAME: Final = "JetStreamSink"
_ACK_TIMEOUT_S: Final = 10.0
_NO_STREAM: Final = 503
_ID_HEADER: Final = "Nats-Msg-Id"
_AROUND_ID: Final = len(f"NATS/1.0\r\n{_ID_HEADER}: \r\n\r\n")
_MOST_ID: Final = 512
"""More than the ids that a writer gives have. Headers count, too."""

Message: TypeAlias = tuple[str, bytes, str | None]
"""Subject, body, id; None: the writer gives it one."""


@dataclass(frozen=True, slots=True)
class _Settings(NatsSettings):
    subject: str | Callable[[Any], str] = MISSING
    schema: SerializationSchema = MISSING
    message_id: Callable[[Any], str] | None = None
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE


@dataclass(frozen=True, slots=True)
class StagedMessages:
    """In checkpoints: messages that are committed together. `id`: begins theirs."""

    id: str
    messages: tuple[tuple[str, bytes], ...]


class MessageOutlet(Outlet[Message]):
    """Publishes messages, each with an id, and the server stores it only if it has not seen the id within the stream's duplicate window.

    So what was sent when a connection broke is sent again. Exactly once: ids name the checkpoint that had the messages.
    """

    most_bytes = 4 << 20

    def __init__(self, settings: _Settings, where: str) -> None:
        super().__init__(settings, where)
        self._server_takes: int | None = None
        self._token = uuid.uuid4().hex
        self._number = 0

    def converted(self, values: Sequence[Any]) -> list[Message]:
        settings = self.settings
        subject, id_of = settings.subject, settings.message_id
        made: list[Message] = []
        for value, body in zip(values, bodies_of(settings.schema, values), strict=True):
            to = subject
            if not isinstance(to, str):
                where = f"{_NAME}: the function of set_subject"
                to = checked_subject(where, to(value), is_filter=False)
            made.append((to, body, None if id_of is None else _checked_id(id_of(value))))
        self._check_sizes(made)
        return made

    def _check_sizes(self, messages: Sequence[Message]) -> None:
        """Here, so that the policy for errors has it, and no checkpoint. Raises: RefusedForGood: one is too large."""
        if not messages:
            return
        if self._server_takes is None:
            self._server_takes = self._ask_most_bytes()
        subject, body, message_id = max(messages, key=lambda one: len(one[1]) + len(one[2] or ""))
        around = _AROUND_ID + (_MOST_ID if message_id is None else len(message_id))
        if len(body) + around > self._server_takes:
            raise RefusedForGood(
                f"{_NAME}: a message for {subject!r} has {len(body)} bytes, and {around} for its "
                f"id. {self.settings} takes {self._server_takes} (max_payload). Set that "
                "higher, or make the records smaller."
            )

    def _ask_most_bytes(self) -> int:
        """What the server takes as a message. Raises: ExternalError: it does not answer."""
        if self.link is not None:
            return most_bytes_of(self.link)
        with closing(NatsLink(self.settings, self._where)) as link:
            return most_bytes_of(link)

    def size(self, one: Message) -> int:
        return len(one[1])

    def connect(self) -> NatsLink:
        return NatsLink(self.settings, self._where)

    def send(self, piece: Sequence[Message]) -> int:
        named = []
        for subject, body, message_id in piece:
            self._number += 1
            named.append((subject, body, message_id or f"{self._token}-{self._number}"))
        publish(self.link, named)
        return sum(map(self.size, piece))

    def staged(self, piece: Sequence[Message], attempt: str, number: str) -> StagedMessages:
        name = f"penstock:{attempt}:{number}"
        return StagedMessages(name, tuple(one[:2] for one in piece))

    def commit(self, committables: Sequence[Any]) -> None:
        for staged in committables:
            named = [
                (subject, body, f"{staged.id}:{number}")
                for number, (subject, body) in enumerate(staged.messages)
            ]
            publish(self.link, named)


class JetStreamSink(PieceSink):
    """Publishes to streams. Not in PyFlink. Build it with `JetStreamSink.builder()`."""

    name = _NAME
    outlet = MessageOutlet

    def __repr__(self) -> str:
        return f"{_NAME}({self.settings}, {self.settings.subject})"

    @staticmethod
    def builder() -> JetStreamSink.Builder:
        return JetStreamSink.Builder()

    class Builder(NatsBuilder):
        """Builds a JetStreamSink; the setters return the builder."""

        name = _NAME
        begin = _Settings

        def set_subject(self, subject: str | Callable[[Any], str]) -> Self:
            """Set the subject, or a function from a record to its subject. A stream must take it."""
            if not callable(subject):
                checked_subject(f"{_NAME}.set_subject", subject, is_filter=False)
            return self._with(subject=subject)

        def set_serializer(self, schema: SerializationSchema) -> Self:
            """Set the schema that makes a message of a record."""
            return self._with_schema(SerializationSchema, "set_serializer", schema)

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
            return self._with_guarantee(guarantee)

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
            return JetStreamSink(settings)

    def validate(self) -> None:
        """Check client and login, and that a stream takes the subject. Raises ConfigurationError.

        A server that the driver does not reach is no error: only the subtasks must reach it.
        """
        where = f"{_NAME} on the driver"
        subject = self.settings.subject
        not_found = extra("nats.js.errors", "nats", where).NotFoundError

        async def check(client: Any) -> None:
            if not isinstance(subject, str):
                return
            try:
                await client.jetstream().find_stream_name_by_subject(subject)
            except not_found as error:
                raise RefusedForGood(
                    f"{where}: no stream on {self.settings} takes the subject {subject!r}. Create "
                    "one (nats stream add), or correct set_subject."
                ) from error

        look(self.settings, where, check)


class PublishRefused(Exception):
    """What the server says of a message that it does not store. `code`: as HTTP has it."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def publish(link: NatsLink, messages: Sequence[tuple[str, bytes, str]]) -> None:
    """Publish messages, and wait until the server has stored all of them.

    The client's own `publish_async` does not report a refusal: it raises where it reads the answer,
    and a caller that awaits the answer keeps waiting.

    Raises: ExternalError. RefusedForGood: the server refuses a message, and would again.
    """

    async def send(client: Any) -> None:
        inbox = client.new_inbox()
        open_ones = set(range(len(messages)))
        ended = asyncio.get_running_loop().create_future()

        async def note(answer: Any) -> None:  # noqa: RUF029 - the client awaits it
            number = int(answer.subject.rpartition(".")[2])
            refused = _refusal(answer, *messages[number])
            open_ones.discard(number)
            if ended.done():
                return
            if refused is not None:
                ended.set_exception(refused)
            elif not open_ones:
                ended.set_result(None)

        answers = await client.subscribe(f"{inbox}.*", cb=note)
        try:
            for number, (subject, body, message_id) in enumerate(messages):
                headers = {_ID_HEADER: message_id}
                await client.publish(subject, body, f"{inbox}.{number}", headers)
            await asyncio.wait_for(ended, _ACK_TIMEOUT_S)
        finally:
            if client.is_connected:
                await answers.unsubscribe()

    link.call(send)


def _refusal(answer: Any, subject: str, body: bytes, _message_id: str) -> PublishRefused | None:
    """Why the message is not stored; None: it is."""
    if (answer.headers or {}).get("Status") == str(_NO_STREAM):
        text, code = "no stream takes it", _NO_STREAM
    else:
        refusal = json.loads(answer.data).get("error")
        if refusal is None:
            return None
        text, code = refusal.get("description", refusal), refusal.get("code", 0)
    return PublishRefused(f"a message of {len(body)} bytes for {subject!r}: {text}", code)


def _checked_id(message_id: object) -> str:
    is_right = isinstance(message_id, str) and bool(message_id) and message_id.isprintable()
    if not is_right or not str(message_id).isascii():
        raise TypeError(
            f"{_NAME}: the function of set_message_id gave {message_id!r:.200}; expected a text of "
            "printable ASCII characters"
        )
    return str(message_id)
