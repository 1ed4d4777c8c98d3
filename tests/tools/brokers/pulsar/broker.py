"""What a broker keeps, and what requests do to it. One lock around all of it; knows no socket."""

import threading
from collections import Counter
from dataclasses import dataclass

from tests.tools.brokers.pulsar.log import LEDGER, Subscription, TopicLog

WAIT_S = 30
NAMESPACE = "public/default"
AUTHENTICATION, CONSUMER_BUSY, TOPIC_NOT_FOUND = 3, 5, 11


class Refused(Exception):
    """A request that cannot be carried out. `code`: Pulsar's ServerError."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


@dataclass
class Fault:
    """The next `times` requests of one kind: `before` they are carried out, or after, the connection is cut.

    `is_for_good`: from then on each connection is cut, whatever it asks for.
    """

    command: str
    times: int
    is_before: bool
    is_for_good: bool


@dataclass(eq=False)
class Consumer:
    """`send`: takes an entry's place and its data."""

    number: int
    log: TopicLog
    subscription: Subscription
    send: object
    close: object
    is_durable: bool
    permits: int = 0


def full_name(topic):
    if "://" in topic:
        return topic
    return f"persistent://{topic if '/' in topic else f'{NAMESPACE}/{topic}'}"


class Broker:
    def __init__(self):
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.url = ""
        self.partitions: dict[str, int] = {}
        """By topic; 0: it has none."""
        self.logs: dict[str, TopicLog] = {}
        self.commands: list[str] = []
        self.token: bytes | None = None
        self.deduplicates = True
        self._faults: list[Fault] = []
        self._is_gone = False

    # ------------------------------------------------------------------ for tests

    def create(self, topic, partitions=0):
        """Or add partitions to it. 0: a topic without."""
        with self.changed:
            name = full_name(topic)
            self.partitions[name] = partitions
            for one in self.parts(name):
                self.logs.setdefault(one, TopicLog(one, self.deduplicates))
            self.changed.notify_all()

    def log(self, topic, partition=None):
        name = full_name(topic)
        return self.logs[name if partition is None else f"{name}-partition-{partition}"]

    def count(self, topic):
        """How many messages it has, in all its partitions."""
        with self.lock:
            return sum(self.logs[one].messages for one in self.parts(full_name(topic)))

    def acknowledged(self, topic, subscription):
        """The last entry up to which all is acknowledged; -1: none is, None: no such subscription."""
        with self.lock:
            found = self.logs[full_name(topic)].subscriptions.get(subscription)
            return None if found is None else found.acknowledged

    def expire(self, topic, start):
        """Remove the entries below `start`."""
        with self.lock:
            self.logs[full_name(topic)].start = start

    def fail(self, command, times=1, *, is_before, is_for_good=False):
        """The next requests of this kind: the client hears nothing, its connection is cut."""
        with self.lock:
            self._faults.append(Fault(command, times, is_before, is_for_good))

    def heal(self):
        with self.lock:
            self._faults.clear()
            self._is_gone = False

    def counts(self):
        with self.lock:
            return Counter(self.commands)

    def wait_for(self, condition):
        """Until this holds, which is looked at after each request."""
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S), "it did not come to that"

    # ------------------------------------------------------------------ requests

    def fault(self, command, *, is_before):
        with self.lock:
            for fault in self._faults:
                if fault.command == command and fault.is_before == is_before and fault.times:
                    fault.times -= 1
                    self._is_gone = fault.is_for_good
                    return True
            return self._is_gone

    def parts(self, name):
        count = self.partitions[name]
        return [f"{name}-partition-{number}" for number in range(count)] or [name]

    def partition_count(self, topic):
        name = full_name(topic)
        if name in self.logs:
            return 0
        if name not in self.partitions:
            raise Refused(TOPIC_NOT_FOUND, f"Topic {name} does not exist")
        return self.partitions[name]

    def topics_of(self, namespace):
        return [name for name in self.logs if name.startswith(f"persistent://{namespace}/")]

    def open_log(self, topic):
        log = self.logs.get(full_name(topic))
        if log is None:
            raise Refused(TOPIC_NOT_FOUND, f"Topic {topic} does not exist")
        return log

    def check_token(self, method, data):
        if self.token is not None and (method, data) != ("token", self.token):
            raise Refused(AUTHENTICATION, "Failed to authenticate")

    def subscribe(self, asked, send, close):
        """A consumer of a SUBSCRIBE."""
        log = self.open_log(asked["topic"])
        is_durable = bool(asked.get("durable", 1))
        start = asked.get("start_message_id")
        subscription = log.subscriptions.get(asked["subscription"]) if is_durable else None
        if subscription is None:
            is_earliest = asked.get("initialPosition", 0) == 1
            read = log.start if is_earliest else log.end
            if start is not None:
                # As a real one: behind this message, but for a place within a batch.
                read = log.place(start, after="batch_index" not in start)
            subscription = Subscription(read, read - 1)
            if is_durable:
                log.subscriptions[asked["subscription"]] = subscription
        if subscription.consumer is not None:
            raise Refused(CONSUMER_BUSY, "Exclusive consumer is already connected")
        subscription.read = max(subscription.acknowledged + 1, log.start)
        subscription.consumer = Consumer(
            asked["consumer_id"], log, subscription, send, close, is_durable
        )
        return subscription.consumer

    def deliver(self, log):
        """What consumers have room for."""
        for consumer in [one.consumer for one in log.subscriptions.values()]:
            if consumer is not None:
                self.deliver_to(consumer)

    def deliver_to(self, consumer):
        subscription, log = consumer.subscription, consumer.log
        while consumer.permits > 0 and subscription.read < log.end:
            entry = log.entries[subscription.read]
            message_id = {"ledgerId": LEDGER, "entryId": subscription.read}
            if log.partition >= 0:
                message_id["partition"] = log.partition
            subscription.read += 1
            consumer.permits -= entry.count
            consumer.send(message_id, entry.data)

    def acknowledge(self, consumer, message_ids, is_cumulative):
        """One by one: only in order, which is how tests do it."""
        for one in message_ids:
            subscription = consumer.subscription
            if is_cumulative or one["entryId"] == subscription.acknowledged + 1:
                subscription.acknowledged = max(subscription.acknowledged, one["entryId"])

    def seek(self, consumer, place):
        """The consumer is closed, as by a real broker; it comes again."""
        consumer.subscription.read = place
        consumer.subscription.acknowledged = place - 1
        self.leave(consumer)
        consumer.close()

    def leave(self, consumer):
        if consumer.subscription.consumer is consumer:
            consumer.subscription.consumer = None
