"""What is set for a reporter that speaks OpenTelemetry, and what of it every request has.

Imported only where OpenTelemetry's packages are there. Source: Flink OpenTelemetryReporterBase.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.option import Option
from penstock.engine.model.options.reporters import (
    EventReporterOptions,
    OtlpOptions,
    TraceReporterOptions,
)
from penstock.ops.reporters.otlp_sending import Compression, Endpoint
from penstock.ops.reporters.settings import ReporterSettings

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
    """Return what is told of this process with each request."""
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
