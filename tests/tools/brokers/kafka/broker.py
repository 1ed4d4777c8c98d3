"""What a broker keeps, and what requests do to it. One lock around all of it; knows no socket."""

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from tests.tools.brokers.kafka.log import PartitionLog

WAIT_S = 30
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, UNSTABLE_OFFSET_COMMIT = 1, 3, 88
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 47, 48


@dataclass
class Producer:
    """Of a transactional id. `partitions` and `offsets`: of its transaction, while `is_open`."""

    producer_id: int
    epoch: int = -1
    is_open: bool = False
    partitions: set = field(default_factory=set)
    offsets: dict = field(default_factory=dict)

    @property
    def state(self):
        return "Ongoing" if self.is_open else "Empty"


@dataclass
class Fault:
    """The next `times` requests of one kind: `before` they are carried out, or after, the connection is cut."""

    api: str
    times: int
    is_before: bool


class Broker:
    def __init__(self):
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.servers = ""
        self.topics: dict[str, list[PartitionLog]] = {}
        self.committed: dict[tuple[str, str, int], tuple[int, str]] = {}
        self.producers: dict[str, Producer] = {}
        self.creates_topics = False
        self.requests: list[str] = []
        self._next_producer_id = 1000
        self._faults: list[Fault] = []
        self.fetch_errors: list[int] = []

    # ------------------------------------------------------------------ for tests

    def create(self, topic, partitions=1):
        """Or add partitions to it."""
        with self.changed:
            logs = self.topics.setdefault(topic, [])
            logs.extend(PartitionLog() for _ in range(partitions - len(logs)))
            self.changed.notify_all()

    def fail(self, api, times=1, *, is_before):
        """The next requests of this kind: the client hears nothing, its connection is cut."""
        with self.lock:
            self._faults.append(Fault(api, times, is_before))

    def expire(self, topic, partition, start):
        """Remove the records below `start`."""
        with self.lock:
            log = self.topics[topic][partition]
            log.start = start
            log.batches = [batch for batch in log.batches if batch.last >= start]

    def offset(self, group, topic, partition=0):
        """What the group has committed; None: nothing."""
        with self.lock:
            found = self.committed.get((group, topic, partition))
            return None if found is None else found[0]

    def visible(self, topic):
        """How many records somebody sees who reads what is committed."""
        with self.lock:
            return sum(log.visible() for log in self.topics[topic])

    def heal(self):
        """No request fails any more."""
        with self.lock:
            self._faults.clear()

    def wait_for(self, condition):
        """Until this holds, which is looked at after each request."""
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S), "it did not come to that"

    # ------------------------------------------------------------------ requests; each returns an error code first

    def fault(self, api, *, is_before):
        with self.lock:
            for fault in self._faults:
                if fault.api == api and fault.is_before == is_before and fault.times:
                    fault.times -= 1
                    return True
            return False

    def log(self, topic, partition):
        logs = self.topics.get(topic, ())
        return logs[partition] if partition < len(logs) else None

    def init_producer(self, transactional_id):
        if transactional_id is None:
            self._next_producer_id += 1
            return 0, self._next_producer_id, 0
        producer = self.producers.get(transactional_id)
        if producer is None:
            self._next_producer_id += 1
            producer = self.producers[transactional_id] = Producer(self._next_producer_id)
        producer.epoch += 1
        self._end(producer, is_commit=False)
        return 0, producer.producer_id, producer.epoch

    def checked(self, transactional_id, producer_id, epoch):
        """(error code, producer)."""
        producer = self.producers.get(transactional_id)
        if producer is None or (producer.producer_id, producer.epoch) != (producer_id, epoch):
            return INVALID_PRODUCER_EPOCH, None
        return 0, producer

    def add_partitions(self, who, partitions):
        code, producer = self.checked(*who)
        if producer is not None:
            producer.is_open = True
            producer.partitions.update(partitions)
        return code

    def add_offsets(self, who, group):
        code, producer = self.checked(*who)
        if producer is not None:
            producer.is_open = True
            producer.offsets.setdefault(group, {})
        return code

    def transaction_offsets(self, who, group, offsets):
        code, producer = self.checked(*who)
        if producer is not None:
            producer.offsets[group].update(offsets)
        return code

    def end_transaction(self, who, is_commit):
        code, producer = self.checked(*who)
        if producer is not None:
            if not producer.is_open:
                return INVALID_TXN_STATE
            self._end(producer, is_commit=is_commit)
        return code

    def is_fenced(self, transactional_id, producer_id, epoch):
        return (
            transactional_id is not None and self.checked(transactional_id, producer_id, epoch)[0]
        )

    def is_unstable(self, group, topic, partition):
        """A transaction that has not ended has an offset for it."""
        return any(
            (topic, partition) in producer.offsets.get(group, {})
            for producer in self.producers.values()
        )

    def _end(self, producer, *, is_commit):
        for topic, partition in producer.partitions:
            self.log(topic, partition).end_transaction(
                producer.producer_id, producer.epoch, is_commit
            )
        if is_commit:
            for group, offsets in producer.offsets.items():
                for (topic, partition), found in offsets.items():
                    self.committed[group, topic, partition] = found
        producer.is_open = False
        producer.partitions = set()
        producer.offsets = {}

    def counts(self):
        """How many requests of each kind came."""
        found = defaultdict(int)
        for name in self.requests:
            found[name] += 1
        return found
