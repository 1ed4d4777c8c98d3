"""HttpSink: sends records in batches, each with an idempotency key, by which a server knows what it has already.

Source: the header Idempotency-Key as payment APIs have it (an IETF draft); Flink's AsyncSinkBase for batches and retries.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.base import (
    Accepts,
    Batch,
    Committer,
    DeliveryGuarantee,
    RowBatch,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.api.sending import StagingSink, bodies_of
from penstock.connectors.clients.http import HttpClient, HttpLimits, HttpRequest, checked_url
from penstock.connectors.clients.tls import TlsFiles
from penstock.connectors.http.builder import HttpBuilder, checked_header, is_header_value
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.sink import SendFigures

_NAME: Final = "HttpSink"
_FORMS: Final = {
    "single": (b"", b"", b"", "application/octet-stream"),
    "lines": (b"", b"\n", b"\n", "application/x-ndjson"),
    "json-array": (b"[", b",", b"]", "application/json"),
}
"""Before, between and behind the records of a request, and its type."""


@dataclass(frozen=True, slots=True)
class _Settings:
    url: str | None = field(default=None, repr=False)
    schema: SerializationSchema | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: HttpLimits = field(default_factory=HttpLimits)
    tls: TlsFiles | None = None
    form: str = "json-array"
    most_records: int = 500
    most_bytes: int = 1 << 20
    key: Callable[[Any], str] | None = None
    key_header: str = "Idempotency-Key"
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE


class HttpSink(StagingSink):
    """Sends requests to an HTTP server. Not in PyFlink. Build it with `HttpSink.builder()`."""

    accepts = Accepts.ROWS
    is_converting = True

    def __init__(self, settings: _Settings) -> None:
        """Use the builder."""
        self._settings = settings

    @staticmethod
    def builder() -> HttpSink.Builder:
        return HttpSink.Builder()

    class Builder(HttpBuilder):
        """Builds an HttpSink; the setters return the builder."""

        name = _NAME

        def __init__(self) -> None:
            super().__init__(_Settings())

        def set_url(self, url: str, method: str = "POST") -> Self:
            """Set the address, and the method: POST, PUT or PATCH."""
            if method not in {"POST", "PUT", "PATCH"}:
                raise ConfigurationError(
                    f"{_NAME}.set_url: expected the method POST, PUT or PATCH, got {method!r}."
                )
            return self._with(url=checked_url(f"{_NAME}.set_url", url), method=method)

        def set_serializer(self, schema: SerializationSchema) -> Self:
            """Set the schema that makes bytes of a record."""
            if not isinstance(schema, SerializationSchema):
                raise TypeError(
                    f"{_NAME}.set_serializer: expected a SerializationSchema, got "
                    f"{type(schema).__name__}."
                )
            return self._with(schema=schema)

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
            if guarantee not in {DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE}:
                raise ConfigurationError(
                    f"{_NAME}.set_delivery_guarantee: expected DeliveryGuarantee.AT_LEAST_ONCE or "
                    f"EXACTLY_ONCE, got {guarantee!r}."
                )
            return self._with(guarantee=guarantee)

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

    @property
    def is_exactly_once(self) -> bool:
        return self._settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def validate(self) -> None:
        """Check the files of TLS. Raises ConfigurationError. Nothing is sent."""
        if self._settings.tls is not None:
            self._settings.tls.context(f"{_NAME} on the driver")

    def direct_writer(self, context: WriterContext) -> SinkWriter:
        return _DirectWriter(self._settings, context)

    def staging_writer(self, context: WriterContext) -> SinkWriter:
        return _StagingWriter(self._settings, context)

    def committer(self) -> Committer:
        return _SendingCommitter(self._settings)


@dataclass(frozen=True, slots=True)
class StagedRequest:
    """In checkpoints: the key and the body of a request."""

    key: str
    body: bytes


class _Sender:
    """Sends bodies with the settings of a sink."""

    def __init__(self, settings: _Settings, where: str) -> None:
        self._settings = settings
        self._client = HttpClient(where, settings.limits, settings.tls)
        self._headers = {"Content-Type": _FORMS[settings.form][3], **settings.headers}

    def send(self, key: str, body: bytes) -> None:
        settings = self._settings
        assert settings.url is not None
        headers = {**self._headers, settings.key_header: key}
        self._client.send(HttpRequest(settings.url, settings.method, headers, body))

    def close(self) -> None:
        self._client.release()


class _Writer:
    """What both writers do: make bytes of records, and bodies of these."""

    def __init__(self, settings: _Settings, context: WriterContext) -> None:
        self.settings = settings
        self.where = f"{_NAME}, subtask {context.subtask} of {context.parallelism}"
        self.sent = SendFigures()

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.convert(batch), watermark_ms)

    def convert(self, batch: Batch) -> list[tuple[str | None, bytes]]:
        """The key, if there is a function for it, and the bytes of each record."""
        assert isinstance(batch, RowBatch), "an HttpSink accepts rows"
        schema, key = self.settings.schema, self.settings.key
        assert schema is not None
        made: list[tuple[str | None, bytes]] = []
        for value, body in zip(batch.values, bodies_of(schema, batch.values), strict=True):
            name = None if key is None else key(value)
            if key is not None and not (name and is_header_value(name)):
                raise ValueError(
                    f"the function of set_idempotency_key gave {name!r:.100} for {value!r:.200}; "
                    "expected a printable text of signs of Latin-1, as a header has it"
                )
            made.append((name, self._line(body) if self.settings.form == "lines" else body))
        return made

    def _line(self, body: bytes) -> bytes:
        """The bytes of a record as one line, without its end."""
        line = body.removesuffix(b"\n")
        if b"\n" in line:
            raise ValueError(
                f"{self.where}: a record has a line end in it, so it would be several records in a "
                f'body of form "lines": {line!r:.200}. Serialize it without, as JSON does, '
                "or choose "
                'set_body_form("json-array") or set_body_form("single").'
            )
        return line

    def write_converted(
        self, converted: Sequence[tuple[str | None, bytes]], watermark_ms: int
    ) -> None:
        raise NotImplementedError


class _DirectWriter(_Writer):
    """Sends each batch before `write` returns. A try that is made again has the same key."""

    def __init__(self, settings: _Settings, context: WriterContext) -> None:
        super().__init__(settings, context)
        self._sender = _Sender(settings, self.where)

    def write_converted(
        self, converted: Sequence[tuple[str | None, bytes]], watermark_ms: int
    ) -> None:
        for piece in _pieces(self.settings, converted):
            body = _body(self.settings, piece)
            try:
                self._sender.send(piece[0][0] or uuid.uuid4().hex, body)
            except ExternalError:
                self.sent.errors += len(piece)
                raise
            self.sent.bytes += len(body)

    def prepare_commit(self) -> Sequence[object]:
        return ()

    def close(self) -> None:
        self._sender.close()


class _StagingWriter(_Writer):
    """Keeps records for the next checkpoint."""

    def __init__(self, settings: _Settings, context: WriterContext) -> None:
        super().__init__(settings, context)
        self._attempt = f"{context.operator_id}:{context.attempt_prefix}-{context.subtask}"
        self._records: list[tuple[str | None, bytes]] = []
        self._number = 0

    def write_converted(
        self, converted: Sequence[tuple[str | None, bytes]], watermark_ms: int
    ) -> None:
        self._records += converted
        self.sent.bytes += sum(len(body) for _, body in converted)

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        return self._take(str(checkpoint_id))

    def prepare_commit(self) -> Sequence[object]:
        return self._take("end")

    def close(self) -> None:
        self._records.clear()

    def _take(self, checkpoint: str) -> list[StagedRequest]:
        staged = []
        records, self._records = self._records, []
        for piece in _pieces(self.settings, records):
            self._number += 1
            name = f"{self._attempt}:{checkpoint}:{self._number}"
            # Names of operators may have what no header can have.
            key = hashlib.sha256(name.encode()).hexdigest()[:40]
            staged.append(StagedRequest(f"{key}-{checkpoint}", _body(self.settings, piece)))
        return staged


class _SendingCommitter(Committer):
    def __init__(self, settings: _Settings) -> None:
        self._sender = _Sender(settings, f"{_NAME}, commit")

    def commit(self, committables: Sequence[object]) -> None:
        for staged in committables:
            assert isinstance(staged, StagedRequest)
            self._sender.send(staged.key, staged.body)

    def abort(self, job_prefix: str) -> None:
        """Nothing is sent before its commit."""

    def close(self) -> None:
        self._sender.close()


def _body(settings: _Settings, piece: Sequence[tuple[str | None, bytes]]) -> bytes:
    before, between, behind, _ = _FORMS[settings.form]
    return before + between.join(body for _, body in piece) + behind


def _pieces(
    settings: _Settings, records: Sequence[tuple[str | None, bytes]]
) -> Iterator[Sequence[tuple[str | None, bytes]]]:
    """The records of each request."""
    most = 1 if settings.form == "single" else settings.most_records
    begin = size = 0
    for place, (_, body) in enumerate(records):
        if place > begin and (place - begin == most or size + len(body) > settings.most_bytes):
            yield records[begin:place]
            begin, size = place, 0
        size += len(body) + 1
    if begin < len(records):
        yield records[begin:]
