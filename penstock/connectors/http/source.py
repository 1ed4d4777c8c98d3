"""HttpSource: asks for page after page, with a cursor that checkpoints keep.

Each record comes once if a page of a cursor only grows at its end until the server gives the next cursor, as in logs and
feeds. Source: the usual forms of paginated APIs; Flink has no such source.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

from penstock.common.serialization import DeserializationSchema
from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import Batch, Poller, PollingSource, QueuePoller, RowBatch
from penstock.connectors.api.builder import checked_ms
from penstock.connectors.api.messaging.records import NO_RECORDS, batch_of
from penstock.connectors.clients.http import (
    HttpClient,
    HttpRequest,
    HttpResponse,
    checked_url,
)
from penstock.connectors.http.builder import HttpBuilder, HttpSettings
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.model.texts.bounded_text import bounded_repr

# ---------------------------------------------------------------------- json pages
# Pages of JSON: the records of a page as the bytes that the server has sent, and the next cursor.
#
# Records are cut out, not written anew: a decimal keeps its digits. Source: RFC 8259, 2 (white
# space and structure).


_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODE: Final = json.JSONDecoder().raw_decode


class _Value(NamedTuple):
    """A value, and where it begins and ends in the text."""

    value: Any
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class JsonPage:
    """`cursor`: None: the page has none."""

    records: list[bytes]
    cursor: Any


def json_page(body: bytes, records: str | None, cursor: str | None) -> JsonPage:
    """`records`: the field with the list of records; None: the page is the list. `cursor`: the field with the next cursor.

    Raises: ValueError, TypeError: the page has another shape.
    """
    text = body.decode(json.detect_encoding(body))
    whole: Any = json.loads(text)
    if records is not None and not (isinstance(whole, dict) and records in whole):
        got = f"the fields {sorted(whole)}" if isinstance(whole, dict) else type(whole).__name__
        raise ValueError(f"set_json_pages expects an object with the list {records!r}, got {got}")
    found = whole if records is None else whole[records]
    if not isinstance(found, list):
        raise TypeError(f"expected a list of records, got {type(found).__name__}")
    if cursor is not None and not isinstance(whole, dict):
        raise ValueError(f"set_json_pages expects an object with the cursor {cursor!r}, got a list")
    begin = _after_space(text, 0)
    if records is not None:
        # A name that is there twice has the value of the last one.
        begin = [one.begin for name, one in _fields(text, begin) if name == records][-1]
    rows = [text[one.begin : one.end].encode() for one in _elements(text, begin)]
    return JsonPage(rows, None if cursor is None else whole.get(cursor))


def _elements(text: str, place: int) -> Iterator[_Value]:
    """Of the list that begins here. The text is known to be JSON."""
    place = _after_space(text, place + 1)
    while text[place] != "]":
        found = _value(text, place)
        yield found
        place = _after_space(text, found.end)
        if text[place] == ",":
            place = _after_space(text, place + 1)


def _fields(text: str, place: int) -> Iterator[tuple[str, _Value]]:
    """Of the object that begins here."""
    place = _after_space(text, place + 1)
    while text[place] != "}":
        name = _value(text, place)
        colon = _after_space(text, name.end)
        found = _value(text, _after_space(text, colon + 1))
        yield name.value, found
        place = _after_space(text, found.end)
        if text[place] == ",":
            place = _after_space(text, place + 1)


def _value(text: str, place: int) -> _Value:
    value, end = _DECODE(text, place)
    return _Value(value, place, end)


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


# ---------------------------------------------------------------------- source


_NAME: Final = "HttpSource"
_ROWS: Final = 1000
_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class HttpPage:
    """What a page function returns.

    `records`: bytes if the source has a deserializer, else the records. `cursor`: plain data for
    the next request; None: the next request has this one's cursor, and reads what its page has
    after these records. `has_more`: ask again at once.
    """

    records: Sequence[Any]
    cursor: Any = None
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class HttpPosition:
    """In checkpoints: the cursor to ask with, and how many records of its page were read."""

    cursor: Any = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _JsonPages:
    records: str | None
    cursor: str | None

    def __call__(self, response: HttpResponse) -> HttpPage:
        if not response.body:
            return HttpPage([], None)  # as with status 204
        page = json_page(response.body, self.records, self.cursor)
        return HttpPage(page.records, page.cursor, has_more=page.cursor is not None)


@dataclass(frozen=True, slots=True)
class _UrlRequests:
    url: str = field(repr=False)
    parameter: str | None

    def __call__(self, cursor: Any) -> HttpRequest:
        if cursor is None or self.parameter is None:
            return HttpRequest(self.url)
        joint = "&" if urlsplit(self.url).query else "?"
        return HttpRequest(f"{self.url}{joint}{urlencode({self.parameter: cursor})}")


@dataclass(frozen=True, slots=True)
class _Settings(HttpSettings):
    request: Callable[[Any], HttpRequest] | None = None
    page: Callable[[HttpResponse], HttpPage] | None = None
    schema: DeserializationSchema | None = None
    produced_type: TypeInformation | None = None
    cursor: Any = None
    interval_s: float = 60.0
    is_bounded: bool = False


class HttpSource(PollingSource):
    """Polls an HTTP server for pages. Not in PyFlink. Build it with `HttpSource.builder()`."""

    def __init__(self, settings: _Settings) -> None:
        """Use the builder."""
        self.settings = settings
        self.is_bounded = settings.is_bounded

    @staticmethod
    def builder() -> HttpSource.Builder:
        return HttpSource.Builder()

    class Builder(HttpBuilder):
        """Builds an HttpSource; the setters return the builder."""

        name = _NAME
        begin = _Settings

        def set_url(self, url: str, cursor_parameter: str | None = None) -> Self:
            """Set the address to GET. `cursor_parameter`: the query parameter that has the cursor."""
            url = checked_url(f"{_NAME}.set_url", url)
            return self._with(request=_UrlRequests(url, cursor_parameter))

        def set_request(self, function: Callable[[Any], HttpRequest]) -> Self:
            """Set a function from the cursor, None at the beginning, to the request of its page."""
            return self._with(request=function)

        def set_json_pages(self, records: str | None = None, cursor: str | None = None) -> Self:
            """Read pages of JSON. `records`: the field with the list of records; None: the page is the list.

            `cursor`: the field with the next cursor. Each record goes to the deserializer, as JSON.
            """
            return self._with(page=_JsonPages(records, cursor))

        def set_page(self, function: Callable[[HttpResponse], HttpPage]) -> Self:
            """Set a function that takes an answer apart."""
            return self._with(page=function)

        def set_deserializer(self, schema: DeserializationSchema) -> Self:
            """Set the schema that makes a record of each of a page's records, which are bytes."""
            return self._with_schema(DeserializationSchema, "set_deserializer", schema)

        def set_produced_type(self, produced_type: TypeInformation) -> Self:
            """Set the type of records that the page function makes itself; by default they are pickled."""
            return self._with(produced_type=produced_type)

        def set_starting_cursor(self, cursor: Any) -> Self:
            """Set the cursor of the first request; a checkpoint wins."""
            return self._with(cursor=cursor)

        def set_interval(self, interval: Duration) -> Self:
            """Set the time from an answer without more to the next request; a minute by default."""
            interval_ms = checked_ms(self._call("set_interval"), interval)
            return self._with(interval_s=interval_ms / 1000)

        def set_bounded(self) -> Self:
            """End with the first page that has no more: of JSON, one without a next cursor, or with its own and no new records."""
            return self._with(is_bounded=True)

        def build(self) -> HttpSource:
            """Return the source. Raises ConfigurationError: something is missing."""
            settings = self._complete(
                request="set_url(url) or set_request(function)",
                page='set_json_pages("items", "next") or set_page(function)',
            )
            if isinstance(settings.request, _UrlRequests):  # else each request is looked at
                self._check_tls(settings.request.url)
            if isinstance(settings.page, _JsonPages) and settings.schema is None:
                raise ConfigurationError(
                    f"{_NAME}: set_deserializer(schema) is missing before build(): pages of JSON "
                    "have records as JSON, such as for a JsonRowDeserializationSchema."
                )
            return HttpSource(settings)

    @property
    def produced_type(self) -> TypeInformation | None:
        schema = self.settings.schema
        return self.settings.produced_type if schema is None else schema.produced_type

    def validate(self) -> None:
        """Check the files of TLS. Raises ConfigurationError. Nothing is sent."""
        if self.settings.tls is not None:
            self.settings.tls.context(f"{_NAME} on the driver")

    def create_poller(self, shard: int) -> Poller:
        return _HttpPoller(self.settings)


