"""HttpSink: sends records in batches, each with an idempotency key, by which a server knows what it has already.

Source: the header Idempotency-Key as payment APIs have it (an IETF draft); Flink's AsyncSinkBase for batches and retries.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.base import DeliveryGuarantee
from penstock.connectors.api.builder import MISSING
from penstock.connectors.api.sending import Outlet, PieceSink, bodies_of, pieces_of
from penstock.connectors.clients.http import HttpClient, HttpRequest, checked_url
from penstock.connectors.http.builder import (
    HttpBuilder,
    HttpSettings,
    checked_header,
    is_header_value,
)
from penstock.engine.model.errors import ConfigurationError

_NAME: Final = "HttpSink"
_FORMS: Final = {
    "single": (b"", b"", b"", "application/octet-stream"),
    "lines": (b"", b"\n", b"\n", "application/x-ndjson"),
    "json-array": (b"[", b",", b"]", "application/json"),
}
"""Texts before, between and after the records of a request, and its type."""


@dataclass(frozen=True, slots=True)
class _Settings(HttpSettings):
    url: str = field(default="", repr=False)
    schema: SerializationSchema = MISSING
    method: str = "POST"
    form: str = "json-array"
    most_records: int = 500
    most_bytes: int = 1 << 20
    key: Callable[[Any], str] | None = None
    key_header: str = "Idempotency-Key"
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE


@dataclass(frozen=True, slots=True)
class StagedRequest:
    """In checkpoints: the key and the body of a request."""

    key: str
    body: bytes


_Keyed: TypeAlias = tuple[str | None, bytes]
"""The key, if there is a function for it, and the bytes of a record."""


class _RequestOutlet(Outlet[_Keyed]):
    """Sends requests. A try that is made again has the same key."""

    def converted(self, values: Sequence[Any]) -> list[_Keyed]:
        key, is_lines = self.settings.key, self.settings.form == "lines"
        made: list[_Keyed] = []
        for value, body in zip(values, bodies_of(self.settings.schema, values), strict=True):
            name = None if key is None else key(value)
            if key is not None and not (name and is_header_value(name)):
                raise ValueError(
                    f"the function of set_idempotency_key gave {name!r:.100} for {value!r:.200}; "
                    "expected a printable text of signs of Latin-1, as a header has it"
                )
            made.append((name, self._line(body) if is_lines else body))
        return made

    def _line(self, body: bytes) -> bytes:
        """The bytes of a record as one line, without its end."""
        line = body.removesuffix(b"\n")
        if b"\n" in line:
            raise ValueError(
                f"{self._where}: a record has a line end in it, so it would be several records in "
                f'a body of form "lines": {line!r:.200}. Serialize it without, as JSON does, '
                'or choose set_body_form("json-array") or set_body_form("single").'
            )
        return line

    def size(self, one: _Keyed) -> int:
        return len(one[1])

    def pieces(self, converted: list[_Keyed]) -> Iterator[list[_Keyed]]:
        settings = self.settings
        most = 1 if settings.form == "single" else settings.most_records
        # What stands between two records counts, too.
        return pieces_of(converted, lambda one: len(one[1]) + 1, most, settings.most_bytes + 1)

    def connect(self) -> HttpClient:
        return HttpClient(self._where, self.settings, self.settings.tls)

    def send(self, piece: Sequence[_Keyed]) -> int:
        body = self._body(piece)
        self._post(piece[0][0] or uuid.uuid4().hex, body)
        return len(body)

    def staged(self, piece: Sequence[_Keyed], attempt: str, number: str) -> StagedRequest:
        # Names of operators may have what no header can have.
        key = hashlib.sha256(f"{attempt}:{number}".encode()).hexdigest()[:40]
        return StagedRequest(f"{key}-{number.partition(':')[0]}", self._body(piece))

    def commit(self, committables: Sequence[Any]) -> None:
        for staged in committables:
            self._post(staged.key, staged.body)

    def close(self) -> None:
        if self.link is not None:
            self.link.release()

    def _body(self, piece: Sequence[_Keyed]) -> bytes:
        before, between, after, _ = _FORMS[self.settings.form]
        return before + between.join(body for _, body in piece) + after

    def _post(self, key: str, body: bytes) -> None:
        settings = self.settings
        kind = _FORMS[settings.form][3]
        headers = {"Content-Type": kind, **settings.headers, settings.key_header: key}
        self.link.send(HttpRequest(settings.url, settings.method, headers, body))


class HttpSink(PieceSink):
    """Sends requests to an HTTP server. Not in PyFlink. Build it with `HttpSink.builder()`."""

    name = _NAME
    outlet = _RequestOutlet

    @staticmethod
    def builder() -> HttpSink.Builder:
        return HttpSink.Builder()

    class Builder(HttpBuilder):
        """Builds an HttpSink; the setters return the builder."""

        name = _NAME
        begin = _Settings

        def set_url(self, url: str, method: str = "POST") -> Self:
            """Set the address, and the method: POST, PUT or PATCH."""
            if method not in {"POST", "PUT", "PATCH"}:
                raise ConfigurationError(
                    f"{_NAME}.set_url: expected the method POST, PUT or PATCH, got {method!r}."
                )
            return self._with(url=checked_url(f"{_NAME}.set_url", url), method=method)

        def set_serializer(self, schema: SerializationSchema) -> Self:
            """Set the schema that makes bytes of a record."""
            return self._with_schema(SerializationSchema, "set_serializer", schema)

        def set_body_form(self, form: str) -> Self:
            """Set how records become a body: "json-array", the default, "lines", or "single": a request for each."""
            if form not in _FORMS:
                raise ConfigurationError(
                    f"{_NAME}.set_body_form: expected one of {', '.join(_FORMS)}, got {form!r}."
                )
            return self._with(form=form)

        def set_max_batch(self, records: int = 500, size_bytes: int = 1 << 20) -> Self:
            """Set how many records and bytes a request has at most. A record that is larger has a request of its own."""
            if records < 1 or size_bytes < 1:
                raise ConfigurationError(
                    f"{_NAME}.set_max_batch: expected 1 or more, got {records} and {size_bytes}."
                )
            return self._with(most_records=records, most_bytes=size_bytes)

        def set_idempotency_key(self, function: Callable[[Any], str]) -> Self:
            """Set a function from a record to its key, with the body form "single".

            It must give the same for a record that comes again. By default each request has a key of its own.
            """
            return self._with(key=function)

        def set_idempotency_header(self, name: str) -> Self:
            """Set the header that has the key; Idempotency-Key by default."""
            checked_header(f"{_NAME}.set_idempotency_header", name)
            return self._with(key_header=name)

        def set_delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
            """Set AT_LEAST_ONCE, the default, or EXACTLY_ONCE, for servers that do nothing for a key that they know.

            Requests are then sent when a checkpoint is complete, with keys that name it.
            """
            return self._with_guarantee(guarantee)

        def build(self) -> HttpSink:
            """Return the sink. Raises ConfigurationError: something is missing, or does not go together."""
            settings = self._complete(url="set_url(url)", schema="set_serializer(schema)")
            self._check_tls(settings.url)
            if settings.key is not None and (
                settings.form != "single" or settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE
            ):
                raise ConfigurationError(
                    f"{_NAME}: set_idempotency_key is for AT_LEAST_ONCE with set_body_form"
                    f'("single"), for a request has one key; got {settings.form!r} and '
                    f"{settings.guarantee.name}."
                )
            return HttpSink(settings)

    def validate(self) -> None:
        """Check the files of TLS. Raises ConfigurationError. Nothing is sent."""
        if self.settings.tls is not None:
            self.settings.tls.context(f"{_NAME} on the driver")
