"""Pulsar's protocol for a `Broker`: each command decoded, carried out under the lock, answered."""

import contextlib
import socketserver

from tests.tools.brokers.pulsar.broker import Broker, Refused
from tests.tools.brokers.pulsar.commands import frame, metadata, parse
from tests.tools.brokers.serving import LoopbackServer, serving

MAX_MESSAGE_BYTES = 5 << 20
PROTOCOL = 19


@contextlib.contextmanager
def running_broker(tls=None, **topics):
    """`topics`: names and counts of partitions, 0: none. `tls`: an SSLContext of a server."""
    broker = Broker()
    for topic, partitions in topics.items():
        broker.create(topic, partitions)
    server = LoopbackServer(_Connection, broker=broker)
    scheme = "pulsar" if tls is None else "pulsar+ssl"
    broker.url = f"{scheme}://127.0.0.1:{server.port}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield broker


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        broker = self.server.broker
        self.consumers = {}
        self.producers = {}
        with contextlib.suppress(ConnectionError, ValueError):
            while size := self.rfile.read(4):
                name, body, rest = parse(self.rfile.read(int.from_bytes(size, "big")))
                assert name is not None, f"a command that is not spoken here: {body}"
                if not self._carry_out(broker, name, body, rest):
                    break
        with broker.changed:
            for consumer in self.consumers.values():
                broker.leave(consumer)
            broker.changed.notify_all()

    def send(self, command, rest=b"", **body):
        with contextlib.suppress(OSError):
            self.wfile.write(frame(command, body, rest))

    def _carry_out(self, broker, name, body, rest):
        """Whether the connection stays."""
        if broker.fault(name, is_before=True):
            return False
        with broker.changed:
            broker.commands.append(name)
            answers = []
            try:
                getattr(self, f"_{name.lower()}")(broker, body, rest, answers)
            except Refused as refused:
                answers = [_refusal(name, body, refused)]
            broker.changed.notify_all()
            stays = not broker.fault(name, is_before=False)
            if stays:
                for command, fields in answers:
                    self.send(command, **fields)
        return stays

    # ------------------------------------------------------------------ connections and topics

    def _connect(self, broker, body, rest, answers):
        broker.check_token(body.get("auth_method_name"), body.get("auth_data"))
        fields = {"server_version": "tests", "protocol_version": PROTOCOL}
        answers.append(("CONNECTED", fields | {"max_message_size": MAX_MESSAGE_BYTES}))

    def _ping(self, broker, body, rest, answers):
        answers.append(("PONG", {}))

    def _pong(self, broker, body, rest, answers):
        pass

    def _lookup(self, broker, body, rest, answers):
        name = "brokerServiceUrlTls" if "+ssl" in broker.url else "brokerServiceUrl"
        fields = {name: broker.url, "response": 1, "authoritative": 1}
        answers.append(("LOOKUP_RESPONSE", fields | {"request_id": body["request_id"]}))

    def _partitioned_metadata(self, broker, body, rest, answers):
        fields = {"partitions": broker.partition_count(body["topic"]), "response": 0}
        fields["request_id"] = body["request_id"]
        answers.append(("PARTITIONED_METADATA_RESPONSE", fields))

    def _get_topics_of_namespace(self, broker, body, rest, answers):
        fields = {"request_id": body["request_id"], "topics": broker.topics_of(body["namespace"])}
        answers.append(("GET_TOPICS_OF_NAMESPACE_RESPONSE", fields))

    # ------------------------------------------------------------------ producers

    def _producer(self, broker, body, rest, answers):
        log = broker.open_log(body["topic"])
        name = body.get("producer_name") or f"tests-{len(broker.commands)}"
        self.producers[body["producer_id"]] = log
        fields = {"request_id": body["request_id"], "producer_name": name}
        answers.append(("PRODUCER_SUCCESS", fields | {"last_sequence_id": log.last_sequence(name)}))

    def _send(self, broker, body, rest, answers):
        log = self.producers[body["producer_id"]]
        number = log.append(rest, metadata(rest))
        message_id = {"ledgerId": -1, "entryId": -1} if number is None else log.message_id(number)
        fields = {"producer_id": body["producer_id"], "sequence_id": body["sequence_id"]}
        answers.append(("SEND_RECEIPT", fields | {"message_id": message_id}))
        broker.deliver(log)

    def _close_producer(self, broker, body, rest, answers):
        self.producers.pop(body["producer_id"], None)
        answers.append(("SUCCESS", {"request_id": body["request_id"]}))

    # ------------------------------------------------------------------ consumers

    def _subscribe(self, broker, body, rest, answers):
        number = body["consumer_id"]

        def send(message_id, data):
            self.send("MESSAGE", data, consumer_id=number, message_id=message_id)

        def close():
            self.consumers.pop(number, None)
            self.send("CLOSE_CONSUMER", consumer_id=number, request_id=0)

        self.consumers[number] = broker.subscribe(body, send, close)
        answers.append(("SUCCESS", {"request_id": body["request_id"]}))

    def _flow(self, broker, body, rest, answers):
        consumer = self.consumers.get(body["consumer_id"])
        if consumer is not None:
            consumer.permits += body["messagePermits"]
            broker.deliver_to(consumer)

    def _ack(self, broker, body, rest, answers):
        consumer = self.consumers.get(body["consumer_id"])
        if consumer is not None:
            broker.acknowledge(consumer, body["message_id"], body["ack_type"] == 1)
        if "request_id" in body:
            fields = {"consumer_id": body["consumer_id"], "request_id": body["request_id"]}
            answers.append(("ACK_RESPONSE", fields))

    def _redeliver(self, broker, body, rest, answers):
        consumer = self.consumers.get(body["consumer_id"])
        if consumer is not None:
            consumer.subscription.read = consumer.subscription.acknowledged + 1
            broker.deliver_to(consumer)

    def _seek(self, broker, body, rest, answers):
        consumer = self.consumers[body["consumer_id"]]
        if "message_id" in body:
            place = consumer.log.place(body["message_id"])
        else:
            place = consumer.log.place_at(body["message_publish_time"])
        broker.seek(consumer, place)
        answers.append(("SUCCESS", {"request_id": body["request_id"]}))

    def _get_last_message_id(self, broker, body, rest, answers):
        consumer = self.consumers[body["consumer_id"]]
        log = consumer.log
        last = log.message_id(log.end - 1 if log.end > log.start else -1)
        read = {"ledgerId": last["ledgerId"], "entryId": consumer.subscription.acknowledged}
        fields = {"request_id": body["request_id"], "last_message_id": last}
        answers.append(("GET_LAST_MESSAGE_ID_RESPONSE", fields | {"consumer_mark_delete": read}))

    def _unsubscribe(self, broker, body, rest, answers):
        consumer = self.consumers.pop(body["consumer_id"])
        log = consumer.log
        log.subscriptions = {
            name: one for name, one in log.subscriptions.items() if one is not consumer.subscription
        }
        answers.append(("SUCCESS", {"request_id": body["request_id"]}))

    def _close_consumer(self, broker, body, rest, answers):
        consumer = self.consumers.pop(body["consumer_id"], None)
        if consumer is not None:
            broker.leave(consumer)
        answers.append(("SUCCESS", {"request_id": body["request_id"]}))


def _refusal(name, body, refused):
    """In the form that the client waits for."""
    fields = {
        "request_id": body.get("request_id", 0),
        "error": refused.code,
        "message": str(refused),
    }
    if name == "PARTITIONED_METADATA":
        return "PARTITIONED_METADATA_RESPONSE", fields | {"response": 1}
    return "ERROR", fields
