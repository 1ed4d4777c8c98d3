"""The publisher of a sink: sends messages to a queue, and keeps them until the broker has confirmed them. Needs pika.

Source: Flink RMQSink; differs: uses publisher confirms and messages that survive a restart of the broker, and passes
whole batches from thread to thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from penstock.datastream.connectors.rabbitmq.channel_thread import ChannelThread
from penstock.datastream.connectors.rabbitmq.client import PikaClient
from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig

MAX_OPEN: Final = 16_384
MAX_OPEN_BYTES: Final = 16 << 20
WAIT_S: Final = 0.1
PERSISTENT: Final = 2


class QueuePublisher(ChannelThread):
    """Publishes messages. After a connection is lost, those that were not confirmed are sent again on the next one."""

    def __init__(
        self, client: PikaClient, config: RMQConnectionConfig, queue: str, where: str
    ) -> None:
        super().__init__(client, config, queue, where)
        self._properties = client.pika.BasicProperties(delivery_mode=PERSISTENT)
        self._outbox: list[bytes] = []
        self._open = 0
        self._open_bytes = 0
        self._sent: dict[int, bytes] = {}
        self._number = 0
        self._confirmed: list[bytes] = []

    # ------------------------------------------------------------------ the task's thread

    def send(self, bodies: Sequence[bytes]) -> None:
        """Sends the messages. Waits while too many are not confirmed. Raises: ExternalError: sending has ended."""
        self._wait(MAX_OPEN, MAX_OPEN_BYTES)
        with self.changed:
            self._outbox.extend(bodies)
            self._open += len(bodies)
            self._open_bytes += sum(map(len, bodies))
        self.run_soon(self._publish)

    def flush(self) -> None:
        """Waits until all messages are confirmed. Raises: ExternalError: some cannot be."""
        self._wait(1, 1)

    def _wait(self, count: int, size: int) -> None:
        """Waits until fewer messages are open. The waits are short, so that a cancelled task can leave them."""
        while True:
            with self.changed:
                self.check()
                if not self._open or (self._open < count and self._open_bytes < size):
                    return
                self.changed.wait(WAIT_S)

    # ------------------------------------------------------------------ the connection's thread

    def _begin(self, channel: Any) -> None:
        channel.add_on_return_callback(self._on_returned)
        channel.confirm_delivery(self._on_confirmed)
        again, self._sent, self._number = self._sent, {}, 0
        for body in again.values():
            self._publish_one(body)
        self._publish()

    def _publish(self) -> None:
        if not self._is_usable:
            return
        with self.changed:
            bodies, self._outbox = self._outbox, []
        for body in bodies:
            self._publish_one(body)

    def _publish_one(self, body: bytes) -> None:
        self._number += 1
        self._sent[self._number] = body
        self._channel.basic_publish("", self._queue, body, self._properties, mandatory=True)

    def _on_confirmed(self, frame: Any) -> None:
        method = frame.method
        if self._life.is_ending:
            return  # a message that was returned is confirmed afterwards, too
        if method.NAME == "Basic.Nack":
            self._refuse(
                f"the broker at {self._config.address} refuses messages for the queue "
                f"{self._queue!r}. Either the queue is full and its overflow policy rejects new "
                "messages, or the broker had an internal error: see its log."
            )
            return
        numbers = [method.delivery_tag]
        if method.multiple:
            last = method.delivery_tag or self._number
            numbers = list(takewhile(lambda number: number <= last, self._sent))
        self._confirmed.extend(self._sent.pop(number) for number in numbers if number in self._sent)

    def _after_step(self) -> None:
        if self._confirmed:
            confirmed, self._confirmed = self._confirmed, []
            with self.changed:
                self._open -= len(confirmed)
                self._open_bytes -= sum(map(len, confirmed))
                self.changed.notify_all()

    def _on_returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._refuse(
            f"the broker at {self._config.address} has no queue {self._queue!r} any more "
            f"({method.reply_text}): it was deleted while this sink wrote to it. The sink creates "
            "a new one when it starts again."
        )
