"""Translates properties of Kafka's Java client, as Flink programs have them, into librdkafka's. Does not know any
client.

Properties that librdkafka knows by the same name, including its own, are passed on. Properties with another name are
renamed, and those that only Java needs are left out. An unsupported property is an error that names its replacement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.connectors.kafka.security import TRANSLATED, security_properties
from penstock.engine.model.errors import ConfigurationError

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
GROUP_ID: Final = "group.id"
AUTO_OFFSET_RESET: Final = "auto.offset.reset"
CLIENT_ID_PREFIX: Final = "client.id.prefix"
DISCOVERY_INTERVAL_MS: Final = "partition.discovery.interval.ms"
COMMIT_ON_CHECKPOINT: Final = "commit.offsets.on.checkpoint"
API_TIMEOUT_MS: Final = "default.api.timeout.ms"
TRANSACTIONAL_ID: Final = "transactional.id"

OURS: Final = frozenset({
    CLIENT_ID_PREFIX,
    DISCOVERY_INTERVAL_MS,
    COMMIT_ON_CHECKPOINT,
    API_TIMEOUT_MS,
})
"""Read here, not by the client."""

_OF_JAVA: Final = frozenset(
    {
        "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "max.poll.records", "max.block.ms",
        "auto.include.jmx.reporter", "exclude.internal.topics", "register.consumer.metrics", "register.producer.metrics",
        "flink.disable-metrics", "flink.poll-timeout", "flink.partition-discovery.interval-millis",
        "ssl.protocol", "ssl.enabled.protocols", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
    }
)  # fmt: skip
_RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}
_INSTEAD: Final = {
    "ssl.truststore.password": "ssl.ca.location, a file of PEM certificates, which needs no password",
    "partitioner.class": "partitioner to one of librdkafka's; the default, murmur2_random, is Java's",
    "interceptor.classes": "nothing, and use a map before the sink, or behind the source",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.method=oidc and the sasl.oauthbearer.* properties",
}


_FOR_BOTH: Final = (
    "bootstrap.", "security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.", "client.id", API_TIMEOUT_MS,
)  # fmt: skip


def client_properties(properties: Mapping[str, str], where: str) -> dict[str, str]:
    """The properties for librdkafka. Raises: ConfigurationError: one is not supported; the text names its replacement."""
    found: dict[str, str] = {}
    for key, value in properties.items():
        if key in _INSTEAD:
            raise ConfigurationError(
                f"{where}: the property {key!r} is for Java's client only. Set {_INSTEAD[key]}."
            )
        if key == "ssl.endpoint.identification.algorithm":
            found[key] = value.lower() or "none"
        elif key == "buffer.memory":
            found["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
        elif key not in OURS | _OF_JAVA | TRANSLATED:
            found[_RENAMED.get(key, key)] = value
    return {**security_properties(properties, where), **found}


def shared_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that tell how to reach a cluster. A consumer refuses properties that are for producers alone."""
    return {key: value for key, value in properties.items() if key.startswith(_FOR_BOTH)}
