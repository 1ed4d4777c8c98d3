"""Asks a schema registry: registers schemas, looks them up, and takes them by id. Does not know any format, and keeps nothing.

A connection lives as long as one question: a task asks once for each schema.
Source: Confluent's documentation of Schema Registry, "API reference": paths, bodies and error codes.

The wire format of Confluent's serializers: a byte 0, the id of the schema in 4 bytes, most significant first, and the data.

Source: Confluent's documentation of Schema Registry, "Wire format".

Where a schema registry is, and how it is asked. Does not know any format.

Source: the properties of Confluent's clients (`basic.auth.user.info`, `bearer.auth.token`, `ssl.ca.location`), with the prefix that
Kafka programs write (`schema.registry.`), and as Flink's table format avro-confluent spells them (`basic-auth.user-info`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from penstock.connectors.clients.http import (
    PLAIN,
    HttpClient,
    HttpLimits,
    HttpRefused,
    HttpRequest,
    checked_url,
    is_plain,
)
from penstock.connectors.clients.tls import SettingNames, TlsFiles
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.model.texts.bounded_text import bounded_repr

MAGIC: Final = b"\x00"
PREFIX_BYTES: Final = 5
_HEAD: Final = 40


def prefix_of(schema_id: int) -> bytes:
    return MAGIC + schema_id.to_bytes(4, "big")


def parted(message: bytes, format_name: str) -> tuple[int, bytes]:
    """The id and the data of a message. Raises: ValueError: it is not in the wire format. `format_name`: of the data, for the error."""
    if len(message) < PREFIX_BYTES or message[:1] != MAGIC:
        raise ValueError(
            "a message is not in the wire format of schema registries: expected a byte 0, the id "
            f"of its schema in 4 bytes, and {format_name}; got {len(message)} bytes that begin "
            f"with {bytes(message[:_HEAD])!r}. Read messages of producers without a registry with "
            "the format's schema that takes no registry"
        )
    return int.from_bytes(message[1:PREFIX_BYTES], "big"), message[PREFIX_BYTES:]


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


_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_SHOWN: Final = 300
MOST_SCHEMAS: Final = 1000
"""Of which a task remembers the ids, by default."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses. `name`: by which that one names it."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry has it. `kind`: AVRO, PROTOBUF or JSON."""

    text: str
    kind: str = "AVRO"
    references: tuple[SchemaReference, ...] = ()

    def check_kind(self, expected: str) -> None:
        """Raises: ValueError: it is of another kind."""
        if self.kind != expected:
            raise ValueError(f"the schema is of the kind {self.kind}, expected {expected}")

    def as_json(self) -> dict[str, Any]:
        """The body of a request. AVRO is left out, as old registries know no other kind."""
        body: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            body["schemaType"] = self.kind
        if self.references:
            body["references"] = [one.as_json() for one in self.references]
        return body


def refusing(error: ValueError) -> Callable[[bytes], Any]:
    """A decoder for messages whose schema is no good: schemas never change, so nobody asks for it again."""

    def decode(_: bytes) -> Any:
        raise ValueError(str(error))

    return decode


class RegistryClient:
    """Of one task.

    All methods raise ExternalError where the registry does not answer after all tries, and RefusedForGood where it refuses.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def id_under(self, subject: str, schema: RegisteredSchema) -> int:
        """The schema's id. It is registered under the subject, or only looked up, by `auto.register.schemas`."""
        registry = self._registry
        path = f"/subjects/{quote(subject, safe='')}"
        query = "?normalize=true" if registry.normalizes else ""
        if registry.registers:
            path += "/versions"
        answer = self._asked("POST", path + query, f"the subject {subject!r}", schema.as_json())
        return self._number(answer, "id", path)

    def version_under(self, subject: str, schema: RegisteredSchema) -> int:
        """The schema's version under a subject where it is registered."""
        path = f"/subjects/{quote(subject, safe='')}"
        answer = self._asked("POST", path, f"the subject {subject!r}", schema.as_json())
        return self._number(answer, "version", path)

    def with_id(self, schema_id: int, query: str = "") -> RegisteredSchema:
        """The schema with an id. Raises: ValueError: there is none: so is a message that is not what it should be."""
        path = f"/schemas/ids/{schema_id}"
        try:
            answer = self._asked("GET", path + query, f"the schema with the id {schema_id}")
        except HttpRefused as refused:
            if _code_of(refused.body)[0] == _NO_SCHEMA:
                raise ValueError(
                    f"{refused} The message may be of another registry, or in no wire format."
                ) from None
            raise
        return self._schema(answer, path)

    def referred(self, reference: SchemaReference, query: str = "") -> RegisteredSchema:
        """The schema that a reference names."""
        path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
        what = f"version {reference.version} of the subject {reference.subject!r}"
        return self._schema(self._asked("GET", path + query, what), path)

    def _asked(
        self, method: str, path: str, what: str, value: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The answer. `what`: it is about, for errors."""
        registry = self._registry
        headers = {"Accept": _TYPE, **registry.headers}
        body = None
        if value is not None:
            headers["Content-Type"] = _TYPE
            body = json.dumps(value).encode()
        request = HttpRequest(registry.url + path, method, headers, body)
        client = HttpClient(
            f"the schema registry, asked for {what}",
            registry.limits,
            registry.tls,
            names=NAMES,
        )
        try:
            answer = client.send(request)
        except HttpRefused as refused:
            raise HttpRefused(
                _refusal(what, registry, request, refused), refused.status, refused.body
            ) from None
        finally:
            client.release()
        return self._object(answer.body, path)

    def _object(self, body: bytes, path: str) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
        raise self._strange(path, body)

    def _strange(self, path: str, answer: object) -> RefusedForGood:
        return RefusedForGood(
            f"{self._registry.url}{path} does not answer as a schema registry: it gives "
            f"{bounded_repr(answer, _SHOWN)}. Correct the URL of the registry."
        )

    def _number(self, answer: dict[str, Any], name: str, path: str) -> int:
        found = answer.get(name)
        if isinstance(found, int) and 0 <= found < 1 << 32:
            return found
        raise self._strange(path, answer)

    def _schema(self, answer: dict[str, Any], path: str) -> RegisteredSchema:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._strange(path, answer)
        references = tuple(
            SchemaReference(one["name"], one["subject"], one["version"])
            for one in answer.get("references") or ()
        )
        return RegisteredSchema(text, answer.get("schemaType") or "AVRO", references)


def checked_subject(where: str, subject: object) -> str:
    """The subject. Raises: ConfigurationError: it is no text, or empty."""
    if not isinstance(subject, str) or not subject:
        raise ConfigurationError(
            f"{where}: expected the subject under which its schema is registered, by convention "
            f"<topic>-value, got {subject!r}."
        )
    return subject


def _code_of(body: bytes) -> tuple[int | None, str]:
    """The error code and text of an answer."""
    try:
        found = json.loads(body)
        return int(found["error_code"]), str(found.get("message"))
    except (ValueError, TypeError, KeyError):
        return None, body[:_SHOWN].decode("utf-8", "replace")


def _refusal(
    what: str, registry: SchemaRegistry, request: HttpRequest, refused: HttpRefused
) -> str:
    code, text = _code_of(refused.body)
    status = refused.status
    problem = (
        f"{status}: {text!r}" if code in {None, status} else f"{status}, error {code}: {text!r}"
    )
    where = f"the schema registry refuses {request}, about {what}, with status {problem}."
    if status in {401, 403}:
        has = "those that it got" if registry.headers else "none were given"
        return (
            f"{where} Correct the credentials ({has}): basic.auth.user.info or bearer.auth.token, "
            "and what they may do."
        )
    if status == 409:
        return (
            f"{where} The schema is not compatible with those that the subject has. Change the "
            "schema, or the subject's compatibility."
        )
    if status == 404 and code in {_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA}:
        if request.method == "POST":
            return (
                f"{where} The schema is not registered there. Register it, or let the job do it "
                "with auto.register.schemas."
            )
        return where
    if status == 422:
        return f"{where} Correct the schema or the subject."
    return f"{where} Correct the URL of the registry."
