"""JetStreamSource: reads a stream of NATS JetStream by its sequence numbers, exactly once. Needs nats-py (`penstock[nats]`).

A position is the sequence of the last message. The consumer on the server is temporary and acknowledges nothing: checkpoints have
the position. Source: NATS JetStream's consumers (ordered consumers, by sequence); Flink's KafkaSource for positions and ends.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np

from penstock.common.extras import extra
from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import Batch, Poller, PollingSource, QueuePoller
from penstock.connectors.api.builder import MISSING
from penstock.connectors.api.messaging.records import NO_RECORDS, NamedMessages
from penstock.connectors.nats.client import (
    NatsBuilder,
    NatsLink,
    NatsSettings,
    checked_stream,
    checked_subject,
    look,
    overlap,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

_LOG: Final = logging.getLogger(__name__)
_NAME: Final = "JetStreamSource"
_ROWS: Final = 1000
_BYTES: Final = 8 << 20
_WAIT_S: Final = 0.05
"""A subtask may have several pollers, which take turns."""
_CALL_S: Final = 5.0
_EXPIRES_S: Final = 10.0
_PATIENCE_S: Final = 15.0
_IDLE_S: Final = 300.0
"""After so long the server forgets a consumer that nobody asks."""
_RETENTION: Final = "limits"
_ACKNOWLEDGED_AT: Final = "$JS.ACK."
_ALL: Final = ">"


@dataclass(frozen=True, slots=True)
class _Settings(NatsSettings):
    """`start`: the first sequence to read; 0: that of the next message that comes. `start_ms`: the time instead."""

    stream: str = ""
    subjects: tuple[str, ...] = (_ALL,)
    schema: DeserializationSchema = MISSING
    with_subject: bool = False
    start: int = 1
    start_ms: int | None = None
    is_bounded: bool = False
    fails_on_loss: bool = True

    @property
    def messages(self) -> NamedMessages:
        return NamedMessages(self.schema, "subject" if self.with_subject else None)


class JetStreamSource(PollingSource):
    """Reads a stream from front to back. Not in PyFlink. Build it with `JetStreamSource.builder()`.

    A record's timestamp is the time at which the server got its message, in epoch ms.
    """

    def __init__(self, settings: _Settings) -> None:
        """Use the builder."""
        self.settings = settings
        self.is_bounded = settings.is_bounded
        self.shards = len(settings.subjects)
        self.default_parallelism = self.shards

    def __repr__(self) -> str:
        return f"{_NAME}({self.settings}, {self.settings.stream})"

    @staticmethod
    def builder() -> JetStreamSource.Builder:
        return JetStreamSource.Builder()

    class Builder(NatsBuilder):
        """Builds a JetStreamSource; the setters return the builder."""

        name = _NAME
        begin = _Settings

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
            return self._with_schema(
                DeserializationSchema, "set_deserializer", schema, with_subject=with_subject
            )

        def set_starting_sequence(self, sequence: int) -> Self:
            """Begin with this sequence number; by default with the first message that is there."""
            return self._with_number("set_starting_sequence", 1, start=sequence, start_ms=None)

        def set_starting_timestamp(self, epoch_ms: int) -> Self:
            """Begin with the first message that the server got at this time or later."""
            return self._with_number("set_starting_timestamp", 0, start_ms=epoch_ms, start=1)

        def set_starting_latest(self) -> Self:
            """Begin with the messages that come after the start of the job."""
            return self._with(start=0, start_ms=None)

        def set_bounded(self) -> Self:
            """End after the last message that is there when the job starts."""
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
            return JetStreamSource(settings)

    @property
    def produced_type(self) -> TypeInformation:
        return self.settings.messages.produced_type

    def validate(self) -> None:
        """Check client, login and stream. Raises ConfigurationError.

        A server that the driver does not reach is no error: only the subtasks must reach it.
        """
        where = f"{_NAME} on the driver"
        stream = self.settings.stream

        async def check(client: Any) -> None:
            await check_stream(client.jetstream(), stream, f"{where}: {self.settings}")

        look(self.settings, where, check)

    def create_poller(self, shard: int) -> Poller:
        return JetStreamPoller(self.settings, self.settings.subjects[shard])


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """In checkpoints. `after`: the sequence of the last message read. `until`: of the last one to
    read; None: no end.

    `has_begun`: what comes after `after` must not be missing. `subject`: whose messages these are.
    """

    subject: str
    after: int
    until: int | None = None
    has_begun: bool = False


class _Message(NamedTuple):
    subject: str
    payload: bytes
    sequence: int
    time_ms: int


class JetStreamPoller(QueuePoller):
    """Reads one filter of a stream: pulls messages after a sequence, by a consumer that it makes
    anew after each irregularity.

    Messages come on the client's thread. The consumer numbers them without a gap, so a gap means
    that a message was lost on its way. Then, and when the connection or the consumer is gone, a new
    consumer begins after the last message that was read.
    """

    def __init__(self, settings: _Settings, subject: str) -> None:
        super().__init__()
        self.settings = settings
        self._subject = subject
        self._reads_all = subject == _ALL
        self._where = f"{_NAME}, stream {settings.stream!r}, subject {subject!r}"
        self._link = NatsLink(settings, self._where)
        self._pull: _Pull | None = None
        self._has_new_position = False
        self._mean_bytes = 4096.0
        self._has_warned = False

    def open(self, position: StreamPosition | None) -> None:
        """Begin after the position. Raises: ExternalError."""
        if position is None:
            self._position = self._link.call(self._first_position)
            self._has_new_position = True
        elif position.subject != self._subject:
            raise RefusedForGood(
                f"{self._where}: the checkpoint has the position of the subject "
                f"{position.subject!r} here. Set the subjects as they were, or give the source "
                "another uid to begin anew."
            )
        else:
            self._position = position

    def poll(self) -> Sequence[Any] | Batch | None:
        if self._has_new_position:  # a checkpoint has to have it before the first message
            self._has_new_position = False
            return NO_RECORDS
        if self._is_over():
            return None
        pull = self._pull
        if pull is None or pull.is_broken or not self._link.is_up():
            pull = self._begin()
        if not pull.left and not self.waiting:
            self._ask(pull)
        taken = self._take(pull)
        if not taken:
            return []
        size = sum(len(one.payload) for one in taken)
        self._mean_bytes += (size / len(taken) - self._mean_bytes) / 4
        self._position = replace(self._position, after=taken[-1].sequence, has_begun=True)
        return self.settings.messages.batch(
            [one.subject for one in taken],
            [one.payload for one in taken],
            np.array([one.time_ms for one in taken], np.int64),
            lambda number: self._place(taken[number]),
        )

    def position(self) -> StreamPosition:
        return self._position

    def close(self) -> None:
        """Delete the consumer. If the server is not reached, it forgets the consumer by itself."""
        pull, self._pull = self._pull, None
        if pull is not None and self._link.is_up():
            try:
                self._link.call(pull.delete, _CALL_S)
            except ExternalError:
                pass
        self._link.close()

    # ------------------------------------------------------------------ positions

    async def _first_position(self, client: Any) -> StreamPosition:
        settings = self.settings
        info = await check_stream(client.jetstream(), settings.stream, self._where)
        last = info.state.last_seq
        after = settings.start - 1 if settings.start else last
        until = last if settings.is_bounded else None
        if settings.start_ms is not None:
            after = await self._before_time(client, settings.start_ms, last)
        return StreamPosition(self._subject, after, until)

    async def _before_time(self, client: Any, epoch_ms: int, last: int) -> int:
        """The sequence before the first message of this time; `last` if there is none."""
        settings = self.settings
        api = extra("nats.js.api", "nats", self._where)
        when = dt.datetime.fromtimestamp(epoch_ms / 1000, dt.UTC)
        info = await client.jetstream().add_consumer(
            settings.stream,
            api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_TIME,
                opt_start_time=when,
                ack_policy=api.AckPolicy.NONE,
                inactive_threshold=_CALL_S,
                mem_storage=True,
            ),
        )
        return int(info.delivered.stream_seq) if info.num_pending else last

    def _is_over(self) -> bool:
        """A bounded source ends with the last message, or when nothing of its subject is left before it."""
        until = self._position.until
        if until is None or self.waiting:
            return False
        if self._position.after >= until:
            return True
        pull = self._pull
        return pull is not None and pull.is_at_end

    # ------------------------------------------------------------------ the consumer

    def _begin(self) -> _Pull:
        """Start a new consumer after the position. Messages of the former one that were not taken
        come again.
        """
        with self.changed:
            if self._pull is not None:
                self._pull.is_broken = True
            self.waiting.clear()
        self._pull = self._link.call(self._subscribed)
        return self._pull

    async def _subscribed(self, client: Any) -> _Pull:
        settings = self.settings
        api = extra("nats.js.api", "nats", self._where)
        stream = client.jetstream()
        info = await check_stream(stream, settings.stream, self._where)
        self._check_losses(info.state.first_seq, info.state.last_seq)
        made = await stream.add_consumer(
            settings.stream,
            api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=max(self._position.after + 1, 1),
                filter_subject=None if self._reads_all else self._subject,
                ack_policy=api.AckPolicy.NONE,
                inactive_threshold=_IDLE_S,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        pull = _Pull(client, settings.stream, made.name, self.changed, self.waiting)
        pull.until = self._position.until
        pull.is_at_end = pull.until is not None and not made.num_pending
        await pull.subscribe()
        return pull

    def _check_losses(self, first: int, last: int) -> None:
        """Raises: RefusedForGood: messages after the position are gone, unless the source may
        continue without them.
        """
        position, settings = self._position, self.settings
        if not position.has_begun:
            return
        if last < position.after:
            raise RefusedForGood(
                f"{self._where}: the stream on {self.settings} ends with the message "
                f"{last}, and {position.after} was read already: it is another stream of this "
                "name, or was restored. Begin anew without the checkpoint."
            )
        if first <= position.after + 1:
            return
        text = (
            f"{self._where}: messages after {position.after} and before {first} were removed "
            f"from the stream on {self.settings} before they were read"
        )
        if settings.fails_on_loss and self._reads_all:
            raise RefusedForGood(
                f"{text}. Let the stream keep more (max_age, max_bytes, max_msgs), and begin "
                "anew; or set set_fail_on_missing_messages(False) on the source to go on without "
                "them."
            )
        if not self._has_warned:
            self._has_warned = True
            which = "" if self._reads_all else ", perhaps some of its subject"
            _LOG.warning("%s%s; the job continues without them", text, which)

    def _ask(self, pull: _Pull) -> None:
        most = max(1, min(_ROWS, int(_BYTES / max(self._mean_bytes, 1))))
        self._link.call(lambda _client: pull.ask(most), _CALL_S)

    def _take(self, pull: _Pull) -> list[_Message]:
        taken: list[_Message] = self.taken(_ROWS, _WAIT_S, lambda: pull.is_broken or not pull.left)
        with self.changed:
            pull.look_at_the_time(has_come=bool(taken))
        until = self._position.until
        if until is None or not taken or taken[-1].sequence < until:
            return taken
        with self.changed:
            pull.is_at_end = True
            self.waiting.clear()
        return [one for one in taken if one.sequence <= until]

    def _place(self, one: _Message) -> str:
        return f"message {one.sequence} of the stream {self.settings.stream!r} ({one.subject})"


class _Pull:
    """One consumer on the server, and what was asked of it. Everything but its attributes is used on the client's thread.

    `left`: how many messages of the last request are still to come; 0: it is over.
    """

    def __init__(
        self,
        client: Any,
        stream: str,
        name: str,
        changed: threading.Condition,
        waiting: deque[_Message],
    ) -> None:
        self._client = client
        self._stream = stream
        self._name = name
        self._changed = changed
        self._waiting = waiting
        self._inbox = client.new_inbox()
        self._delivered = 0
        self._asked_s = 0.0
        self.left = 0
        self.until: int | None = None
        self.is_broken = False
        self.is_at_end = False

    async def subscribe(self) -> None:
        await self._client.subscribe(self._inbox, cb=self._on_message, pending_bytes_limit=-1)

    async def ask(self, most: int) -> None:
        with self._changed:
            self.left, self._asked_s = most, time.monotonic()
        request = {"batch": most, "expires": int(_EXPIRES_S * 1e9)}
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}",
            json.dumps(request).encode(),
            self._inbox,
        )

    async def delete(self, client: Any) -> None:
        if client is self._client:
            await client.jetstream().delete_consumer(self._stream, self._name)

    def look_at_the_time(self, *, has_come: bool) -> None:
        """A request without an answer is one that the server does not know any more."""
        if self.left and time.monotonic() - self._asked_s > _PATIENCE_S and not has_come:
            self.is_broken = True

    async def _on_message(self, message: Any) -> None:
        # A publisher's message may have a header of this name, too. What is of the stream can be
        # acknowledged.
        is_record = (message.reply or "").startswith(_ACKNOWLEDGED_AT)
        status = None if is_record else (message.headers or {}).get("Status")
        with self._changed:
            if status is not None:
                self._on_status(status)
            elif not self.is_broken:
                self._on_record(message)
            self._changed.notify()

    def _on_status(self, status: str) -> None:
        """404 and 408: the request has ended. All else: the consumer is gone, or soon will be."""
        if status in {"404", "408"}:
            self.left = 0
        elif status != "100":
            self.is_broken = True

    def _on_record(self, message: Any) -> None:
        # $JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<number>.<ns>.<pending>; newer servers add
        # domain and account after $JS.ACK, and a token at the end.
        fields = message.reply.split(".")
        sequence, number, stamp_ns, pending = map(
            int, fields[5:9] if len(fields) == 9 else fields[7:11]
        )
        if number != self._delivered + 1:
            self.is_broken = True
            return
        self._delivered = number
        self.left -= 1
        if self.until is not None and not pending:
            self.is_at_end = True
        self._waiting.append(
            _Message(message.subject, message.data, sequence, stamp_ns // 1_000_000)
        )


async def check_stream(stream: Any, name: str, where: str) -> Any:
    """What the server says about the stream.

    Raises: RefusedForGood: there is none, or it does not keep messages that nobody acknowledges.
    """
    not_found = extra("nats.js.errors", "nats", where).NotFoundError
    try:
        info = await stream.stream_info(name)
    except not_found as error:
        raise RefusedForGood(
            f"{where}: there is no stream {name!r}. Create it (nats stream add), or correct "
            "set_stream."
        ) from error
    retention = str(getattr(info.config.retention, "value", info.config.retention) or _RETENTION)
    if retention != _RETENTION:
        raise RefusedForGood(
            f"{where}: the stream {name!r} has the retention {retention!r}, so that it keeps "
            "messages only until they are acknowledged, and a restart could not read them again. "
            f"Expected {_RETENTION!r}."
        )
    return info
