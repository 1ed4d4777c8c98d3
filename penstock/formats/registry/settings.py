"""Where a schema registry is, and how it is asked. Does not know any format.

Source: the properties of Confluent's clients (`basic.auth.user.info`, `bearer.auth.token`, `ssl.ca.location`), with the prefix that
Kafka programs write (`schema.registry.`), and as Flink's table format avro-confluent spells them (`basic-auth.user-info`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from penstock.connectors.clients.http import PLAIN, HttpLimits, checked_url, is_plain
from penstock.connectors.clients.tls import SettingNames, TlsFiles
from penstock.engine.model.errors import ConfigurationError

_NAME: Final = "SchemaRegistry"
_PREFIXES: Final = ("schema.registry.", "properties.")
_USER, _TOKEN = "basic.auth.user.info", "bearer.auth.token"
_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_TIMEOUT, _RETRIES = "http.read.timeout.ms", "max.retries"
_REGISTER, _NORMALIZE = "auto.register.schemas", "normalize.schemas"
_SOURCES: Final = {
    "basic.auth.credentials.source": ("USER_INFO", _USER),
    "bearer.auth.credentials.source": ("STATIC_TOKEN", _TOKEN),
}
"""Where credentials come from: the only value, and the property that has them."""
_KNOWN: Final = (
    _USER, _TOKEN, *_SOURCES, _CA, _CERTIFICATE, _KEY, _TIMEOUT, _RETRIES, _REGISTER, _NORMALIZE,
)  # fmt: skip
_JAVA: Final = ("ssl.truststore.", "ssl.keystore.")
NAMES: Final = SettingNames(
    _CA, _CERTIFICATE, "the files of ssl.*.location", f"{_RETRIES} and {_TIMEOUT}"
)


class SchemaRegistry:
    """A schema registry: its address and properties. It is pickled; as text it shows no secrets."""

    def __init__(self, url: str, configs: Mapping[str, Any] | None = None) -> None:
        """Check the properties. No request is sent.

        Args:
            url: `http://host:port` or `https://...`, without user and password.
            configs: properties by the names of Confluent's clients: `basic.auth.user.info` ("user:password"),
                `bearer.auth.token`, `ssl.ca.location`, `ssl.certificate.location` and `ssl.key.location` (PEM files that the driver and
                all executors can read), `http.read.timeout.ms` (of one try; 30,000), `max.retries` (3; of status 429 and 5xx, and of
                broken connections), `auto.register.schemas` (true; false: a schema must be registered), `normalize.schemas` (false).

        Raises ConfigurationError: the URL or a property is not one of these, or two contradict each other.
        """
        form = f"http://host:port or https://host:port, with {_USER} or {_TOKEN} for credentials"
        self.url = checked_url(f"{_NAME}: url", url, form).rstrip("/")
        if set("?#,") & set(self.url):
            raise ConfigurationError(
                f"{_NAME}: url: expected the address of one registry, without a query: {form}."
            )
        found = _named(configs or {})
        self.headers = _authorization(found)
        self.tls = _tls(found)
        if self.tls is not None and is_plain(self.url):
            raise ConfigurationError(f"{_NAME}: {_CA}: {PLAIN}")
        self.limits = HttpLimits(
            _number(found, _TIMEOUT, 30_000, 1) / 1000, _number(found, _RETRIES, 3, 0)
        )
        self.registers = _flag(found, _REGISTER, default=True)
        self.normalizes = _flag(found, _NORMALIZE, default=False)

    def __repr__(self) -> str:
        return f"{_NAME}({self.url})"


def _named(configs: Mapping[str, Any]) -> dict[str, Any]:
    """The properties, without their prefixes. Raises: ConfigurationError: one is not known."""
    found = {}
    for given, value in configs.items():
        name = str(given).replace("-", ".")
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        if name.startswith(_JAVA):
            raise ConfigurationError(
                f"{_NAME}: {given!r} is about a Java key store, which Python cannot read. Name PEM "
                f"files in {_CA}, {_CERTIFICATE} and {_KEY}."
            )
        if name not in _KNOWN:
            raise ConfigurationError(
                f"{_NAME}: the property {given!r} is not known. Expected {', '.join(_KNOWN)}."
            )
        found[name] = value
    return found


def _authorization(found: Mapping[str, Any]) -> dict[str, str]:
    for source, (only, name) in _SOURCES.items():
        kind = found.get(source, only)
        if kind != only:
            raise ConfigurationError(
                f"{_NAME}: {source} is {kind!r}, but only {only} is supported: give {name}."
            )
        if source in found and name not in found:
            raise ConfigurationError(f"{_NAME}: {source} is {only}, but {name} is missing.")
    if _USER in found and _TOKEN in found:
        raise ConfigurationError(f"{_NAME}: expected {_USER} or {_TOKEN}, got both.")
    if _USER in found:
        user = str(found[_USER])
        if ":" not in user:
            raise ConfigurationError(f"{_NAME}: {_USER}: expected user:password.")
        return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
    if _TOKEN in found:
        token = str(found[_TOKEN])
        if not token or not token.isprintable() or not token.isascii():
            raise ConfigurationError(f"{_NAME}: {_TOKEN}: expected a token on one line.")
        return {"Authorization": f"Bearer {token}"}
    return {}


def _tls(found: Mapping[str, Any]) -> TlsFiles | None:
    ca, certificate, key = (found.get(name) for name in (_CA, _CERTIFICATE, _KEY))
    if key is not None and certificate is None:
        raise ConfigurationError(f"{_NAME}: {_KEY} is the key of {_CERTIFICATE}, which is missing.")
    if ca is None and certificate is None:
        return None
    return TlsFiles(ca, certificate, key, NAMES)


def _number(found: Mapping[str, Any], name: str, default: int, least: int) -> int:
    value = str(found.get(name, default))
    if not value.isdecimal() or int(value) < least:
        raise ConfigurationError(
            f"{_NAME}: {name}: expected a whole number of {least} or more, got {value!r}."
        )
    return int(value)


def _flag(found: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = str(found.get(name, default)).lower()
    if value not in {"true", "false"}:
        raise ConfigurationError(f"{_NAME}: {name}: expected true or false, got {value!r}.")
    return value == "true"
