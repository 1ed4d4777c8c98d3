"""AMQP for a `Broker`: each method decoded, carried out under the lock, answered. What goes out is queued, as long as need be."""

import contextlib
import queue
import socket
import socketserver
import threading

from pika import frame, spec
from pika.exceptions import InvalidFrameError

from tests.tools.brokers.amqp.broker import Broker, Channel, Consumer, NoSuchQueue, UnknownTag
from tests.tools.brokers.serving import LoopbackServer, serving

FRAME_MAX = 131_072
CAPABILITIES = {
    "capabilities": {
        "basic.nack": True,
        "publisher_confirms": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "authentication_failure_close": True,
    }
}


@contextlib.contextmanager
def running_broker():
    broker = Broker()
    server = _WaitingServer(_Connection, broker=broker)
    broker.uri = f"amqp://guest:guest@127.0.0.1:{server.port}/"
    with serving(server, before_shutdown=broker.cut):
        yield broker


class _WaitingServer(LoopbackServer):
    block_on_close = True


class _Gone(Exception):
    """The connection ends."""


class _Connection(socketserver.BaseRequestHandler):
    def setup(self):
        self.broker = self.server.broker
        self.channels = {}
        self.contents = {}
        self.heartbeat_s = 0
        self.outgoing = queue.SimpleQueue()
        self.writer = threading.Thread(target=self._write, daemon=True)
        self.writer.start()
        with self.broker.changed:
            self.broker.connections.append(self)
            if self.broker.refused_connections:
                self.broker.refused_connections -= 1
                self.cut()

    def handle(self):
        with contextlib.suppress(OSError, _Gone, InvalidFrameError):
            data = b""
            while received := self.request.recv(65_536):
                data += received
                while (found := frame.decode_frame(data))[0]:
                    data = data[found[0] :]
                    self._take(found[1])

    def finish(self):
        self.outgoing.put(None)
        self.cut()
        with self.broker.changed:
            self.broker.connections.remove(self)
            for channel in self.channels.values():
                self.broker.close_channel(channel)
            self.broker.deliver()
            self.broker.changed.notify_all()
        self.writer.join()

    def cut(self):
        with contextlib.suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def close_channels(self, code, text):
        for number in self.channels:
            self._send(number, spec.Channel.Close(code, text, 0, 0))

    # ------------------------------------------------------------------ what comes

    def _take(self, found):
        number = getattr(found, "channel_number", 0)
        if isinstance(found, frame.ProtocolHeader):
            self._send(0, spec.Connection.Start(server_properties=CAPABILITIES, mechanisms="PLAIN"))
        elif isinstance(found, frame.Heartbeat):
            with self.broker.changed:
                self.broker.heartbeats += 1
                self.broker.changed.notify_all()
        elif isinstance(found, frame.Method) and spec.has_content(found.method.INDEX):
            self.contents[number] = [found.method, None, b""]
        elif isinstance(found, frame.Method):
            self._carry_out(number, found.method)
        elif isinstance(found, frame.Header):
            self.contents[number][1] = found
            self._complete(number)
        else:
            self.contents[number][2] += found.fragment
            self._complete(number)

    def _complete(self, number):
        method, header, body = self.contents[number]
        if len(body) == header.body_size:
            del self.contents[number]
            self._carry_out(number, method, body, header.properties)

    def _carry_out(self, number, method, *content):
        broker, name = self.broker, method.NAME
        if broker.must_cut(name, is_before=True):
            raise _Gone
        with broker.changed:
            broker.methods.append(name)
            try:
                getattr(self, name.replace(".", "_"))(number, method, *content)
            except (NoSuchQueue, UnknownTag) as error:
                code = 404 if isinstance(error, NoSuchQueue) else 406
                text = "NOT_FOUND - no queue" if code == 404 else "PRECONDITION_FAILED - tag"
                self._drop_channel(number)
                self._send(number, spec.Channel.Close(code, f"{text} {error}", 0, 0))
            broker.deliver()
            broker.changed.notify_all()
        if broker.must_cut(name, is_before=False):
            raise _Gone

    def Connection_StartOk(self, number, method):
        _, user, password = method.response.split(b"\0")
        if self.broker.users.get(user.decode()) != password.decode():
            text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
            self._send(0, spec.Connection.Close(403, text, 0, 0))
        else:
            self._send(0, spec.Connection.Tune(2047, FRAME_MAX, 60))

    def Connection_TuneOk(self, number, method):
        self.heartbeat_s = method.heartbeat
        self.outgoing.put(b"")  # the writer sees that there are heartbeats now

    def Connection_Open(self, number, method):
        if method.virtual_host == "/":
            self._send(0, spec.Connection.OpenOk())
        else:
            text = f"NOT_ALLOWED - vhost {method.virtual_host} not found"
            self._send(0, spec.Connection.Close(530, text, 10, 40))

    def Connection_Close(self, number, method):
        self._send(0, spec.Connection.CloseOk())
        self.outgoing.put(None)
        self.writer.join()
        raise _Gone

    def Connection_CloseOk(self, number, method):
        raise _Gone

    def Channel_Open(self, number, method):
        self.channels[number] = channel = Channel(None)
        channel.send = lambda consumer, tag, message: self._deliver(number, consumer, tag, message)
        self._send(number, spec.Channel.OpenOk())

    def Channel_Close(self, number, method):
        self._drop_channel(number)
        self._send(number, spec.Channel.CloseOk())

    def Channel_CloseOk(self, number, method):
        self._drop_channel(number)

    def Queue_Declare(self, number, method):
        counts = self.broker.declare(
            method.queue,
            is_passive=method.passive,
            durable=method.durable,
            exclusive=method.exclusive,
            auto_delete=method.auto_delete,
        )
        self._send(number, spec.Queue.DeclareOk(method.queue, *counts))

    def Queue_Delete(self, number, method):
        count, gone = self.broker.delete(method.queue)
        for consumer in gone:
            consumer.channel.send(consumer, None, None)
        self._send(number, spec.Queue.DeleteOk(count))

    def Basic_Qos(self, number, method):
        assert not method.global_qos, "quorum queues do not know it"
        self.channels[number].prefetch = method.prefetch_count
        self._send(number, spec.Basic.QosOk())

    def Basic_Consume(self, number, method):
        channel = self.channels[number]
        consumer = Consumer(
            channel, method.consumer_tag, method.queue, method.no_ack, channel.prefetch
        )
        self.broker.consumers.append(consumer)
        self._send(number, spec.Basic.ConsumeOk(method.consumer_tag))

    def Basic_Cancel(self, number, method):
        self.broker.cancel(self.channels[number], method.consumer_tag)
        self._send(number, spec.Basic.CancelOk(method.consumer_tag))

    def Basic_Get(self, number, method):
        found = self.broker.get(self.channels[number], method.queue, has_no_ack=method.no_ack)
        if found is None:
            self._send(number, spec.Basic.GetEmpty())
            return
        tag, message, left = found
        ok = spec.Basic.GetOk(tag, message.is_redelivered, "", method.queue, left)
        self._send(number, ok, message)

    def Basic_Publish(self, number, method, body, properties):
        channel, broker = self.channels[number], self.broker
        channel.published += 1
        assert not method.exchange, "there is the default exchange only"
        answer = spec.Basic.Ack(channel.published)
        if broker.refuses_messages:
            answer = spec.Basic.Nack(channel.published)
        elif not broker.publish(method.routing_key, body, properties) and method.mandatory:
            returned = spec.Basic.Return(312, "NO_ROUTE", "", method.routing_key)
            self._send(number, returned, _Content(body, properties))
        if channel.confirms and not broker.holds_confirms:
            self._send(number, answer)

    def Basic_Ack(self, number, method):
        channel = self.channels[number]
        if channel.has_transactions:
            channel.in_transaction.append(method)
        else:
            self.broker.settle(channel, method.delivery_tag, is_multiple=method.multiple)

    def Basic_Reject(self, number, method):
        tag, requeues = method.delivery_tag, method.requeue
        self.broker.settle(self.channels[number], tag, is_multiple=False, requeues=requeues)

    def Tx_Select(self, number, method):
        self.channels[number].has_transactions = True
        self._send(number, spec.Tx.SelectOk())

    def Tx_Commit(self, number, method):
        channel = self.channels[number]
        acks, channel.in_transaction = channel.in_transaction, []
        for ack in acks:
            self.broker.settle(channel, ack.delivery_tag, is_multiple=ack.multiple)
        self._send(number, spec.Tx.CommitOk())

    def Confirm_Select(self, number, method):
        self.channels[number].confirms = True
        self._send(number, spec.Confirm.SelectOk())

    def _drop_channel(self, number):
        channel = self.channels.pop(number, None)
        if channel is not None:
            self.broker.close_channel(channel)

    # ------------------------------------------------------------------ what goes

    def _deliver(self, number, consumer, tag, message):
        if message is None:
            self._send(number, spec.Basic.Cancel(consumer.tag, True))
            return
        method = spec.Basic.Deliver(consumer.tag, tag, message.is_redelivered, "", consumer.queue)
        self._send(number, method, message)

    def _send(self, number, method, content=None):
        data = frame.Method(number, method).marshal()
        if content is not None:
            data += frame.Header(number, len(content.body), content.properties).marshal()
            step = FRAME_MAX - 8
            for begin in range(0, len(content.body), step):
                data += frame.Body(number, content.body[begin : begin + step]).marshal()
        self.outgoing.put(data)

    def _write(self):
        heartbeat = frame.Heartbeat().marshal()
        with contextlib.suppress(OSError):
            while True:
                try:
                    wait_s = self.heartbeat_s / 2 if self.heartbeat_s else None
                    data = self.outgoing.get(timeout=wait_s)
                except queue.Empty:
                    data = heartbeat
                if data is None:
                    return
                self.request.sendall(data)


class _Content:
    def __init__(self, body, properties):
        self.body = body
        self.properties = properties
