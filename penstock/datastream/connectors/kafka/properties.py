"""Properties as programs for Flink have them, Kafka's Java client's names, as librdkafka takes them. Knows no client.

What librdkafka knows by the same name goes to it as it is, its own names too; what only Java needs is left out; what has
another name is renamed. What it cannot do is an error with the property to use instead.
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
    "partitioner.class": "partitioner, one of librdkafka's; murmur2_random, Java's own choice, is the default",
    "interceptor.classes": "a map before the sink, or behind the source",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.method=oidc and the sasl.oauthbearer.* properties",
}
_CREDENTIAL: Final = re.compile(r"\b(username|password)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))")


def client_properties(properties: Mapping[str, str], where: str) -> dict[str, str]:
    """Those for librdkafka. Raises: ConfigurationError: one that it cannot follow, which names what to set instead."""
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
            f"{where}: no username and password in the property 'sasl.jaas.config'. Only PLAIN and SCRAM are read from it; for "
            "others set librdkafka's sasl.* properties in its place."
        )
    return {f"sasl.{name}": value for name, value in found.items()}


def checked_properties(properties: object, setter: str) -> dict[str, str]:
    """Names to text. Raises: ConfigurationError."""
    if not isinstance(properties, Mapping):
        raise ConfigurationError(f"{setter}: expected a dict of properties, got {properties!r}.")
    return dict(checked_property(key, value, setter) for key, value in properties.items())


def checked_property(key: object, value: object, setter: str) -> tuple[str, str]:
    """Raises: ConfigurationError."""
    if not isinstance(key, str) or not key:
        raise ConfigurationError(f"{setter}: expected the name of a property, got {key!r}.")
    if isinstance(value, bool):
        return key, str(value).lower()
    if not isinstance(value, str | int | float):
        raise ConfigurationError(f"{setter}: expected text as the value of {key!r}, got {value!r}.")
    return key, str(value)


def flag_of(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """Raises: ConfigurationError."""
    text = properties.get(key)
    if text is None:
        return default
    known = {"true": True, "false": False}
    if text.strip().lower() not in known:
        raise ConfigurationError(f"the property {key!r} is true or false, got {text!r}.")
    return known[text.strip().lower()]


def int_of(properties: Mapping[str, str], key: str, default: int) -> int:
    """Raises: ConfigurationError."""
    text = properties.get(key)
    try:
        return default if text is None else int(text)
    except ValueError as error:
        raise ConfigurationError(f"the property {key!r} is a number, got {text!r}.") from error
