"""Publishes to an MQTT broker and collects what it has, with the client library alone."""

import socket
import threading
import uuid
from contextlib import contextmanager, suppress

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.tools.waiting import wait_until


@contextmanager
def connected(port, client_id="", *, keeps=False, on_message=None, topic=None):
    """A client. `keeps`: the broker keeps its session. `topic`: subscribed, at QoS 1."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5)
    client.reconnect_delay_set(1, 1)
    client.on_message = on_message
    ready = threading.Event()
    client.on_subscribe = lambda *_: ready.set()
    # On each connection: a broker that was killed may not know it any more.
    client.on_connect = lambda *_: client.subscribe(topic, 1) if topic else ready.set()
    properties = Properties(PacketTypes.CONNECT)
    if keeps:
        properties.SessionExpiryInterval = 1000
    client.connect("127.0.0.1", port, clean_start=not keeps, properties=properties)
    client.loop_start()
    try:
        assert ready.wait(30), "no connection"
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def publish(port, topic, *bodies, qos=1, retain=False):
    with connected(port) as client:
        for info in [client.publish(topic, body, qos, retain) for body in bodies]:
            info.wait_for_publish(30)
            assert info.is_published()


def subscribed(port, client_id, topic):
    """A session is there: what is published from now on is kept for the client."""
    with connected(port, client_id, keeps=True, topic=topic):
        pass


@contextmanager
def collecting(port, topic):
    """The list of what comes, as (topic, text)."""
    seen = []

    def note(_client, _data, message):
        seen.append((message.topic, message.payload.decode()))

    with connected(port, uuid.uuid4().hex, keeps=True, on_message=note, topic=topic):
        yield seen


def wait_for(seen, texts):
    wait_until(lambda: {text for _, text in seen} >= set(texts), f"missing in {len(seen)}")


def cut(relay):
    """Breaks the connections that go through a relay."""
    for sock in list(relay._sockets):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
