"""Kafka's protocol for a `Broker`: each request decoded, carried out under the lock, answered."""

import contextlib
import socketserver
import struct

from tests.tools.brokers.kafka.broker import (
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC,
    UNSTABLE_OFFSET_COMMIT,
    Broker,
)
from tests.tools.brokers.kafka.codec import (
    Reader,
    array,
    blob,
    compact_array,
    compact_text,
    pack,
    text,
)
from tests.tools.brokers.serving import LoopbackServer, serving

# API key: name, oldest and newest version spoken here.
APIS = {
    0: ("Produce", 3, 3), 1: ("Fetch", 4, 4), 2: ("ListOffsets", 1, 2), 3: ("Metadata", 1, 4), 8: ("OffsetCommit", 2, 2),
    9: ("OffsetFetch", 1, 5), 10: ("FindCoordinator", 0, 1), 18: ("ApiVersions", 0, 0), 22: ("InitProducerId", 0, 0),
    65: ("DescribeTransactions", 0, 0), 66: ("ListTransactions", 0, 0),
    24: ("AddPartitionsToTxn", 0, 0), 25: ("AddOffsetsToTxn", 0, 0), 26: ("EndTxn", 0, 0), 28: ("TxnOffsetCommit", 0, 0),
}  # fmt: skip
# What `tests/tools/brokers/kafka_door` answers in front of it: SaslHandshake and SaslAuthenticate.
OF_DOOR = {17: (1, 1), 36: (0, 1)}
FLEXIBLE = {65, 66}
NODE = 1
UNSUPPORTED_VERSION = 35


@contextlib.contextmanager
def running_broker(**topics):
    """`topics`: names and counts of partitions."""
    broker = Broker()
    for topic, partitions in topics.items():
        broker.create(topic, partitions)
    server = LoopbackServer(_Connection, broker=broker)
    broker.servers = f"127.0.0.1:{server.port}"
    with serving(server):
        yield broker


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        with contextlib.suppress(ConnectionError, ValueError):
            while size := self.rfile.read(4):
                reader = Reader(self.rfile.read(struct.unpack(">i", size)[0]))
                key, version, correlation = reader.take("hhi")
                reader.text()
                if key in FLEXIBLE:
                    reader.take("b")  # no tagged fields, here and in the answer
                answer = self._answer(key, version, reader)
                if answer is None:
                    return
                if key in FLEXIBLE:
                    answer = b"\0" + answer
                self.wfile.write(pack("ii", len(answer) + 4, correlation) + answer)

    def _answer(self, key, version, reader):
        broker = self.server.broker
        name, oldest, newest = APIS.get(key, ("?", 0, -1))
        if not oldest <= version <= newest:
            if key != 18:
                raise ValueError(f"request {key} of version {version}")
            return pack("h", UNSUPPORTED_VERSION) + _versions()
        if broker.fault(name, is_before=True):
            return None
        with broker.changed:
            broker.requests.append(name)
            answer = getattr(_Requests(broker), name)(version, reader)
            broker.changed.notify_all()
        if name == "Fetch" and answer[1]:
            self._wait(*answer[1:])
            with broker.changed:
                answer = getattr(_Requests(broker), name)(version, answer[3])
        if name == "Fetch":
            answer = answer[0]
        return None if broker.fault(name, is_before=False) else answer

    def _wait(self, max_wait_ms, logs, _again):
        """A fetch that found nothing waits until there is something."""
        broker = self.server.broker
        ends = [log.end for log in logs]
        with broker.changed:
            broker.changed.wait_for(
                lambda: [log.end for log in logs] != ends, min(max_wait_ms, 200) / 1000
            )


def _versions():
    spoken = {key: found[1:] for key, found in APIS.items()} | OF_DOOR
    return array(pack("hhh", key, *found) for key, found in spoken.items())