class _HttpPoller(QueuePoller):
    """A request runs on a thread of its own, so that a server that does not answer holds nothing up."""

    def __init__(self, settings: _Settings) -> None:
        super().__init__()
        self.settings = settings
        self._client = HttpClient(_NAME, settings, settings.tls)
        self._is_json = isinstance(settings.page, _JsonPages)
        self._is_asking = self._is_over = self._is_closed = False
        self._rows: Sequence[Any] = ()
        self._next_position = HttpPosition()
        self._ask_at_s = time.monotonic()

    def open(self, position: Any) -> None:
        # `_position` is after what was given, `_next_position` after the page whose rest is
        # `_rows`.
        self._position = position or HttpPosition(self.settings.cursor)

    def poll(self) -> Sequence[Any] | Batch | None:
        if not self._rows:
            if self._is_over:
                return None
            answer = self._asked()
            if answer is None:
                return []
            if not self._take(answer):
                return NO_RECORDS  # the cursor may have moved
        rows, self._rows = self._rows[:_ROWS], self._rows[_ROWS:]
        here = self._position
        first = here.rows
        self._position = (
            HttpPosition(here.cursor, first + len(rows)) if self._rows else self._next_position
        )
        schema = self.settings.schema
        if schema is None:
            return RowBatch(list(rows))
        batch = batch_of(
            rows, None, schema, lambda n: f"record {first + n} of the page of {here.cursor!r:.100}"
        )
        return NO_RECORDS if batch is None else batch

    def position(self) -> HttpPosition:
        return self._position

    def close(self) -> None:
        """A request under way ends, and its thread releases the connection."""
        self._client.close()
        with self.changed:
            self._is_closed = True
            if not self._is_asking:
                self._client.release()

    def _asked(self) -> HttpResponse | None:
        """The answer, if it is there. Else it sees to it that somebody asks, and waits for a moment."""
        with self.changed:
            if not self._is_asking and not self.waiting and time.monotonic() >= self._ask_at_s:
                self._is_asking = True
                threading.Thread(target=self._ask, name="http-source", daemon=True).start()
            wait_s = _WAIT_S if self._is_asking else self._ask_at_s - time.monotonic()
        for answer in self.taken(1, min(max(wait_s, 0), _WAIT_S)):
            if isinstance(answer, BaseException):
                raise answer
            found: HttpResponse = answer
            return found
        return None

    def _ask(self) -> None:
        answer: HttpResponse | BaseException
        settings = self.settings
        try:
            request = _by_user("set_request", settings.request, self._position.cursor, HttpRequest)
            headers = {**settings.headers, **request.headers}
            answer = self._client.send(
                HttpRequest(request.url, request.method, headers, request.body)
            )
        except BaseException as error:  # raised by poll, on the reader's thread
            answer = error
        with self.changed:
            self.waiting.append(answer)
            self._is_asking = False
            if self._is_closed:
                self._client.release()
            self.changed.notify()

    def _take(self, answer: HttpResponse) -> bool:
        """Takes a page. Returns whether it has new records."""
        page = _by_user("set_page", self.settings.page, answer, HttpPage)
        here = self._position
        stays = page.cursor is None or page.cursor == here.cursor
        self._rows = page.records[here.rows :]
        self._next_position = (
            HttpPosition(here.cursor, max(here.rows, len(page.records)))
            if stays
            else HttpPosition(page.cursor)
        )
        has_more = page.has_more and not (stays and not self._rows)
        self._is_over = self.settings.is_bounded and not has_more
        # An empty page of JSON with another cursor is not the end: there may be records after it.
        # But a server may also give a cursor that moves with the time.
        at_once = has_more and (page.records or self.settings.is_bounded or not self._is_json)
        self._ask_at_s = time.monotonic() + (0 if at_once else self.settings.interval_s)
        if not self._rows:
            self._position = self._next_position
        return bool(self._rows)


def _by_user(call: str, function: Any, argument: Any, expected: type) -> Any:
    """What the user's function returns. Raises: UserCodeError: its error, or it returned something else."""
    try:
        got = function(argument)
    except Exception as error:
        shown = argument.body[:200] if isinstance(argument, HttpResponse) else argument
        raise UserCodeError(
            f"{_NAME}: the function of {call} raised {type(error).__name__}: {error!s:.500}. Its "
            f"argument: {bounded_repr(shown, 300)}"
        ) from error
    if not isinstance(got, expected):
        raise UserCodeError(
            f"{_NAME}: the function of {call} returned {type(got).__name__}, expected "
            f"{expected.__name__}."
        )
    return got
