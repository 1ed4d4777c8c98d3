"""ElasticsearchSink: writes a document for each record, at least once; once if the emitter names a key field.

Records are dicts, or Rows with named fields. Documents wait until a request is full, and are sent before each barrier.
Source: pyflink.datastream.connectors.elasticsearch, Flink's ElasticsearchWriter and MapElasticsearchEmitter; differs:
it uses HTTP of the standard library, so that the version of a client library never has to match the server's.
"""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import json
import math
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from time import monotonic
from typing import Any, Final, Self
from urllib.parse import SplitResult, urlsplit

from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.api.base import DeliveryGuarantee, Sink, SinkWriter, WriterContext
from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.api.sending import RowsWriter, subtask_of
from penstock.engine.model.errors import (
    ConfigurationError,
    ExternalError,
    RefusedForGood,
    UserCodeError,
)
from penstock.engine.model.row import Row
from penstock.engine.model.setting_checks import check_whole
from penstock.engine.runtime.sink import SendFigures

# ---------------------------------------------------------------------- elasticsearch bulk
# A client of Elasticsearch's bulk API, over HTTP of the standard library. Does not know any
# stream.
#
# If the server is too busy for some actions (429, 503), these actions alone are sent again, with
# the delays of the back-off. A whole request is sent again if no host has answered or a host
# failed (5xx). Any other refusal is an error that names the document. Source: Elasticsearch's
# bulk API and BulkProcessor.


BUSY: Final = frozenset({429, 503})
PASSING: Final = frozenset({404, 408, 409, 425})
"""Of a document: an index that is not there yet, a time-out, a document that others change in this moment."""
TEXT_SHOWN: Final = 300
# Those of Elasticsearch's RestClientBuilder, which Flink keeps where nothing else is set.
CONNECTION_TIMEOUT_MS: Final = 1_000
SOCKET_TIMEOUT_MS: Final = 30_000


class FlushBackoffType(Enum):
    """How the delay before a retry grows: not at all, exponentially, or no retry at all."""

    CONSTANT = 1
    EXPONENTIAL = 2
    NONE = 3


