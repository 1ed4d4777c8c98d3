"""Translates properties of Kafka's Java client, as Flink programs have them, into librdkafka's. Does not know any
client.

Properties that librdkafka knows by the same name, including its own, are passed on. Properties with another name are
renamed, and those that only Java needs are left out. An unsupported property is an error that names its replacement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.model.errors import ConfigurationError

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
        "flink.disable-metrics", "flink.poll-timeout", "flink.partition-discovery.interval-millis", "sasl.jaas.config",
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
    "ssl.truststore.location": "ssl.ca.location, a file of PEM certificates (keytool -exportcert -rfc makes one)",
    "ssl.truststore.password": "ssl.ca.location, a file of PEM certificates, which needs no password",
    "ssl.truststore.type": "ssl.ca.location, a file of PEM certificates",
    "partitioner.class": "partitioner to one of librdkafka's; the default, murmur2_random, is Java's",
    "interceptor.classes": "nothing, and use a map before the sink, or behind the source",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.method=oidc and the sasl.oauthbearer.* properties",
}
_CREDENTIAL: Final = re.compile(r"\b(username|password)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))")


def client_properties(properties: Mapping[str, str], where: str) -> dict[str, str]:
    """The properties for librdkafka. Raises: ConfigurationError: one is not supported; the text names its replacement."""
    found: dict[str, str] = {}
    for key, value in properties.items():
        if key in _INSTEAD:
            raise ConfigurationError(
                f"{where}: the property {key!r} is for Java's client only. Set {_INSTEAD[key]}."
            )
        if key == "ssl.endpoint.identification.algorithm" and not value:
            found[key] = "none"
        elif key == "buffer.memory":
            found["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
        elif key not in OURS | _OF_JAVA:
            found[_RENAMED.get(key, key)] = value
    if "sasl.jaas.config" in properties:
        found = {**_credentials(properties["sasl.jaas.config"], where), **found}
    return found


def _credentials(jaas: str, where: str) -> dict[str, str]:
    found = {
        name: quoted or single or bare for name, quoted, single, bare in _CREDENTIAL.findall(jaas)
    }
    if set(found) != {"username", "password"}:
        raise ConfigurationError(
            f"{where}: there is no username and password in the property 'sasl.jaas.config'. Only "
            "PLAIN and SCRAM are read from it; for other mechanisms set librdkafka's sasl.* "
            "properties instead."
        )
    return {f"sasl.{name}": value for name, value in found.items()}
