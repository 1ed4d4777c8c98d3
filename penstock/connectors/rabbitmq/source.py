"""RMQSource: reads the messages of a queue. Needs pika (`penstock[rabbitmq]`).

Source: pyflink.datastream.connectors.rabbitmq, Flink's RMQSource.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    QueueEnumerator,
    ReaderContext,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
)
from penstock.connectors.api.builder import checked_schema
from penstock.connectors.api.messaging.records import batch_of
from penstock.connectors.rabbitmq.channel_thread import ChannelThread
from penstock.connectors.rabbitmq.client import PikaClient, check_login
from penstock.connectors.rabbitmq.config import (
    HEARTBEAT_S,
    RMQConnectionConfig,
    checked_config,
    checked_queue,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import Batch, ColumnBatch
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows
from penstock.engine.runtime.sources.contract import Polled

# ---------------------------------------------------------------------- consumer
# The consumer of a source: collects the messages of a queue, and acknowledges them. Needs pika.
#
# Source: Flink RMQSource, QueueingConsumer; differs: the number of waiting messages is limited,
# and one acknowledgement covers all messages up to one.


MAX_ROWS: Final = 4096
MAX_BATCH_BYTES: Final = 1 << 20
MAX_WAITING: Final = 4 * MAX_ROWS
MAX_WAITING_BYTES: Final = 8 * MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A position in a queue: the message with the broker's `tag` on the `connection`-th connection; tag 0: none.

    A tag means nothing on another connection.
    """

    connection: int
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages of a batch. `ids`: correlation ids, empty if they are not used. `tags`: the broker's delivery tags."""

    connection: int
    bodies: list[bytes]
    ids: list[str | None]
    tags: list[int]