@dataclass(frozen=True, slots=True)
class BulkBackoff:
    """The retries of a request. `delay_ms`: the delay before the first of `max_retries` retries."""

    kind: FlushBackoffType = FlushBackoffType.NONE
    max_retries: int = 0
    delay_ms: int = 0

    def delays_ms(self) -> Iterator[int]:
        """The delay before each retry."""
        if self.kind is FlushBackoffType.NONE:
            return
        grows = self.kind is FlushBackoffType.EXPONENTIAL
        for number in range(self.max_retries):
            more_ms = 10 * (int(math.exp(0.8 * number)) - 1) if grows else 0
            yield self.delay_ms + more_ms


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of the server and how to reach it; timeouts in ms, None: the operating system's default."""

    hosts: tuple[str, ...] = ()
    username: str | None = None
    password: str | None = None
    path_prefix: str = ""
    connection_timeout_ms: int | None = CONNECTION_TIMEOUT_MS
    socket_timeout_ms: int | None = SOCKET_TIMEOUT_MS

    @property
    def path(self) -> str:
        prefix = self.path_prefix.strip("/")
        return f"/{prefix}/_bulk" if prefix else "/_bulk"

    def headers(self) -> dict[str, str]:
        made = {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
        if self.username is not None:
            pair = f"{self.username}:{self.password or ''}".encode()
            made["Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
        return made


@dataclass(frozen=True, slots=True)
class Action:
    """One document, as lines of a bulk request. `shown`: the record as error texts show it."""

    lines: bytes
    shown: str


class BulkClient:
    """Sends actions, and returns when all are written. `sleep_s`: the function that waits."""

    def __init__(
        self,
        connection: Connection,
        backoff: BulkBackoff,
        where: str,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._backoff = backoff
        self._where = where
        self._sleep_s = sleep_s
        self._next_host = 0

    def send(self, actions: Sequence[Action]) -> None:
        """Raises: ExternalError: the server refuses an action, or there are no retries left."""
        left = list(actions)
        delays_ms = self._backoff.delays_ms()
        while left:
            try:
                left, why = self._refused(left)
            except _Unanswered as error:
                why = str(error)
            if not left:
                return
            delay_ms = next(delays_ms, None)
            if delay_ms is None:
                raise ExternalError(
                    f"{self._where}: {len(left)} of {len(actions)} documents could not be written: "
                    f"{why}. The first: {left[0].shown}. Back-off: {self._backoff.kind.name}, "
                    f"{self._backoff.max_retries} retries "
                    "(set_bulk_flush_backoff_strategy allows more)."
                )
            self._sleep_s(delay_ms / 1000)

    def _refused(self, actions: Sequence[Action]) -> tuple[list[Action], str]:
        """The actions to send again, and why.

        Raises: _Unanswered: no action is known to be written. RefusedForGood: the server would refuse again. ExternalError: it may not.
        """
        status, body = self._post(b"".join(action.lines for action in actions))
        if status != 200:
            text = f"status {status}: {body[:TEXT_SHOWN].decode('utf-8', 'replace')}"
            if status in BUSY or status >= 500:
                raise _Unanswered(text)
            raise RefusedForGood(
                f"{self._where}: the server refuses the request with {text}. Check user, password, "
                "path prefix, and what it allows (set_bulk_flush_max_size_mb limits a request). "
                f"The first document: {actions[0].shown}"
            )
        again: list[Action] = []
        why = ""
        for action, item in zip(actions, self._items(body, len(actions)), strict=True):
            (result,) = item.values()
            if result["status"] in BUSY:
                again.append(action)
                why = why or f"status {result['status']}: {_reason(result)}"
            elif "error" in result:
                may_pass = result["status"] in PASSING or result["status"] >= 500
                error = ExternalError if may_pass else RefusedForGood
                raise error(
                    f"{self._where}: a document is refused with status {result['status']}: "
                    f"{_reason(result)}. The record: {action.shown}"
                )
        return again, why

    def _items(self, body: bytes, expected: int) -> list[Any]:
        try:
            items = json.loads(body)["items"]
        except (ValueError, KeyError, TypeError) as error:
            raise ExternalError(
                f"{self._where}: the answer is not one of Elasticsearch's bulk API ({error!r}): "
                f"{body[:TEXT_SHOWN]!r}. Check the host and the path prefix."
            ) from error
        if len(items) != expected:
            raise ExternalError(
                f"{self._where}: {expected} actions were sent, but {len(items)} are answered."
            )
        return list(items)

    def _post(self, body: bytes) -> tuple[int, bytes]:
        """The answer of the first host that answers, beginning with the host that answered last."""
        hosts = self._connection.hosts
        errors = []
        is_untrusted = True
        for _ in hosts:
            host = hosts[self._next_host]
            try:
                return self._post_to(parsed_host(host), body)
            except (OSError, http.client.HTTPException) as error:
                errors.append(f"{host}: {type(error).__name__}: {error}")
                is_untrusted = is_untrusted and isinstance(error, ssl.SSLCertVerificationError)
                self._next_host = (self._next_host + 1) % len(hosts)
        text = f"no host answers ({'; '.join(errors)})"
        if is_untrusted:
            raise RefusedForGood(
                f"{self._where}: {text}. Correct the host's name, or have this Python trust the "
                "authority that has signed the certificate: SSL_CERT_FILE names its file."
            )
        raise _Unanswered(text)

    def _post_to(self, host: SplitResult, body: bytes) -> tuple[int, bytes]:
        settings = self._connection
        kind = http.client.HTTPSConnection if host.scheme == "https" else http.client.HTTPConnection
        connection = kind(host.hostname or "", host.port)
        if settings.connection_timeout_ms is not None:
            connection.timeout = settings.connection_timeout_ms / 1000
        try:
            connection.connect()
            socket_ms = settings.socket_timeout_ms
            connection.sock.settimeout(None if socket_ms is None else socket_ms / 1000)
            connection.request("POST", settings.path, body, settings.headers())
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class _Unanswered(Exception):
    """It is not known whether the actions were written."""


def parsed_host(host: str) -> SplitResult:
    """The connection to `host:port` or a URL. Raises: ConfigurationError."""
    try:
        parts = urlsplit(host if "://" in host else f"http://{host}")
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # reported below
        pass
    raise ConfigurationError(
        f"Elasticsearch: {host!r} is not a host. Expected a text such as 'localhost:9200' or "
        "'https://search:9200'."
    )


def _reason(result: Any) -> str:
    error = result.get("error", "")
    if isinstance(error, dict):
        return f"{error.get('type')}: {error.get('reason')}"
    return str(error)


# ---------------------------------------------------------------------- elasticsearch


__all__ = [
    "Elasticsearch6SinkBuilder",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "ElasticsearchSinkBuilderBase",
    "FlushBackoffType",
]

MAX_ACTIONS: Final = 1000
UNSET: Final = -1
BYTES_PER_MB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ElasticsearchEmitter:
    """Decides to which index, and under which id, a record is written."""

    index: str | None = None
    index_field: str | None = None
    key_field: str | None = None
    doc_type: str | None = None

    @staticmethod
    def static_index(
        index: str, key_field: str | None = None, doc_type: str | None = None
    ) -> ElasticsearchEmitter:
        """Return an emitter that writes all records to one index.

        Args:
            index: the index.
            key_field: the field with the document's id, by which it is inserted or updated.
            doc_type: the type of the documents; Elasticsearch 6 only.
        """
        return ElasticsearchEmitter(index, None, key_field, doc_type)

    @staticmethod
    def dynamic_index(
        index_field: str, key_field: str | None = None, doc_type: str | None = None
    ) -> ElasticsearchEmitter:
        """Return an emitter that writes each record to the index named in `index_field`.

        Args:
            index_field: the field with the index.
            key_field: the field with the document's id, by which it is inserted or updated.
            doc_type: the type of the documents; Elasticsearch 6 only.
        """
        return ElasticsearchEmitter(None, index_field, key_field, doc_type)

    def action(self, document: dict[str, Any], record: Any, *, has_types: bool) -> Action:
        """The action for a record. Raises: KeyError: the record lacks a field that the emitter names.

        TypeError, ValueError: JSON cannot represent a value.
        """
        index = self.index if self.index_field is None else str(document[self.index_field])
        place = {"_index": index}
        if has_types:
            place["_type"] = self.doc_type or "_doc"
        body: dict[str, Any]
        if self.key_field is None:
            head, body = {"index": place}, document
        else:
            key = document[self.key_field]
            if key is None:
                raise ValueError(
                    f"the key field {self.key_field!r} is None, and all such records would be one "
                    "document"
                )
            head = {"update": {**place, "_id": str(key)}}
            body = {"doc": document, "doc_as_upsert": True}
        try:
            lines = f"{_json(head)}\n{_json(body)}\n".encode()
        except ValueError as error:
            raise ValueError(_bad_field(document, error)) from error
        return Action(lines, f"{record!r:.300}")


@dataclass(frozen=True, slots=True)
class _Settings(Connection):
    """The settings that the builder collected; -1: no such limit."""

    emitter: ElasticsearchEmitter | None = None
    backoff: BulkBackoff = field(default_factory=BulkBackoff)
    max_actions: int = MAX_ACTIONS
    max_mb: int = UNSET
    interval_ms: int = UNSET
    has_types: bool = False


class ElasticsearchSink(Sink):
    """Writes records to Elasticsearch. Build it with an `Elasticsearch7SinkBuilder`."""

    is_converting = True

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _DocumentWriter(self.settings, context)


class ElasticsearchSinkBuilderBase(SettingsBuilder):
    """Builds an ElasticsearchSink; emitter and hosts are required.

    By default a request has up to 1,000 documents, without other limits, and is not retried.
    """

    _has_types = False

    def __init__(self) -> None:
        super().__init__(_Settings(has_types=self._has_types))

    def get_http_host_class(self) -> Any:
        """Raise NotImplementedError: there are no Java classes here."""
        raise NotImplementedError(
            "get_http_host_class returns a Java class, which Penstock does not have. Call "
            "set_hosts with texts such as 'localhost:9200'."
        )

    def set_emitter(self, emitter: ElasticsearchEmitter) -> Self:
        """Set what decides index and id of a record."""
        if not isinstance(emitter, ElasticsearchEmitter):
            raise TypeError(
                f"set_emitter takes an ElasticsearchEmitter, got {type(emitter).__name__}."
            )
        return self._with(emitter=emitter)

    def set_hosts(self, hosts: str | list[str]) -> Self:
        """Set the servers as `host:port` or URLs. If one does not answer, the next one is tried."""
        names = tuple([hosts] if isinstance(hosts, str) else hosts)
        for name in names:
            parsed_host(name)
        return self._with(hosts=names)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Set AT_LEAST_ONCE or NONE; both write at least once."""
        if delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            raise ConfigurationError(
                "Elasticsearch sink does not support the EXACTLY_ONCE guarantee. Use "
                "AT_LEAST_ONCE and a key_field: a document that is sent again then replaces "
                "itself."
            )
        return self

    def set_bulk_flush_max_actions(self, num_max_actions: int) -> Self:
        """Set the largest number of documents in a request; -1: no limit."""
        return self._with(max_actions=_bound("set_bulk_flush_max_actions", num_max_actions, 1))

    def set_bulk_flush_max_size_mb(self, max_size_mb: int) -> Self:
        """Set the largest size of a request in MiB; -1: no limit."""
        return self._with(max_mb=_bound("set_bulk_flush_max_size_mb", max_size_mb, 1))

    def set_bulk_flush_interval(self, interval_millis: int) -> Self:
        """Set the age in ms at which documents are sent, as others arrive; -1: any age."""
        return self._with(interval_ms=_bound("set_bulk_flush_interval", interval_millis, 0, "ms"))

    def set_bulk_flush_backoff_strategy(
        self, flush_backoff_type: FlushBackoffType, max_retries: int, delay_millis: int
    ) -> Self:
        """Set how a request is retried when the server was too busy or did not answer.

        Args:
            flush_backoff_type: how the delay grows.
            max_retries: the largest number of retries.
            delay_millis: the first delay in ms.
        """
        if flush_backoff_type is FlushBackoffType.NONE:
            return self._with(backoff=BulkBackoff())
        retries = _bound("set_bulk_flush_backoff_strategy: max_retries", max_retries, 1)
        delay = _bound("set_bulk_flush_backoff_strategy: delay_millis", delay_millis, 1, "ms")
        if UNSET in {retries, delay}:
            raise ConfigurationError(
                f"set_bulk_flush_backoff_strategy: {flush_backoff_type.name} needs max_retries and "
                f"delay_millis of 1 or more, got {max_retries} and {delay_millis}."
            )
        return self._with(backoff=BulkBackoff(flush_backoff_type, retries, delay))

    def set_connection_username(self, username: str) -> Self:
        """Set the user for HTTP's basic authentication."""
        return self._with(username=username)

    def set_connection_password(self, password: str) -> Self:
        """Set the password for HTTP's basic authentication."""
        return self._with(password=password)

    def set_connection_path_prefix(self, prefix: str) -> Self:
        """Set the path in front of `/_bulk`, as a proxy may need it."""
        return self._with(path_prefix=prefix)

    def set_connection_request_timeout(self, timeout: int) -> Self:
        """Accept a timeout of connection pools, and ignore it: there is no pool."""
        _bound("set_connection_request_timeout", timeout, 0, "ms")
        return self

    def set_connection_timeout(self, timeout: int) -> Self:
        """Set the longest time to connect, in ms; 1,000 by default, -1: no limit of its own."""
        return self._with(
            connection_timeout_ms=_timeout("set_connection_timeout", timeout),
        )

    def set_socket_timeout(self, timeout: int) -> Self:
        """Set the longest time between two packets, in ms; 30,000 by default, -1: no limit."""
        return self._with(socket_timeout_ms=_timeout("set_socket_timeout", timeout))

    def build(self) -> ElasticsearchSink:
        """Return the sink. Raises ConfigurationError if something required is missing."""
        if self.settings.emitter is None:
            raise ConfigurationError("ElasticsearchSink: set_emitter is missing before build().")
        if not self.settings.hosts:
            raise ConfigurationError("ElasticsearchSink: set_hosts is missing before build().")
        return ElasticsearchSink(self.settings)


class Elasticsearch6SinkBuilder(ElasticsearchSinkBuilderBase):
    """Builds a sink for servers with document types: the emitter's `doc_type`, else `_doc`."""

    _has_types = True


class Elasticsearch7SinkBuilder(ElasticsearchSinkBuilderBase):
    """Builds a sink for servers of version 7 and newer."""


class _DocumentWriter(RowsWriter):
    """Writer of one subtask."""

    sink_name = "ElasticsearchSink"

    def __init__(self, settings: _Settings, context: WriterContext) -> None:
        self.sent = SendFigures()
        where = subtask_of(self.sink_name, context)
        self.client = BulkClient(settings, settings.backoff, where)
        self.settings = settings
        self._where = where
        kind = context.input_type
        self._names = kind.get_field_names() if isinstance(kind, RowTypeInfo) else None
        self._actions: list[Action] = []
        self._bytes = 0
        is_bounded = settings.max_mb != UNSET
        self._max_bytes = settings.max_mb * BYTES_PER_MB if is_bounded else float("inf")
        self._sent_s = monotonic()

    def converted(self, values: Sequence[Any]) -> list[Action]:
        return list(map(self._action, values))

    def write_converted(self, converted: list[Action], watermark_ms: int) -> None:
        settings = self.settings
        for action in converted:
            if self._actions and self._bytes + len(action.lines) > self._max_bytes:
                self._flush()
            self._actions.append(action)
            self._bytes += len(action.lines)
            if settings.max_actions != UNSET and len(self._actions) >= settings.max_actions:
                self._flush()
        age_ms = (monotonic() - self._sent_s) * 1000
        if settings.interval_ms != UNSET and age_ms >= settings.interval_ms:
            self._flush()

    def prepare_commit(self) -> Sequence[object]:
        self._flush()
        return ()

    def close(self) -> None:
        self._actions.clear()

    def _flush(self) -> None:
        """Sends the documents. If one cannot be sent, the job fails and restarts from the checkpoint before it."""
        actions, size, self._actions, self._bytes = self._actions, self._bytes, [], 0
        try:
            self.client.send(actions)
        except ExternalError:
            self.sent.errors += len(actions)
            raise
        self.sent.bytes += size
        self._sent_s = monotonic()

    def _action(self, record: Any) -> Action:
        emitter = self.settings.emitter
        assert emitter is not None, "build() asks for an emitter"
        try:
            document = _document(record, self._names)
            return emitter.action(document, record, has_types=self.settings.has_types)
        except KeyError as error:
            raise UserCodeError(
                f"{self._where}: the emitter names the field {error}, but a record does not have "
                f"it. Record: {record!r:.300}"
            ) from error
        except (TypeError, ValueError) as error:
            raise UserCodeError(
                f"{self._where}: a record cannot become a document: {error}. Expected a dict, or a "
                f"Row with field names. Record: {record!r:.300}"
            ) from error


def _document(record: Any, names: Sequence[str] | None) -> dict[str, Any]:
    if isinstance(record, dict):
        return record
    if isinstance(record, Row) and record._fields is not None:
        names = record._fields
    if names is None or not isinstance(record, Row | tuple):
        raise TypeError(f"got {type(record).__name__} without field names")
    return dict(zip(names, record, strict=True))


def _json(value: Any) -> str:
    """The value as JSON. Raises: ValueError: it has a NaN or an Infinity, for which JSON has no form."""
    return json.dumps(value, separators=(",", ":"), default=_json_form, allow_nan=False)


def _bad_field(document: dict[str, Any], error: ValueError) -> str:
    """What is wrong, with the first field that cannot be written."""
    for name, value in document.items():
        try:
            _json(value)
        except ValueError as found:
            return f"the field {name!r} has {value!r:.100}, which is no JSON ({found})"
    return str(error)


def _json_form(value: Any) -> Any:
    """A value in a form that JSON has. A Decimal becomes text, which the server reads as a number where its mapping
    says so.
    """
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Row) and value._fields is not None:
        return dict(zip(value._fields, value, strict=True))
    raise TypeError(f"JSON cannot represent {type(value).__name__}: {value!r:.100}")


def _bound(setter: str, value: int, least: int, unit: str = "") -> int:
    """-1: no limit."""
    return value if value == UNSET else check_whole(setter, value, least, unit)


def _timeout(setter: str, value: int) -> int | None:
    return None if _bound(setter, value, 1, "ms") == UNSET else value
