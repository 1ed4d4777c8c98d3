"""The other side of RabbitMQ: publishes and drains queues with a client of its own, and plays the task of a reader or writer."""

import contextlib
import threading
from urllib.parse import urlsplit

import pika

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.records.dead_letters import checked
from penstock.engine.runtime.sources.contract import ReaderStatus, SplitBatch
from tests.tools.connectors.played_by_hand import FakeReaderContext, values, writer_context

WAIT_S = 30


class ProxiedBroker:
    """A real broker behind a proxy that can cut; `uri` is the proxy's."""

    def __init__(self, uri, proxy):
        parts = urlsplit(uri)
        host, port = proxy.server_address
        self.uri = f"amqp://{parts.username}:{parts.password}@{host}:{port}{parts.path}"
        self.cut = proxy.cut


@contextlib.contextmanager
def connected(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        yield connection.channel()


def make_queue(broker, queue, **arguments):
    with connected(broker) as channel:
        channel.queue_declare(queue, durable=True, arguments=arguments)


def delete_queue(broker, queue):
    with connected(broker) as channel:
        channel.queue_delete(queue)


def publish(broker, queue, *texts, has_ids=True, declares=True):
    """Each with itself as its correlation id, in a queue that is made."""
    with connected(broker) as channel:
        if declares:
            channel.queue_declare(queue, durable=True)
        channel.tx_select()
        for text in texts:
            properties = pika.BasicProperties(correlation_id=text if has_ids else None)
            channel.basic_publish("", queue, text.encode(), properties)
        channel.tx_commit()


def drained(broker, queue):
    """What waits in the queue, as (text, properties); it is empty then."""
    found = []
    with connected(broker) as channel:
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((body.decode(), properties))


def texts_in(broker, queue):
    return [text for text, _ in drained(broker, queue)]


def config_builder(broker):
    """Connects again at once."""
    builder = RMQConnectionConfig.Builder().set_uri(broker.uri)
    return builder.set_network_recovery_interval(20)


def source_of(broker, queue, *, uses_ids=True, schema=None, builder=None):
    config = (builder or config_builder(broker)).build()
    return RMQSource(config, queue, uses_ids, schema or SimpleStringSchema())


def sink_of(broker, queue, builder=None):
    config = (builder or config_builder(broker)).build()
    return RMQSink(config, queue, SimpleStringSchema())


class Reading(FakeReaderContext):
    """One reader; waits until its connection's thread has something. Checkpoints are taken by hand."""

    def __init__(self, source, states=(), *, takes_checkpoints=True, subtask=0):
        super().__init__(subtask)
        self.has_checkpoints = takes_checkpoints
        self.has_news = threading.Event()
        self.reader = source.create_reader(self)
        self.reader.add_splits(states)
        self.reader.start()
        self.values = []
        self.checked = checked

    def takes_checkpoints(self):
        return self.has_checkpoints

    def wake(self):
        self.has_news.set()

    def poll(self):
        self.has_news.clear()
        polled = self.reader.poll_next()
        if isinstance(polled, SplitBatch):
            self.values += values(self.checked(polled.batch))
        else:
            assert polled is ReaderStatus.NOTHING_AVAILABLE
            assert self.has_news.wait(WAIT_S), f"nothing comes behind {self.values[-5:]}"

    def marked(self, count):
        """As `read`, with what cannot be decoded among it."""
        self.checked = lambda batch: batch
        return self.read(count)

    def read(self, count):
        """Until so many came, in all; they are what is returned."""
        while len(self.values) < count:
            self.poll()
        return self.values

    def checkpoint(self, number, *, completes=True):
        """Its state."""
        self.reader.before_checkpoint(number)
        state = list(self.reader.snapshot_state())
        if completes:
            self.reader.notify_checkpoint_complete(number)
        return state

    def close(self):
        self.reader.close()


@contextlib.contextmanager
def reading(source, states=(), **more):
    found = Reading(source, states, **more)
    try:
        yield found
    finally:
        found.close()


@contextlib.contextmanager
def writing(sink):
    writer = sink.create_writer(writer_context())
    try:
        yield writer
    finally:
        writer.close()


def rows_of(*texts):
    return RowBatch(list(texts))


def numbers(start, stop):
    return [str(number) for number in range(start, stop)]