class QueueConsumer(ChannelThread):
    """Consumes a queue. `acknowledges` False: messages count as acknowledged when the broker sends them."""

    def __init__(
        self,
        client: PikaClient,
        config: RMQConnectionConfig,
        queue: str,
        where: str,
        wake: Callable[[], None],
        *,
        acknowledges: bool,
        uses_ids: bool,
    ) -> None:
        """`wake`: called on any thread when there is something to take, or an error.

        Messages that are not acknowledged come again on another connection, although the task has counted them already.
        If it cannot recognise them by their ids, this consumer does not reconnect: the task fails and restarts from its
        checkpoint.
        """
        recovers = config.recovers and (uses_ids or not acknowledges)
        super().__init__(client, config, queue, where, recovers=recovers)
        self._wake = wake
        self._acknowledges = acknowledges
        self._uses_ids = uses_ids
        self._come = Taken(0, [], [], [])
        self._come_bytes = 0
        self._waiting = Taken(0, [], [], [])
        self._waiting_bytes = 0
        self._connections = 0
        self._asked = QueuePlace(0)
        self._done = QueuePlace(0)

    # ------------------------------------------------------------------ the task's thread

    def take(self) -> Taken | None:
        """Takes a batch of waiting messages. Raises: ExternalError: no more messages will come."""
        with self.changed:
            waiting, count = self._waiting, len(self._waiting.bodies)
            if not count:
                self.check()
                return None
            count_max = max(
                1, min(MAX_ROWS, MAX_BATCH_BYTES * count // max(1, self._waiting_bytes))
            )
            taken = waiting
            if count > count_max:
                taken = Taken(
                    waiting.connection,
                    waiting.bodies[:count_max],
                    waiting.ids[:count_max],
                    waiting.tags[:count_max],
                )
                del waiting.bodies[:count_max], waiting.ids[:count_max], waiting.tags[:count_max]
                self._waiting_bytes -= sum(map(len, taken.bodies))
            else:
                self._forget_waiting()
            if self._loop is not None and self._loop.is_paused and self._has_room(2):
                self._orders.append(self._resume)
                self._wake_up()
        return taken

    def progress(self) -> QueuePlace:
        """The current connection, and the last message on it whose acknowledgement the broker has confirmed."""
        with self.changed:
            return self._done

    def is_read_out(self) -> bool:
        """Whether, as far as can be known, no message waits to be taken."""
        with self.changed:
            is_paused = self._loop is None or self._loop.is_paused
            return self._life.is_ready and not is_paused and not self._waiting.bodies

    def acknowledge(self, place: QueuePlace) -> None:
        """Acknowledge all messages up to this one; `progress` shows when the broker has confirmed
        it.

        Nothing is acknowledged on a lost connection: its messages come again.
        """
        self.run_soon(lambda: self._acknowledge(place))

    # ------------------------------------------------------------------ the connection's thread

    def _begin(self, channel: Any) -> None:
        channel.add_on_cancel_callback(self._on_cancelled)
        if self._acknowledges:
            channel.tx_select()
            channel.basic_qos(prefetch_count=self._config.prefetch_count)
        channel.basic_consume(
            self._queue,
            self._on_message_with_id if self._uses_ids else self._on_message,
            auto_ack=not self._acknowledges,
        )

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._come.bodies.append(body)
        self._come.tags.append(method.delivery_tag)
        self._come_bytes += len(body)

    def _on_message_with_id(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._come.ids.append(properties.correlation_id)
        self._on_message(channel, method, properties, body)

    def _after_step(self) -> None:
        """Hands over the messages of this step."""
        if not self._come.bodies:
            return
        with self.changed:
            waiting, come = self._waiting, self._come
            was_empty = not waiting.bodies
            waiting.bodies.extend(come.bodies)
            waiting.ids.extend(come.ids)
            waiting.tags.extend(come.tags)
            self._waiting_bytes += self._come_bytes
            self._forget_come()
            if not self._has_room() and self._loop is not None and not self._is_closing:
                self._loop.pause()
                self.changed.notify_all()
        if was_empty:
            self._wake()

    def _resume(self) -> None:
        if self._loop is not None:
            self._loop.resume()

    def _has_room(self, share: int = 1) -> bool:
        """Whether fewer messages wait than the limit divided by `share`."""
        is_short = len(self._waiting.bodies) < MAX_WAITING // share
        return is_short and self._waiting_bytes < MAX_WAITING_BYTES // share

    def _acknowledge(self, place: QueuePlace) -> None:
        is_new = place.connection == self._connections and place.tag > self._asked.tag
        if is_new and self._is_usable:
            self._asked = place
            self._channel.basic_ack(place.tag, multiple=True)
            self._channel.tx_commit(partial(self._on_committed, place))

    def _on_committed(self, place: QueuePlace, frame: Any) -> None:
        with self.changed:
            if place.connection == self._connections:
                self._done = place

    def _on_cancelled(self, frame: Any) -> None:
        self._refuse(
            f"the broker at {self._config.address} has cancelled the consumer of the queue "
            f"{self._queue!r}: the queue was deleted or moved."
        )

    def _on_lost(self) -> None:
        """Drops the waiting messages, because they come again, unless they count as acknowledged."""
        with self.changed:
            self._forget_come()
            self._connections += 1
            self._asked = self._done = QueuePlace(self._connections)
            if self._acknowledges:
                self._forget_waiting()

    def _on_error(self) -> None:
        self._wake()

    def _forget_come(self) -> None:
        self._come, self._come_bytes = Taken(self._connections, [], [], []), 0

    def _forget_waiting(self) -> None:
        self._waiting, self._waiting_bytes = Taken(self._connections, [], [], []), 0


# ---------------------------------------------------------------------- reader


HEARTBEATS_UNTIL_GONE: Final = 3


@dataclass(frozen=True, slots=True)
class ReadIds:
    """In checkpoints: the ids of messages that were read and may come again."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RMQReaderSettings:
    """The settings of an RMQSource."""

    config: RMQConnectionConfig
    queue: str
    uses_ids: bool
    schema: DeserializationSchema


class RMQReader(SourceReader):
    """Reads a queue. It has no splits: all subtasks read one queue, and the broker distributes its messages."""

    def __init__(self, context: ReaderContext, settings: RMQReaderSettings) -> None:
        self._context = context
        self.settings = settings
        self._acknowledges = context.takes_checkpoints()
        self._uses_ids = settings.uses_ids and self._acknowledges
        where = f"RMQSource, subtask {context.subtask()}"
        self._consumer = QueueConsumer(
            PikaClient.of(settings.config, where),
            settings.config,
            settings.queue,
            where,
            context.wake,
            acknowledges=self._acknowledges,
            uses_ids=self._uses_ids,
        )
        self._read = QueuePlace(0)
        self._seen = SeenIds()
        # The last message that each checkpoint covers, on the current connection.
        self._places: dict[int, QueuePlace] = {}
        heartbeat_s = settings.config.heartbeat_s or HEARTBEAT_S
        self._gone_after_ms = HEARTBEATS_UNTIL_GONE * heartbeat_s * 1000
        self._gone_at_ms = context.monotonic_ms() + self._gone_after_ms

    def read_fields(self, names: Sequence[str]) -> None:
        self.settings = replace(self.settings, schema=self.settings.schema.reading(names))

    def start(self) -> None:
        self._consumer.start()

    def add_splits(self, splits: Sequence[Any]) -> None:
        """Takes over the ids of a checkpoint, before the start."""
        if self._uses_ids:
            for state in splits:
                self._seen.carry_over(state.ids)

    def notify_no_more_splits(self) -> None:
        """Nothing to do: there are no splits."""

    def poll_next(self) -> Polled:
        self._catch_up()
        while (taken := self._consumer.take()) is not None:
            if self._acknowledges and taken.connection != self._read.connection:
                self._catch_up()
                if taken.connection != self._read.connection:
                    continue  # that connection is lost too, so its messages come again
            batch = self._batch(taken)
            self._read = QueuePlace(self._read.connection, taken.tags[-1])
            if batch is not None:
                return SplitBatch(batch)
        self._forget_what_is_gone()
        return ReaderStatus.NOTHING_AVAILABLE

    def before_checkpoint(self, checkpoint_id: int) -> None:
        if self._acknowledges:
            self._catch_up()
            self._places[checkpoint_id] = self._read
            self._seen.mark(checkpoint_id)

    def snapshot_state(self) -> Sequence[Any]:
        ids = self._seen.all()
        return [ReadIds(ids)] if ids else []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._catch_up()
        done = [one for one in self._places if one <= checkpoint_id]
        if done:
            self._consumer.acknowledge(self._places[max(done)])

    def close(self) -> None:
        self._consumer.close()

    def _batch(self, taken: Taken) -> Batch | None:
        """The batch of the new messages. Messages that were read before are left out."""
        nameless: list[Malformed] = []
        if self._uses_ids:
            if None in taken.ids:
                taken, nameless = self._parted(taken)
            new = self._seen.add_all(taken.ids)
            if new is not None:
                taken = _chosen(taken, new)
        batch = self._deserialized(taken) if taken.bodies else None
        if not nameless:
            return batch
        if isinstance(batch, ColumnBatch):
            batch = to_rows(batch, self.settings.schema.produced_type)
        return MarkedRows([*(() if batch is None else batch.values), *nameless])

    def _deserialized(self, taken: Taken) -> Batch | None:
        def place(number: int) -> str:
            queue, tag = self.settings.queue, taken.tags[number]
            return f"a message of the queue {queue!r} (delivery tag {tag})"

        return batch_of(taken.bodies, None, self.settings.schema, place)

    def _parted(self, taken: Taken) -> tuple[Taken, list[Malformed]]:
        """Return the messages with an id, and the others, of which nobody knows whether they were
        read before.
        """
        named = [place for place, one in enumerate(taken.ids) if one is not None]
        pairs = zip(taken.bodies, taken.ids, strict=True)
        return _chosen(taken, named), [self._without_id(body) for body, one in pairs if one is None]

    def _without_id(self, body: bytes) -> Malformed:
        error = ValueError(
            f"a message of the queue {self.settings.queue!r} has no correlation id, but the "
            "RMQSource was made "
            "with use_correlation_id=True. Let the publisher set a unique property correlation_id "
            "on each "
            'message, use use_correlation_id=False, or give the source .on_error("skip"). '
            f"The message: {body[:200]!r}"
        )
        return Malformed(body, error, error)

    def _catch_up(self) -> None:
        """Follows the connection: forgets the ids whose messages are acknowledged.

        After a reconnect, messages of the last connection can no longer be acknowledged, so their ids are kept.
        """
        done = self._consumer.progress()
        if done.connection != self._read.connection:
            self._read = QueuePlace(done.connection)
            self._places.clear()
            self._seen.carry_over(())
            self._gone_at_ms = self._context.monotonic_ms() + self._gone_after_ms
            return
        for checkpoint_id, place in list(self._places.items()):
            if place.tag <= done.tag:
                del self._places[checkpoint_id]
                self._seen.forget(checkpoint_id)

    def _forget_what_is_gone(self) -> None:
        """Forgets the ids of earlier connections.

        By then the broker has missed the heartbeats of these connections, and the messages that it sent again were
        read.
        """
        is_time = self._seen.has_carried and self._context.monotonic_ms() >= self._gone_at_ms
        if is_time and self._consumer.is_read_out():
            self._seen.forget_carried()


def _chosen(taken: Taken, places: Sequence[int]) -> Taken:
    bodies, ids, tags = taken.bodies, taken.ids, taken.tags
    return Taken(
        taken.connection,
        [bodies[place] for place in places],
        [ids[place] for place in places] if ids else [],
        [tags[place] for place in places],
    )


class SeenIds:
    """The ids of messages that were read and may come again.

    They are kept in three groups: since the last checkpoint, by checkpoint, and of earlier connections.
    """

    def __init__(self) -> None:
        self._all: set[str] = set()
        self._new: list[str] = []
        self._by_checkpoint: dict[int, list[str]] = {}
        self._carried: set[str] = set()

    @property
    def has_carried(self) -> bool:
        return bool(self._carried)

    def all(self) -> tuple[str, ...]:
        return tuple(self._all)

    def add_all(self, ids: Sequence[Any]) -> Sequence[int] | None:
        """Adds ids. Returns the places of the new ones; None, the usual case: all are new."""
        found = set(ids)
        if len(found) == len(ids) and found.isdisjoint(self._all):
            self._all |= found
            self._new.extend(ids)
            return None
        return [place for place, one in enumerate(ids) if self._add(one)]

    def _add(self, one: str) -> bool:
        """Adds an id. Returns whether it is new."""
        if one not in self._all:
            self._all.add(one)
            self._new.append(one)
            return True
        if one in self._carried:  # the message has come again: the next checkpoint acknowledges it
            self._carried.remove(one)
            self._new.append(one)
        return False

    def mark(self, checkpoint_id: int) -> None:
        """Assigns the ids since the last checkpoint to this one."""
        self._by_checkpoint[checkpoint_id], self._new = self._new, []

    def forget(self, checkpoint_id: int) -> None:
        self._all.difference_update(self._by_checkpoint.pop(checkpoint_id, ()))

    def carry_over(self, more: Sequence[str]) -> None:
        """Marks all known ids, and `more`, as ids of earlier connections."""
        self._all.update(more)
        self._carried = set(self._all)
        self._new, self._by_checkpoint = [], {}

    def forget_carried(self) -> None:
        self._all -= self._carried
        self._carried = set()


# ---------------------------------------------------------------------- source


class RMQSource(Source):
    """Reads a queue. A missing queue is created, as a durable one. The default parallelism is 1.

    With checkpoints, messages are acknowledged when the next checkpoint is complete. Each is then
    read at least once; with correlation ids and one subtask, exactly once. Without checkpoints,
    messages are acknowledged as they are sent, so a failure loses those under way.
    """

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED
    default_parallelism = 1

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        use_correlation_id: bool,
        deserialization_schema: DeserializationSchema,
    ) -> None:
        """Check the arguments. Raises ConfigurationError or TypeError.

        Args:
            connection_config: the connection.
            queue_name: the queue.
            use_correlation_id: each message has a unique correlation_id, by which a message that
                comes again is recognised; with checkpoints only.
            deserialization_schema: turns a message's body into a value.
        """
        if not isinstance(use_correlation_id, bool):
            raise ConfigurationError(
                f"RMQSource: use_correlation_id is True or False, got {use_correlation_id!r}."
            )
        self.settings = RMQReaderSettings(
            checked_config("RMQSource", connection_config),
            checked_queue("RMQSource", queue_name),
            use_correlation_id,
            checked_schema("RMQSource", deserialization_schema, DeserializationSchema),
        )

    @property
    def produced_type(self) -> TypeInformation:
        return self.settings.schema.produced_type

    @property
    def parses_fields(self) -> bool:
        schema = self.settings.schema
        return schema.reading(()) is not schema

    def validate(self) -> None:
        """Check client and login. Raises ConfigurationError if pika is missing, or the broker refuses.

        A broker that the driver does not reach is no error: only the subtasks must reach it.
        """
        check_login(self.settings.config, "RMQSource on the driver")

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return QueueEnumerator(context, (), is_final=False)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return RMQReader(context, self.settings)
