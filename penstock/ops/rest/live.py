"""The live stream: one connection sends again and again what several paths answer, as server-sent events.

A page that shows a job needs a handful of answers, all of the same moment, and at once when the job changes. `GET /live` takes the
paths in its query (`path`, any number of times) and the time between two rounds (`interval`, in ms). Each event is one answer; an event
`round` ends a round. Source of the form: the HTML standard, server-sent events.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import compile_path

from penstock.engine.hosting.os.clock import give_way, wall_ms
from penstock.ops.rest.answers import Answer, Asked, RestError
from penstock.ops.rest.pieces import encoded, pieces_of
from penstock.ops.rest.routes import Route

_LOG: Final = logging.getLogger(__name__)
_MOST_PATHS: Final = 32
_MOST_STREAMS: Final = 32
"""Of one user or address."""
_INTERVALS_MS: Final = (200, 3_600_000)
_USUAL_MS: Final = 2_000
SOONEST_S: Final = 0.25
"""Between two rounds, however much happens: a job that fails at once makes many changes."""
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One path of a stream. `text`: as it was asked for."""

    text: str
    route: Route
    asked: Asked


class Changes(Protocol):
    """The events of jobs, for listeners. Listeners cost something, so there is one only while somebody looks."""

    def listen(self, listener: Callable[[Any], None]) -> None: ...
    def unlisten(self, listener: Callable[[Any], None]) -> None: ...


class Live:
    """All live streams of a server. Belongs to its event loop, except for `wake`, which any thread may call."""

    def __init__(
        self,
        driver: Any,
        routes: Sequence[Route],
        changes: Changes,
        soonest_s: float = SOONEST_S,
    ) -> None:
        """`routes`: streams may ask those that only look, and answer at once. `changes`: reports what happens to jobs.

        `soonest_s`: changes that come sooner after a round wait for it.
        """
        self._driver = driver
        self._soonest_s = soonest_s
        self._changes = changes
        self._routes = [
            (compile_path(route.path), route)
            for route in routes
            if route.method == "GET" and not (route.changes or route.waits or route.view is None)
        ]
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._streams: Counter[int | str] = Counter()
        self._is_closed = False

    def wake(self, _what: object = None) -> None:
        """Make every stream send what has changed. Any thread."""
        for event, loop in list(self._waiting.items()):
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # The loop has ended, and the stream with it.
                self._waiting.pop(event, None)

    def close(self) -> None:
        """End all streams soon."""
        self._is_closed = True
        for event in self._waiting:
            event.set()

    def stream(self, request: Request, check: Callable[[Route], None]) -> StreamingResponse:
        """Answer a request for a stream. `check`: raises RestError if a route must not be answered. Raises RestError."""
        origin = request.state.caller.origin
        if self._streams[origin] >= _MOST_STREAMS:
            raise RestError(
                503,
                f"You have {_MOST_STREAMS} live streams already. Close pages of this driver, and "
                "try again.",
            )
        wanted = [self._wanted(path) for path in request.query_params.getlist("path")]
        if not 0 < len(wanted) <= _MOST_PATHS:
            raise RestError(
                400, f"{len(wanted)} paths were asked for, expected 1 to {_MOST_PATHS}: ?path=/jobs"
            )
        for one in wanted:
            check(one.route)
        interval_ms = Asked({}, dict(request.query_params)).query_number("interval", _USUAL_MS)
        low, high = _INTERVALS_MS
        if not low <= interval_ms <= high:
            raise RestError(400, f"interval is {interval_ms}, expected {low} to {high} (ms).")
        events = self._events(wanted, interval_ms / 1000, origin)
        return StreamingResponse(events, 200, _HEADERS, "text/event-stream")

    def _wanted(self, text: str) -> _Wanted:
        path, _, query = text.partition("?")
        for (pattern, _, converters), route in self._routes:
            found = pattern.match(path)
            if found is not None:
                named = found.groupdict().items()
                parameters = {name: str(converters[name].convert(one)) for name, one in named}
                return _Wanted(text, route, Asked(parameters, dict(parse_qsl(query))))
        raise RestError(400, f"path is {text!r}, which is no path that a live stream can send.")

    async def _events(
        self, wanted: Sequence[_Wanted], interval_s: float, origin: int | str
    ) -> AsyncIterator[bytes]:
        changed = asyncio.Event()
        if not self._waiting:
            self._changes.listen(self.wake)
        self._waiting[changed] = asyncio.get_running_loop()
        self._streams += Counter([origin])
        last: dict[str, int] = {}
        try:
            while not self._is_closed:
                changed.clear()
                for one in wanted:
                    event = await self._answer(one)
                    if last.get(one.text) != hash(event):  # Most answers change with the time.
                        last[one.text] = hash(event)
                        yield event
                yield _event("round", encoded({"now": wall_ms()}))
                await asyncio.sleep(min(self._soonest_s, interval_s))
                await _set_within(changed, interval_s - self._soonest_s)
        finally:
            self._waiting.pop(changed, None)
            self._streams -= Counter([origin])
            if not self._waiting:
                self._changes.unlisten(self.wake)

    async def _answer(self, one: _Wanted) -> bytes:
        pieces = [b"".join([b'{"path": ', json.dumps(one.text).encode(), b', "status": '])]
        answer = self._asked(one)
        pieces += [str(answer.status).encode(), b', "body": ']
        if isinstance(answer.body, bytes):  # A file, which is JSON already.
            pieces.append(answer.body.replace(b"\n", b" "))
        else:
            for piece in pieces_of(answer.body):
                await asyncio.sleep(0)  # Other requests go on.
                give_way()
                pieces.append(piece)
        return _event("answer", b"".join([*pieces, b"}"]))

    def _asked(self, one: _Wanted) -> Answer:
        try:
            return one.route.answer(self._driver, one.asked)
        except RestError as error:
            return Answer({"errors": list(error.texts)}, error.status)
        except Exception:
            _LOG.exception("rest live path=%s FAILED", one.text)
            return Answer({"errors": ["Internal server error."]}, 500)


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), max(0.0, seconds))
    except TimeoutError:
        return


def _event(name: str, data: bytes) -> bytes:
    return b"".join([b"event: ", name.encode(), b"\ndata: ", data, b"\n\n"])
