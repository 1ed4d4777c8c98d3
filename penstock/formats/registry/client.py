"""Asks a schema registry: registers schemas, looks them up, and takes them by id. Does not know any format, and keeps nothing.

A connection lives as long as one question: a task asks once for each schema.
Source: Confluent's documentation of Schema Registry, "API reference": paths, bodies and error codes.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from penstock.connectors.clients.http import HttpClient, HttpRefused, HttpRequest
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.registry.settings import NAMES, SchemaRegistry

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

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


class Remembered(Generic[Key, Value]):
    """Of so many keys what was found last; the one that was asked for longest ago is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key, find: Callable[[Key], Value]) -> Value:
        """What is remembered, or what `find` finds. Raises: what `find` raises, and remembers nothing."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        found = self._known[key] = find(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return found


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
    told = f"{status}: {text!r}" if code in {None, status} else f"{status}, error {code}: {text!r}"
    where = f"the schema registry refuses {request}, about {what}, with status {told}."
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
