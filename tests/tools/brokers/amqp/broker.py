"""What a broker keeps, and what methods do to it. One lock around all of it; knows no socket."""

import bisect
import threading
from dataclasses import dataclass, field
from typing import Any

WAIT_S = 30


@dataclass
class Message:
    number: int
    body: bytes
    properties: Any
    is_redelivered: bool = False


@dataclass
class Consumer:
    channel: Any
    tag: str
    queue: str
    has_no_ack: bool
    prefetch: int
    open: int = 0

    def has_room(self):
        return self.has_no_ack or not self.prefetch or self.open < self.prefetch


@dataclass
class Delivery:
    queue: str
    message: Message
    consumer: Consumer | None


@dataclass
class Channel:
    """`send(method, message)`: to the client."""

    send: Any
    prefetch: int = 0
    deliveries: dict = field(default_factory=dict)
    last_tag: int = 0
    published: int = 0
    confirms: bool = False
    has_transactions: bool = False
    in_transaction: list = field(default_factory=list)


class NoSuchQueue(Exception):
    """404."""


class UnknownTag(Exception):
    """406."""


class Broker:
    """`uri`: where it listens. `users`: names and passwords."""

    def __init__(self):
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.uri = ""
        self.users = {"guest": "guest"}
        self.queues: dict[str, list[Message]] = {}
        self.arguments: dict[str, tuple] = {}
        self.consumers: list[Consumer] = []
        self.connections: list[Any] = []
        self.heartbeats = 0
        self.methods: list[str] = []
        self.holds_confirms = False
        self.refuses_messages = False
        self.refused_connections = 0
        self._next_number = 0
        self._cuts: list[tuple[str, bool]] = []

    # ------------------------------------------------------------------ for tests

    def cut(self):
        """All connections, without a word. They are gone then: nothing more is delivered to them."""
        with self.lock:
            connections = list(self.connections)
        for connection in connections:
            connection.cut()
        self.wait_for(lambda: not any(one in self.connections for one in connections))

    def cut_at(self, method, *, is_before):
        """The connection that the next such method comes on: `before` it is carried out, or after."""
        with self.lock:
            self._cuts.append((method, is_before))

    @property
    def has_cut(self):
        """Whether every cut that was planted has come to pass."""
        with self.lock:
            return not self._cuts

    def must_cut(self, method, *, is_before):
        with self.lock:
            if (method, is_before) not in self._cuts:
                return False
            self._cuts.remove((method, is_before))
            return True

    def wait_for(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S), "what the test waits for does not come"

    def ready(self, queue):
        """Messages that wait for a consumer."""
        with self.lock:
            return len(self.queues.get(queue, ()))

    def unacknowledged(self, queue):
        with self.lock:
            found = [one.deliveries.values() for one in self._channels()]
            return sum(delivery.queue == queue for some in found for delivery in some)

    def close_channels(self, code, text):
        """As a broker does that has waited too long for an acknowledgement."""
        with self.lock:
            for connection in self.connections:
                connection.close_channels(code, text)

    # ------------------------------------------------------------------ what methods do; under the lock

    def declare(self, queue, *, is_passive, **arguments):
        if is_passive and queue not in self.queues:
            raise NoSuchQueue(queue)
        self.queues.setdefault(queue, [])
        if not is_passive:
            self.arguments.setdefault(queue, arguments)
        return len(self.queues[queue]), sum(one.queue == queue for one in self.consumers)

    def delete(self, queue):
        found = self.queues.pop(queue, [])
        gone = [one for one in self.consumers if one.queue == queue]
        self.consumers = [one for one in self.consumers if one.queue != queue]
        return len(found), gone

    def publish(self, queue, body, properties):
        """Whether there is such a queue."""
        if queue not in self.queues:
            return False
        self._next_number += 1
        self.queues[queue].append(Message(self._next_number, body, properties))
        return True

    def get(self, channel, queue, *, has_no_ack):
        """(delivery tag, message, how many are left), or None."""
        if queue not in self.queues:
            raise NoSuchQueue(queue)
        if not self.queues[queue]:
            return None
        message = self.queues[queue].pop(0)
        tag = self._note(channel, Delivery(queue, message, None), has_no_ack)
        return tag, message, len(self.queues[queue])

    def deliver(self):
        """To consumers that have room, in turns."""
        for consumer in self._served():
            message = self.queues[consumer.queue].pop(0)
            delivery = Delivery(consumer.queue, message, consumer)
            tag = self._note(consumer.channel, delivery, consumer.has_no_ack)
            consumer.channel.send(consumer, tag, message)

    def settle(self, channel, tag, *, is_multiple, requeues=False):
        """Acknowledged, or back into their queues."""
        tags = [one for one in channel.deliveries if one == tag or (is_multiple and one < tag)]
        if not tags:
            raise UnknownTag(tag)
        for one in tags:
            self._settle(channel.deliveries.pop(one), requeues)

    def cancel(self, channel, tag):
        self.consumers = [
            one for one in self.consumers if one.channel is not channel or one.tag != tag
        ]

    def close_channel(self, channel):
        self.consumers = [one for one in self.consumers if one.channel is not channel]
        for delivery in channel.deliveries.values():
            self._settle(delivery, requeues=True)
        channel.deliveries.clear()

    def _settle(self, delivery, requeues):
        if delivery.consumer is not None:
            delivery.consumer.open -= 1
        if requeues and delivery.queue in self.queues:
            delivery.message.is_redelivered = True
            bisect.insort(self.queues[delivery.queue], delivery.message, key=lambda one: one.number)

    def _served(self):
        found = True
        while found:
            found = False
            for consumer in list(self.consumers):
                if self.queues.get(consumer.queue) and consumer.has_room():
                    found = True
                    yield consumer

    def _note(self, channel, delivery, has_no_ack):
        channel.last_tag += 1
        if not has_no_ack:
            channel.deliveries[channel.last_tag] = delivery
            if delivery.consumer is not None:
                delivery.consumer.open += 1
        return channel.last_tag

    def _channels(self):
        return [one for connection in self.connections for one in connection.channels.values()]
