"""Requests to a collector of OpenTelemetry, by gRPC or by HTTP.

Imported only where OpenTelemetry's messages are there. Does not know what is in a request. Headers come from
`OTEL_EXPORTER_OTLP_HEADERS` of the environment, as for OpenTelemetry's own exporters. Source: the OTLP specification, 1.x.

The settings of a reporter that speaks OpenTelemetry, and those that every request has.

Imported only where OpenTelemetry's packages are there. Source: Flink OpenTelemetryReporterBase.
"""

from __future__ import annotations

import gzip
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.util.re import parse_env_headers

from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.options.option import Option
from penstock.engine.model.options.reporters import (
    EventReporterOptions,
    OtlpOptions,
    TraceReporterOptions,
)
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.reporters.settings import ReporterSettings

_HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
_PROTOBUF: Final = "application/x-protobuf"
_SHOWN_BYTES: Final = 200
_SCHEMES: Final = ("http", "https")


class NotSent(ExternalError):
    """A request did not arrive, or was refused. The text says why."""


class Message(Protocol):
    """A message of protobuf."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802 (protobuf's name)


@dataclass(frozen=True, slots=True)
class Signal:
    """What is sent. `service`: that takes it by gRPC. `response`: reads the answer."""

    service: str
    response: Callable[[bytes], Any]


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go. `option`: the key of the address, for errors."""

    option: str
    address: str
    is_http: bool
    compression: Compression
    timeout_s: float

    @property
    def shown(self) -> str:
        """The address for logs."""
        return without_credentials(self.address)


Send: TypeAlias = Callable[[Message], Any]


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends requests to a collector. `send` returns the answer. Raises: NotSent."""

    send: Send
    close: Callable[[], None]


def sender_to(endpoint: Endpoint, signal: Signal) -> Sender:
    """Return what sends to an endpoint. It connects with the first request. Raises: ConfigurationError: the address is none."""
    found = urlsplit(endpoint.address)
    if found.scheme not in _SCHEMES or not found.netloc:
        raise ConfigurationError(
            f"option '{endpoint.option}' is {endpoint.shown!r}. Set it to an address that begins "
            "with http:// or https://."
        )
    headers = dict(parse_env_headers(os.environ.get(_HEADERS, ""), liberal=True))
    if endpoint.is_http:
        return _by_http(endpoint, signal, headers)
    return _by_grpc(endpoint, signal, headers)


def _by_http(endpoint: Endpoint, signal: Signal, headers: dict[str, str]) -> Sender:
    is_zipped = endpoint.compression is Compression.GZIP
    headers = {**headers, "Content-Type": _PROTOBUF}
    if is_zipped:
        headers["Content-Encoding"] = "gzip"

    def send(message: Message) -> Any:
        body = message.SerializeToString()
        request = urllib.request.Request(
            endpoint.address, gzip.compress(body) if is_zipped else body, headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=endpoint.timeout_s) as answer:
                return signal.response(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(_SHOWN_BYTES).decode("utf-8", "replace").strip()
            raise NotSent(f"{endpoint.shown} answers {error.code} {error.reason} {text}") from None
        except OSError as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            raise NotSent(f"{endpoint.shown} cannot be reached: {cause}") from error

    return Sender(send, lambda: None)


def _by_grpc(endpoint: Endpoint, signal: Signal, headers: dict[str, str]) -> Sender:
    import grpc

    found = urlsplit(endpoint.address)
    if found.scheme == "https":
        channel = grpc.secure_channel(found.netloc, grpc.ssl_channel_credentials())
    else:
        channel = grpc.insecure_channel(found.netloc)
    is_zipped = endpoint.compression is Compression.GZIP
    compression = grpc.Compression.Gzip if is_zipped else grpc.Compression.NoCompression
    call = channel.unary_unary(
        f"/{signal.service}/Export",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=signal.response,
    )
    metadata = tuple(headers.items())

    def send(message: Message) -> Any:
        try:
            return call(
                message, timeout=endpoint.timeout_s, metadata=metadata, compression=compression
            )
        except grpc.RpcError as error:
            code, details = error.code().name, error.details()
            raise NotSent(f"{endpoint.shown} answers {code}: {details}") from error

    return Sender(send, channel.close)


ExporterOptions: TypeAlias = (
    type[OtlpOptions] | type[TraceReporterOptions] | type[EventReporterOptions]
)
T = TypeVar("T", bound=StrEnum)
_ATTRIBUTE_TEXT: Final = 4096
"""The most characters of a text in an attribute."""


class _Protocol(StrEnum):
    GRPC = "grpc"
    HTTP = "http"


def endpoint_of(settings: ReporterSettings, options: ExporterOptions) -> Endpoint:
    """Raises: ConfigurationError: the address is missing, or another setting is wrong."""
    option = options.ENDPOINT.of(settings.name)
    address = settings.settings.get(option)
    if not address:
        raise ConfigurationError(
            f"option '{option.key}' is not set. Set it to the address of the collector, for "
            "example http://localhost:4317."
        )
    protocol = _one_of(settings, options.PROTOCOL, _Protocol)
    compression = _one_of(settings, options.COMPRESSION, Compression)
    timeout_s = settings.get(options.TIMEOUT) / 1000
    return Endpoint(option.key, address, protocol is _Protocol.HTTP, compression, timeout_s)


def resource_of(settings: ReporterSettings, options: ExporterOptions) -> ResourceMessage:
    """Return the description of this process that each request has."""
    given = {
        SERVICE_NAME: settings.get(options.SERVICE),
        SERVICE_VERSION: settings.get(options.VERSION),
    }
    known = Resource.create({name: value for name, value in given.items() if value})
    return ResourceMessage(
        attributes=[attribute(name, str(value)) for name, value in known.attributes.items()]
    )


def attribute(name: str, value: str | float) -> KeyValue:
    """Return one attribute."""
    match value:
        case str():
            return KeyValue(key=name, value=AnyValue(string_value=value[:_ATTRIBUTE_TEXT]))
        case int():
            return KeyValue(key=name, value=AnyValue(int_value=value))
        case _:
            return KeyValue(key=name, value=AnyValue(double_value=value))


def _one_of(settings: ReporterSettings, option: Option[str], kinds: type[T]) -> T:
    text = settings.get(option)
    try:
        return kinds(text.strip().lower())
    except ValueError:
        raise ConfigurationError(
            f"option '{option.of(settings.name).key}' is {text!r}. Set it to one of "
            f"{', '.join(kinds)}."
        ) from None
