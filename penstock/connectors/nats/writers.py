"""The writers of a JetStreamSink, and its committer.

Each message has an id, and the server stores it only if it has not seen the id within the stream's duplicate window. So what was sent
when a connection broke is sent again. Exactly once: messages are in the checkpoint until it is complete, and their ids name it.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.base import Batch, Committer, RowBatch, WriterContext
from penstock.connectors.api.sending import bodies_of
from penstock.connectors.nats.client import NatsAddress, NatsLink, checked_subject, most_bytes_of
from penstock.engine.model.errors import ExternalError, RefusedForGood
from penstock.engine.runtime.sink import SendFigures

_NAME: Final = "JetStreamSink"
_MESSAGES: Final = 1000
_BYTES: Final = 4 << 20
_ACK_TIMEOUT_S: Final = 10.0
_NO_STREAM: Final = 503
_ID_HEADER: Final = "Nats-Msg-Id"
_AROUND_ID: Final = len(f"NATS/1.0\r\n{_ID_HEADER}: \r\n\r\n")
_MOST_ID: Final = 512
"""More than the ids that a writer gives have. Headers count, too."""

Message: TypeAlias = tuple[str, bytes, str | None]
"""Subject, body, id; None: the writer gives it one."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """`subject`: fixed, or the function that gives it. `message_id`: of a record; None: the sink's own."""

    address: NatsAddress
    subject: str | Callable[[Any], str]
    schema: SerializationSchema
    message_id: Callable[[Any], str] | None


@dataclass(frozen=True, slots=True)
class StagedMessages:
    """In checkpoints: messages that are committed together. `id`: begins theirs."""

    id: str
    messages: tuple[tuple[str, bytes], ...]


class _MessageWriter(ABC):
    """What both writers do: make messages of records."""

    def __init__(self, settings: WriteSettings) -> None:
        self.settings = settings
        self.sent = SendFigures()
        self._most_bytes: int | None = None

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.convert(batch), watermark_ms)

    def convert(self, batch: Batch) -> list[Message]:
        assert isinstance(batch, RowBatch), "a JetStreamSink accepts rows"
        subject, schema, id_of = (
            self.settings.subject,
            self.settings.schema,
            self.settings.message_id,
        )
        made: list[Message] = []
        for value, body in zip(batch.values, bodies_of(schema, batch.values), strict=True):
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
        if self._most_bytes is None:
            self._most_bytes = self.most_bytes()
        subject, body, message_id = max(messages, key=lambda one: len(one[1]) + len(one[2] or ""))
        around = _AROUND_ID + (_MOST_ID if message_id is None else len(message_id))
        if len(body) + around > self._most_bytes:
            raise RefusedForGood(
                f"{_NAME}: a message for {subject!r} has {len(body)} bytes, and {around} for its "
                f"id. {self.settings.address} takes {self._most_bytes} (max_payload). Set that "
                "higher, or make the records smaller."
            )

    @abstractmethod
    def most_bytes(self) -> int:
        """What the server takes as a message. Raises: ExternalError: it does not answer."""

    @abstractmethod
    def write_converted(self, converted: list[Message], watermark_ms: int) -> None: ...


class DirectWriter(_MessageWriter):
    """Publishes each batch at once, and waits until all of it is stored."""

    def __init__(self, settings: WriteSettings, where: str) -> None:
        super().__init__(settings)
        self._link = NatsLink(settings.address, where)
        self._token = uuid.uuid4().hex
        self._number = 0

    def most_bytes(self) -> int:
        return most_bytes_of(self._link)

    def write_converted(self, converted: list[Message], watermark_ms: int) -> None:
        for piece in _pieces(converted):
            named = []
            for subject, body, message_id in piece:
                self._number += 1
                named.append((subject, body, message_id or f"{self._token}-{self._number}"))
            try:
                publish(self._link, named)
            except ExternalError:
                self.sent.errors += len(piece)
                raise
            self.sent.bytes += sum(len(one[1]) for one in piece)

    def prepare_commit(self) -> Sequence[object]:
        return ()

    def close(self) -> None:
        self._link.close()


class StagingWriter(_MessageWriter):
    """Keeps messages for the next checkpoint."""

    def __init__(self, settings: WriteSettings, context: WriterContext, where: str) -> None:
        super().__init__(settings)
        self._attempt = f"{context.operator_id}:{context.attempt_prefix}-{context.subtask}"
        self._where = where
        self._messages: list[Message] = []
        self._number = 0

    def most_bytes(self) -> int:
        """It has no connection else."""
        link = NatsLink(self.settings.address, self._where)
        try:
            return most_bytes_of(link)
        finally:
            link.close()

    def write_converted(self, converted: list[Message], watermark_ms: int) -> None:
        self._messages += converted
        self.sent.bytes += sum(len(one[1]) for one in converted)

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        return self._take(str(checkpoint_id))

    def prepare_commit(self) -> Sequence[object]:
        return self._take("end")

    def close(self) -> None:
        self._messages.clear()

    def _take(self, checkpoint: str) -> list[StagedMessages]:
        messages, self._messages = self._messages, []
        staged = []
        for piece in _pieces(messages):
            self._number += 1
            name = f"penstock:{self._attempt}:{checkpoint}:{self._number}"
            staged.append(StagedMessages(name, tuple(one[:2] for one in piece)))
        return staged


class PublishingCommitter(Committer):
    """Publishes staged messages. Those that the server has already are not stored again."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._link: NatsLink | None = None

    def commit(self, committables: Sequence[object]) -> None:
        if self._link is None:
            self._link = NatsLink(self._settings.address, f"{_NAME}, commit")
        for staged in committables:
            assert isinstance(staged, StagedMessages)
            named = [
                (subject, body, f"{staged.id}:{number}")
                for number, (subject, body) in enumerate(staged.messages)
            ]
            publish(self._link, named)

    def abort(self, job_prefix: str) -> None:
        """Nothing is in NATS before its commit."""

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class PublishRefused(Exception):
    """What the server says of a message that it does not store. `code`: as HTTP has it."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def publish(link: NatsLink, messages: Sequence[tuple[str, bytes, str]]) -> None:
    """Until the server has stored all of them.

    The client's own `publish_async` never hears of a refusal: it raises where it reads the answer, and who waits for the
    answer goes on waiting.

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
        told = json.loads(answer.data).get("error")
        if told is None:
            return None
        text, code = told.get("description", told), told.get("code", 0)
    return PublishRefused(f"a message of {len(body)} bytes for {subject!r}: {text}", code)


def _checked_id(message_id: object) -> str:
    is_right = isinstance(message_id, str) and bool(message_id) and message_id.isprintable()
    if not is_right or not str(message_id).isascii():
        raise TypeError(
            f"{_NAME}: the function of set_message_id gave {message_id!r:.200}; expected a text of "
            "printable ASCII characters"
        )
    return str(message_id)


def _pieces(messages: Sequence[Message]) -> Iterator[list[Message]]:
    piece: list[Message] = []
    size = 0
    for one in messages:
        grown = size + len(one[1])
        if piece and (len(piece) == _MESSAGES or grown > _BYTES):
            yield piece
            piece, grown = [], len(one[1])
        piece.append(one)
        size = grown
    if piece:
        yield piece
