"""The reader of an RMQSource: batches of messages, acknowledged when their checkpoint is complete, each once by its id.

Source: Flink RMQSource, MessageAcknowledgingSourceBase; differs: an id is forgotten only when the broker has confirmed
that its message is acknowledged. If that is not known, the id is forgotten when its connection must be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.common.serialization import DeserializationSchema
from penstock.connectors.api.base import ReaderContext, ReaderStatus, SourceReader, SplitBatch
from penstock.connectors.api.messaging.records import batch_of
from penstock.connectors.rabbitmq.client import PikaClient
from penstock.connectors.rabbitmq.config import HEARTBEAT_S, RMQConnectionConfig
from penstock.connectors.rabbitmq.consumer import QueueConsumer, QueuePlace, Taken
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import Batch, ColumnBatch
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows
from penstock.engine.runtime.sources.contract import Polled

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
        self._settings = settings
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
        self._settings = replace(self._settings, schema=self._settings.schema.reading(names))

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
            batch = to_rows(batch, self._settings.schema.produced_type)
        return MarkedRows([*(() if batch is None else batch.values), *nameless])

    def _deserialized(self, taken: Taken) -> Batch | None:
        def place(number: int) -> str:
            queue, tag = self._settings.queue, taken.tags[number]
            return f"a message of the queue {queue!r} (delivery tag {tag})"

        return batch_of(taken.bodies, None, self._settings.schema, place)

    def _parted(self, taken: Taken) -> tuple[Taken, list[Malformed]]:
        """The messages with an id, and the others, of which nobody can tell whether they were read before."""
        named = [place for place, one in enumerate(taken.ids) if one is not None]
        pairs = zip(taken.bodies, taken.ids, strict=True)
        return _chosen(taken, named), [self._without_id(body) for body, one in pairs if one is None]

    def _without_id(self, body: bytes) -> Malformed:
        error = ValueError(
            f"a message of the queue {self._settings.queue!r} has no correlation id, but the "
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