class _Requests:
    """Each takes (version, reader) and gives the answer's bytes."""

    def __init__(self, broker):
        self.broker = broker

    def ApiVersions(self, version, reader):
        return pack("h", 0) + _versions()

    def Metadata(self, version, reader):
        names = reader.array(reader.text)
        may_create = bool(reader.take("b")) if version >= 4 else True
        broker = self.broker
        if names is None or (version == 0 and not names):
            names = sorted(broker.topics)
        elif may_create and broker.creates_topics:
            for name in names:
                broker.create(name)
        host, port = broker.servers.split(":")
        node = pack("i", NODE) + text(host) + pack("i", int(port)) + text(None)
        throttle = pack("i", 0) if version >= 3 else b""
        cluster = text("tests") if version >= 2 else b""
        return throttle + array([node]) + cluster + pack("i", NODE) + array(map(self._topic, names))

    def _topic(self, name):
        logs = self.broker.topics.get(name)
        code = UNKNOWN_TOPIC if logs is None else 0
        one = array([pack("i", NODE)])
        parts = (pack("hii", 0, number, NODE) + one + one for number in range(len(logs or ())))
        return pack("h", code) + text(name) + pack("b", 0) + array(parts)

    def FindCoordinator(self, version, reader):
        host, port = self.broker.servers.split(":")
        where = pack("i", NODE) + text(host) + pack("i", int(port))
        return (pack("ih", 0, 0) + text(None) if version else pack("h", 0)) + where

    def Produce(self, version, reader):
        transactional_id = reader.text()
        reader.take("hi")

        def partition(topic):
            number, records = reader.take("i"), reader.blob()
            log = self.broker.log(topic, number)
            if log is None:
                return pack("ihqq", number, UNKNOWN_TOPIC, -1, -1)
            who = struct.unpack_from(">qh", records, 43)
            code = self.broker.is_fenced(transactional_id, *who)
            if code:
                return pack("ihqq", number, code, -1, -1)
            return pack("ihqq", number, 0, log.append(records), -1)

        return self._by_topic(reader, partition) + pack("i", 0)

    def Fetch(self, version, reader):
        """(answer, how long to wait for more or 0, logs asked for, the request to look at again)."""
        begin = reader.place
        _, max_wait, _, max_bytes, isolation = reader.take("iiiib")
        logs, found = [], []

        def partition(topic):
            number, offset, part_bytes = reader.take("iqi")
            log = self.broker.log(topic, number)
            if log is None:
                return pack("ihqq", number, UNKNOWN_TOPIC, -1, -1) + array([]) + blob(b"")
            if self.broker.fetch_errors:
                found.append(offset)
                code = self.broker.fetch_errors.pop(0)
                return pack("ihqq", number, code, -1, -1) + array([]) + blob(b"")
            if not log.start <= offset <= log.end:
                found.append(offset)
                return pack("ihqq", number, OFFSET_OUT_OF_RANGE, -1, -1) + array([]) + blob(b"")
            limit = log.stable_end if isolation else log.end
            records = log.read(offset, limit, min(part_bytes, max_bytes))
            logs.append(log)
            if records:
                found.append(records)
            aborted = log.aborted_in(offset) if isolation else []
            head = pack("ihqq", number, 0, log.end, log.stable_end)
            return head + array(pack("qq", *one) for one in aborted) + blob(records)

        answer = pack("i", 0) + self._by_topic(reader, partition)
        reader.place = begin
        return answer, 0 if found else max_wait, logs, reader

    def ListOffsets(self, version, reader):
        reader.take("i")
        isolation = reader.take("b") if version >= 2 else 0

        def partition(topic):
            number, stamp = reader.take("iq")
            log = self.broker.log(topic, number)
            if log is None:
                return pack("ihqq", number, UNKNOWN_TOPIC, -1, -1)
            if stamp == -2:
                return pack("ihqq", number, 0, -1, log.start)
            if stamp == -1:
                return pack("ihqq", number, 0, -1, log.stable_end if isolation else log.end)
            offset, at = log.offset_at(stamp) or (-1, -1)
            return pack("ihqq", number, 0, at, offset)

        return (pack("i", 0) if version >= 2 else b"") + self._by_topic(reader, partition)

    def OffsetCommit(self, version, reader):
        group = reader.text()
        reader.take("i")
        reader.text()
        reader.take("q")

        def partition(topic):
            number, offset = reader.take("iq")
            self.broker.committed[group, topic, number] = offset, reader.text()
            return pack("ih", number, 0)

        return self._by_topic(reader, partition)

    def OffsetFetch(self, version, reader):
        group = reader.text()

        def partition(topic):
            number = reader.take("i")
            if self.broker.is_unstable(group, topic, number):
                return self._offset(version, number, (-1, None), UNSTABLE_OFFSET_COMMIT)
            found = self.broker.committed.get((group, topic, number), (-1, None))
            return self._offset(version, number, found, 0)

        answer = self._by_topic(reader, partition)
        head = pack("i", 0) if version >= 3 else b""
        return head + answer + (pack("h", 0) if version >= 2 else b"")

    @staticmethod
    def _offset(version, number, found, code):
        epoch = pack("i", -1) if version >= 5 else b""
        return pack("iq", number, found[0]) + epoch + text(found[1]) + pack("h", code)

    def InitProducerId(self, version, reader):
        transactional_id = reader.text()
        return pack("ihqh", 0, *self.broker.init_producer(transactional_id))

    def AddPartitionsToTxn(self, version, reader):
        who = reader.text(), *reader.take("qh")
        asked = []

        def topic():
            name = reader.text()
            asked.append((name, reader.array(lambda: reader.take("i"))))

        reader.array(topic)
        code = self.broker.add_partitions(
            who, [(name, one) for name, all_ in asked for one in all_]
        )
        return pack("i", 0) + array(
            text(name) + array(pack("ih", one, code) for one in numbers) for name, numbers in asked
        )

    def AddOffsetsToTxn(self, version, reader):
        who = reader.text(), *reader.take("qh")
        return pack("ih", 0, self.broker.add_offsets(who, reader.text()))

    def TxnOffsetCommit(self, version, reader):
        transactional_id, group = reader.text(), reader.text()
        who = transactional_id, *reader.take("qh")
        offsets = {}

        def partition(topic):
            number, offset = reader.take("iq")
            offsets[topic, number] = offset, reader.text()
            return pack("ih", number, 0)

        answer = self._by_topic(reader, partition)
        code = self.broker.transaction_offsets(who, group, offsets)
        if code:
            answer = array(
                text(topic) + array([pack("ih", number, code)]) for topic, number in offsets
            )
        return pack("i", 0) + answer

    def EndTxn(self, version, reader):
        who = reader.text(), *reader.take("qh")
        return pack("ih", 0, self.broker.end_transaction(who, bool(reader.take("b"))))

    def ListTransactions(self, version, reader):
        found = sorted(self.broker.producers.items())
        return (
            pack("ih", 0, 0)
            + compact_array([])
            + compact_array(
                compact_text(name) + pack("q", one.producer_id) + compact_text(one.state) + b"\0"
                for name, one in found
            )
            + b"\0"
        )

    def DescribeTransactions(self, version, reader):
        asked = reader.compact_array(reader.compact_text)
        return pack("i", 0) + compact_array(map(self._described, asked)) + b"\0"

    def _described(self, name):
        one = self.broker.producers[name]
        topics = {}
        for topic, number in sorted(one.partitions):
            topics.setdefault(topic, []).append(pack("i", number))
        partitions = (
            compact_text(topic) + compact_array(numbers) + b"\0"
            for topic, numbers in topics.items()
        )
        head = pack("h", 0) + compact_text(name) + compact_text(one.state)
        times = pack("iqqh", 60_000, 1_700_000_000_000, one.producer_id, one.epoch)
        return head + times + compact_array(partitions) + b"\0"

    @staticmethod
    def _by_topic(reader, partition):
        """The usual shape: topics with partitions, both ways."""

        def topic():
            name = reader.text()
            return text(name) + array(reader.array(lambda: partition(name)))

        return array(reader.array(topic))
