"""WebhookSource: listens on a port, and makes records of the requests that others send.

Needs uvicorn and starlette (`penstock[webhook]`) where a job runs. A request is answered with 200 when its records are in a bounded queue, or by option when a complete checkpoint covers them. When the
queue is full the answer is 503, so that the sender comes again.
Source: the usual forms of webhooks (RFC 9110 for statuses, HMAC signatures as GitHub and Shopify have them); Flink has no such source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from penstock.common.serialization import DeserializationSchema
from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import Poller, PollingSource, ReaderContext, SourceReader
from penstock.connectors.api.builder import SettingsBuilder, checked_ms, checked_number
from penstock.connectors.clients.tls import TlsFiles
from penstock.connectors.http.webhook_poller import WebhookPoller
from penstock.connectors.http.webhook_settings import (
    ListenSettings,
    Signature,
    WebhookRequest,
    server_context,
)
from penstock.engine.hosting.network.wire.addresses import is_loopback
from penstock.engine.model.errors import ConfigurationError, RefusedForGood

_NAME: Final = "WebhookSource"
_ENCODINGS: Final = ("hex", "base64")
_DIGESTS: Final = ("sha1", "sha256", "sha384", "sha512")


def _single(request: WebhookRequest) -> Sequence[bytes]:
    return [request.body] if request.body else []


def _lines(request: WebhookRequest) -> Sequence[bytes]:
    return [line for line in request.body.splitlines() if line.strip()]


def _json_array(request: WebhookRequest) -> Sequence[bytes]:
    found = json.loads(request.body)
    if not isinstance(found, list):
        raise TypeError(f"expected a JSON array, got {type(found).__name__}")
    return [json.dumps(one, ensure_ascii=False).encode() for one in found]


_FORMS: Final[Mapping[str, Callable[[WebhookRequest], Sequence[Any]]]] = {
    "single": _single,
    "lines": _lines,
    "json-array": _json_array,
}


@dataclass(frozen=True, slots=True)
class _Settings(ListenSettings):
    listeners: int = 1
    body: Callable[[WebhookRequest], Sequence[Any]] = _single
    schema: DeserializationSchema | None = None
    produced_type: TypeInformation | None = None


class WebhookSource(PollingSource):
    """Takes requests. Not in PyFlink. Build it with `WebhookSource.builder()`."""

    def __init__(self, settings: _Settings) -> None:
        """Use the builder."""
        self.settings = settings
        self.shards = settings.listeners
        self.default_parallelism = settings.listeners

    def __repr__(self) -> str:
        return f"{_NAME}({self.settings})"

    @staticmethod
    def builder() -> WebhookSource.Builder:
        return WebhookSource.Builder()

    class Builder(SettingsBuilder):
        """Builds a WebhookSource; the setters return the builder."""

        name = _NAME
        begin = _Settings

        def set_address(self, port: int, host: str = "127.0.0.1", path: str = "/") -> Self:
            """Set where to listen, on the machine of the subtask; by default only that machine can send.

            Another host than a loopback address needs set_bearer_token or set_signature.
            """
            if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
                raise ConfigurationError(
                    f"{_NAME}.set_address: expected a port of 1 to 65535, got {port!r}."
                )
            if not isinstance(path, str) or not path.startswith("/") or "?" in path:
                raise ConfigurationError(
                    f"{_NAME}.set_address: expected a path such as /orders, got {path!r:.200}."
                )
            return self._with(host=host, port=port, path=path)

        def set_listeners(self, listeners: int) -> Self:
            """Set how many subtasks listen, 1 by default: on the port of set_address, and on those that follow it."""
            return self._with_number("set_listeners", 1, listeners=listeners)

        def set_bearer_token(self, token: str) -> Self:
            """Set the token that requests have in the header Authorization. Others are answered with 401."""
            if not isinstance(token, str) or not token or not token.isascii():
                raise ConfigurationError(f"{_NAME}.set_bearer_token: expected ASCII text.")
            return self._with(token=token)

        def set_signature(
            self,
            secret: str,
            header: str = "X-Hub-Signature-256",
            *,
            digest: str = "sha256",
            encoding: str = "hex",
            prefix: str = "sha256=",
        ) -> Self:
            """Have each request be signed: the header has the prefix and the HMAC of the body. Others are answered with 401.

            The defaults are GitHub's. `encoding`: "hex" or "base64".
            """
            if not isinstance(secret, str) or not secret:
                raise ConfigurationError(f"{_NAME}.set_signature: the secret is a text, not empty.")
            if digest not in _DIGESTS or encoding not in _ENCODINGS:
                raise ConfigurationError(
                    f"{_NAME}.set_signature: expected a digest of {', '.join(_DIGESTS)} and an "
                    f"encoding of {', '.join(_ENCODINGS)}, got {digest!r} and {encoding!r}."
                )
            signature = Signature(secret.encode(), header, digest, encoding, prefix)
            return self._with(signature=signature)

        def set_tls(
            self,
            certificate_file: str,
            key_file: str | None = None,
            client_ca_file: str | None = None,
        ) -> Self:
            """Have HTTPS. PEM files, which all executors can read.

            `key_file`: by default it is in `certificate_file`. `client_ca_file`: clients show a certificate that it has signed.
            """
            return self._with(tls=TlsFiles(client_ca_file, certificate_file, key_file))

        def set_body_form(self, form: str) -> Self:
            """Set what a body is: "single", one record, by default; "lines", a record on each; or "json-array"."""
            if form not in _FORMS:
                raise ConfigurationError(
                    f"{_NAME}.set_body_form: expected one of {', '.join(_FORMS)}, got {form!r}."
                )
            return self._with(body=_FORMS[form])

        def set_body(self, function: Callable[[WebhookRequest], Sequence[Any]]) -> Self:
            """Set a function that makes a list of records of a request; bytes, if there is a deserializer.

            If it raises, the request is answered with 400. It runs on several threads.
            """
            return self._with(body=function)

        def set_deserializer(self, schema: DeserializationSchema) -> Self:
            """Set the schema that makes a record of each of a body's records, which are bytes."""
            return self._with_schema(DeserializationSchema, "set_deserializer", schema)

        def set_produced_type(self, produced_type: TypeInformation) -> Self:
            """Set the type of records that the function of set_body makes itself; by default they are pickled."""
            return self._with(produced_type=produced_type)

        def set_refuse_malformed(self, refuses: bool) -> Self:
            """Set whether a request is answered with 400 if the schema cannot read a record of it; by default it is.

            If not, such records go to the error policy of the source.
            """
            return self._with(refuses_malformed=refuses)

        def set_answer_after(self, what: str) -> Self:
            """Set when a request is answered: "queue", when its records are in memory; "checkpoint", when one covers them.

            With "checkpoint" records come at least once: who has no answer sends again. A job without checkpoints is refused.
            """
            if what not in {"queue", "checkpoint"}:
                raise ConfigurationError(
                    f'{_NAME}.set_answer_after: expected "queue" or "checkpoint", got {what!r}.'
                )
            return self._with(waits_for_checkpoint=what == "checkpoint")

        def set_answer_timeout(self, timeout: Duration) -> Self:
            """Set how long a request waits for its checkpoint before it is answered with 503; a minute by default."""
            timeout_ms = checked_ms(self._call("set_answer_timeout"), timeout)
            return self._with(answer_timeout_s=timeout_ms / 1000)

        def set_limits(
            self,
            *,
            queue_records: int = 10_000,
            queue_bytes: int = 64 << 20,
            body_bytes: int = 1 << 20,
            connections: int = 200,
        ) -> Self:
            """Set how much waits for the job, how large a body is, and how many connections there are at once."""
            limits = {
                "queue_records": queue_records,
                "queue_bytes": queue_bytes,
                "body_bytes": body_bytes,
                "connections": connections,
            }
            for limit in limits.values():
                checked_number(self._call("set_limits"), limit, 1)
            return self._with(**limits)

        def build(self) -> WebhookSource:
            """Return the source. Raises ConfigurationError: something is missing, or does not go together."""
            settings = self._complete()
            if not settings.port:
                raise ConfigurationError(f"{_NAME}: set_address(port) is missing before build().")
            if settings.port + settings.listeners - 1 > 65535:
                raise ConfigurationError(
                    f"{_NAME}: {settings.listeners} listeners from the port {settings.port} on "
                    "end above 65535."
                )
            if settings.is_open and not is_loopback(settings.host):
                raise ConfigurationError(
                    f"{_NAME}: on {settings.host!r} everybody who reaches the port could send "
                    "records. Call set_bearer_token or set_signature, or listen on 127.0.0.1."
                )
            if settings.schema is None and settings.body in _FORMS.values():
                raise ConfigurationError(
                    f"{_NAME}: set_deserializer(schema) is missing before build()."
                )
            return WebhookSource(settings)

    @property
    def produced_type(self) -> TypeInformation | None:
        schema = self.settings.schema
        return self.settings.produced_type if schema is None else schema.produced_type

    def validate(self) -> None:
        """Check the files of TLS. Raises ConfigurationError. The port is taken by the subtask only."""
        server_context(self.settings.tls, f"{_NAME} on the driver")

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """Return the reader. Raises RefusedForGood: answers wait for checkpoints, and the job takes none.

        In such a job each poll is acknowledged at once, and a sender would take that for a checkpoint.
        """
        if self.settings.waits_for_checkpoint and not context.takes_checkpoints():
            raise RefusedForGood(
                f'{_NAME}: set_answer_after("checkpoint") answers a request when a checkpoint '
                "covers it, and this job takes no checkpoints. Turn on checkpoints "
                '(env.enable_checkpointing(1000)), or set set_answer_after("queue").'
            )
        return super().create_reader(context)

    def create_poller(self, shard: int) -> Poller:
        settings = self.settings
        listen = replace(settings, port=settings.port + shard)
        return WebhookPoller(listen, settings.body, settings.schema, _NAME)
