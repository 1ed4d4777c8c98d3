"""Translates properties of Kafka's Java client, as Flink programs have them, into librdkafka's. Does not know any
client.

Properties that librdkafka knows by the same name, including its own, are passed on. Properties with another name are
renamed, and those that only Java needs are left out. An unsupported property is an error that names its replacement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- security
# Security properties of Kafka's Java client as librdkafka has them: users and passwords, trusted
# and own certificates.
#
# Does not know any client. A file of certificates is opened here only to see in which form it is.
# Source: Kafka's SaslConfigs, SslConfigs and JaasConfig (KIP-651: PEM); librdkafka's
# CONFIGURATION.md.


JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"
PROTOCOL: Final = "security.protocol"
CA_FILE: Final = "ssl.ca.location"
TRUSTED: Final = "ssl.truststore.location"
TRUSTED_TYPE: Final = "ssl.truststore.type"
OWN: Final = "ssl.keystore.location"
OWN_TYPE: Final = "ssl.keystore.type"

TRANSLATED: Final = frozenset({JAAS, TRUSTED, TRUSTED_TYPE, OWN, OWN_TYPE})
"""Read here; all other properties of security have the same name at both clients, or are renamed."""

_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
_OTHER_MODULES: Final = {
    "Krb5LoginModule": "sasl.kerberos.keytab, sasl.kerberos.principal and "
    "sasl.kerberos.service.name",
    "OAuthBearerLoginModule": "sasl.oauthbearer.method=oidc and the sasl.oauthbearer.* properties",
}
_OPTION: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))")
_JKS: Final = b"\xfe\xed\xfe\xed"
_TO_PEM: Final = (
    "keytool -importkeystore -srckeystore FILE -destkeystore all.p12 -deststoretype PKCS12, then "
    "openssl pkcs12 -in all.p12 -nokeys -out ca.pem"
)
_TO_PKCS12: Final = (
    "keytool -importkeystore -srckeystore FILE -destkeystore job.p12 -deststoretype PKCS12"
)


def security_properties(properties: Mapping[str, str], where: str) -> dict[str, str]:
    """What the properties of `TRANSLATED` are for librdkafka.

    Raises: ConfigurationError: librdkafka cannot do that; the text says what it can do instead.
    """
    found = _login(properties, where)
    if TRUSTED in properties:
        _check_form(properties, TRUSTED, TRUSTED_TYPE, where)
        found[CA_FILE] = properties[TRUSTED]
    if OWN in properties:
        path = properties[OWN]
        if _check_form(properties, OWN, OWN_TYPE, where) == "PKCS12":
            found[OWN] = path
        else:  # Java's PEM has the key and the chain in one file
            found |= {"ssl.certificate.location": path, "ssl.key.location": path}
    return found


def _check_form(properties: Mapping[str, str], key: str, key_of_type: str, where: str) -> str:
    """PEM or PKCS12. Raises: ConfigurationError: the client cannot read a file of this form here."""
    path = properties[key]
    said = properties.get(key_of_type, "").upper()
    form = _form_of(path) or said or ("JKS" if path.endswith(".jks") else "PEM")
    takes = ("PEM",) if key == TRUSTED else ("PEM", "PKCS12")
    if form in takes:
        return form
    instead = (
        f"Set {CA_FILE}, a file of PEM certificates. Make it with: {_TO_PEM}"
        if key == TRUSTED
        else f"Set {OWN} to a file of form PKCS12 or PEM. Make one with: {_TO_PKCS12}"
    )
    raise ConfigurationError(
        f"{where}: the client reads no file of form {form} as {key!r} ({path!r}), only "
        f"{' and '.join(takes)}. {instead}."
    )


def _form_of(path: str) -> str | None:
    """Return the form by the file's first bytes; None: the file cannot be read here, which the
    client will report.
    """
    with suppress(OSError), open(path, "rb") as file:
        begin = file.read(64)
        if begin.startswith(_JKS):
            return "JKS"
        return "PKCS12" if begin.startswith(b"\x30") else "PEM"
    return None


def _login(properties: Mapping[str, str], where: str) -> dict[str, str]:
    jaas = properties.get(JAAS)
    if jaas is None:
        return {}
    module = next((one for one in (*_MODULES, *_OTHER_MODULES) if one in jaas), None)
    if module in _OTHER_MODULES:
        raise ConfigurationError(
            f"{where}: the client does not read {module} from the property {JAAS!r}. Set "
            f"{_OTHER_MODULES[module]} instead."
        )
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single) or bare
        for name, double, single, bare in _OPTION.findall(jaas)
    }
    if module is None or not {"username", "password"} <= options.keys():
        raise ConfigurationError(
            f"{where}: there is no username and password of PlainLoginModule or ScramLoginModule "
            f"in the property {JAAS!r}. Expected, for example, "
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="..." password="...";'
        )
    if options.get("tokenauth", "false").lower() == "true":
        raise ConfigurationError(
            f"{where}: the client cannot log in with delegation tokens (tokenauth in the property "
            f"{JAAS!r}). Give it a user of its own."
        )
    _check_mechanism(module, properties, where)
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _check_mechanism(module: str, properties: Mapping[str, str], where: str) -> None:
    given = properties.get(MECHANISM, properties.get("sasl.mechanisms"))
    shown = "GSSAPI, the default" if given is None else repr(given)
    if given not in _MODULES[module]:
        raise ConfigurationError(
            f"{where}: {module} in the property {JAAS!r} needs {MECHANISM} "
            f"{' or '.join(_MODULES[module])}, got {shown}."
        )


# ---------------------------------------------------------------------- properties


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
    "interceptor.classes": "nothing, and use a map before the sink, or after the source",
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
    """Return the properties to reach a cluster. A consumer refuses properties that are for
    producers alone.
    """
    return {key: value for key, value in properties.items() if key.startswith(_FOR_BOTH)}
