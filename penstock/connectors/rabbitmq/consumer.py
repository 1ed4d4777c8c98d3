"""The consumer of a source: collects the messages of a queue, and acknowledges them. Needs pika.

Source: Flink RMQSource, QueueingConsumer; differs: the number of waiting messages is limited, and one acknowledgement
covers all messages up to one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from penstock.connectors.rabbitmq.channel_thread import ChannelThread
from penstock.connectors.rabbitmq.client import PikaClient
from penstock.connectors.rabbitmq.config import RMQConnectionConfig

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
        """Acknowledges all messages up to this one; `progress` tells when the broker has confirmed it.

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
