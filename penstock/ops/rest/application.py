"""The REST API as an ASGI application: checks who asks, reads the request, and writes the answer in Flink's form.

Handlers run on the server's thread one after the other. A large answer is written in pieces, between which other threads run: a job's
control loop must not wait for a page.
"""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Path
from starlette.routing import compile_path

from penstock.engine.hosting.os.clock import give_way
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.rest.access import Access
from penstock.ops.rest.answers import JSON, Answer, Asked, RestError
from penstock.ops.rest.live import Live
from penstock.ops.rest.pages import Page, page_response, pages
from penstock.ops.rest.pieces import encoded, pieces_of
from penstock.ops.rest.routes import UNSERVED, Route

_LOG: Final = logging.getLogger(__name__)
_NO_LEADER: Final = (
    "Service temporarily unavailable due to an ongoing leader election. Please refresh."
)
_UNSERVED: Final = [compile_path(path)[0] for path in UNSERVED]
_INSTEAD: Final = (
    "Start programs with `penstock run`; thread dumps and /jobs/<job>/vertices/<vertex>/flamegraph "
    "show where Python's time goes."
)
SMALL_BYTES: Final = 1 << 16
"""Largest body of a GET, and of whoever has not proved himself."""
_NO_STORE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def application_of(
    driver: Any,
    routes: tuple[Route, ...],
    access: Access,
    most_bytes: int = SMALL_BYTES,
    is_standby: Callable[[], bool] = lambda: False,
    live: Live | None = None,
) -> Starlette:
    """Return the application that answers these routes, and gives the pages of the dashboard.

    `driver`: what their handlers know. `most_bytes`: the largest body of somebody who has proved himself.
    `is_standby`: whether this process waits for the lead of a job. `live`: streams several of the answers again and
    again; None: nothing changes here.
    """
    paths = [
        Path(path, _page(page, access)) for path, page in pages(is_archive=live is None).items()
    ]
    paths += [
        Path(
            prefix + route.path,
            _live(live, access, is_standby)
            if route.view is None and live is not None
            else _endpoint(driver, route, access, most_bytes, is_standby),
            methods=[route.method],
        )
        for route in routes
        for prefix in ("", "/v1")
    ]
    return Starlette(routes=paths, exception_handlers=_ERRORS)


def _endpoint(
    driver: Any, route: Route, access: Access, most_bytes: int, is_standby: Callable[[], bool]
) -> Any:
    async def endpoint(request: Request) -> Response:
        _check(request, route, access, is_standby)
        is_small = route.method == "GET" or not request.state.caller.is_proven
        data = await _data_of(request, min(most_bytes, SMALL_BYTES) if is_small else most_bytes)
        media = request.headers.get("content-type", "")
        asked = Asked(
            request.path_params,
            dict(request.query_params),
            {} if route.takes_data else _body_of(data, media),
            request.headers.get("range", ""),
            data if route.takes_data else b"",
            media,
            route.changes
            and not access.knows(request.headers, is_own_user=request.state.caller.is_own_user),
        )
        try:
            return _response(await _answer(route, driver, asked))
        except RestError:
            raise
        except Exception:
            _LOG.exception("rest path=%s FAILED", request.url.path)
            text = traceback.format_exc(limit=-5)
            return error_response(RestError(500, "Internal server error.", text))

    return endpoint


def _page(page: Page, access: Access) -> Any:
    async def endpoint(request: Request) -> Response:  # noqa: RUF029 - on the server's thread
        access.check_place(request.headers)
        return page_response(request, page)

    return endpoint


def _live(live: Live, access: Access, is_standby: Callable[[], bool]) -> Any:
    async def endpoint(request: Request) -> Response:  # noqa: RUF029 - on the server's thread
        return live.stream(request, lambda route: _check(request, route, access, is_standby))

    return endpoint


async def _answer(route: Route, driver: Any, asked: Asked) -> Answer:
    if route.waits:
        return await run_in_threadpool(route.answer, driver, asked)
    return route.answer(driver, asked)


def _check(request: Request, route: Route, access: Access, is_standby: Callable[[], bool]) -> None:
    """Raises RestError: the request must not be answered."""
    if request.method != route.method:  # The router takes HEAD for GET.
        raise _unknown(request)
    if route.is_open:
        access.check_place(request.headers)
        return
    caller = request.state.caller
    access.check(
        request.headers,
        changes=route.changes,
        is_own_user=caller.is_own_user,
        runs_code=route.takes_data,
    )
    caller.is_proven = caller.is_proven or access.shows_token(request.headers)
    if route.needs_leader and is_standby():
        raise RestError(503, _NO_LEADER)


async def _data_of(request: Request, most_bytes: int) -> bytes:
    """Raises RestError: the body is too large."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > most_bytes:
            raise RestError(413, f"The body has more than {most_bytes} bytes.")
    return bytes(found)


def _body_of(found: bytes, media: str) -> dict[str, Any]:
    """Return the JSON object of a request. Flink's client sends `{}` with every request, GET included.

    Raises RestError: it is no JSON object.
    """
    if not found.strip() or media.startswith("multipart/"):
        return {}
    try:
        body = json.loads(found)
    except (ValueError, RecursionError) as error:
        raise RestError(400, f"Bad request received: the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise RestError(400, "Bad request received: the body is no JSON object.")
    return body


def _response(answer: Answer) -> Response:
    headers = {**_NO_STORE, **answer.headers}
    if isinstance(answer.body, bytes):
        return Response(answer.body, answer.status, headers, answer.media)
    if isinstance(answer.body, Iterator):  # Read on threads.
        return StreamingResponse(answer.body, answer.status, headers, answer.media)
    return StreamingResponse(_written(answer.body), answer.status, headers, JSON)


async def _written(body: Any) -> AsyncIterator[bytes]:
    for piece in pieces_of(body):
        await asyncio.sleep(0)  # Other requests go on.
        give_way()
        yield piece


def error_response(error: RestError) -> Response:
    """Return an error in Flink's form, without the credentials of addresses."""
    headers = dict(_NO_STORE)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    texts = [without_credentials(text) for text in error.texts]
    return Response(encoded({"errors": texts}), error.status, headers, JSON)


def _unknown(request: Request) -> RestError:
    path = request.url.path
    if any(pattern.fullmatch(path.removeprefix("/v1")) for pattern in _UNSERVED):
        return RestError(404, f"{path} is for programs and processes of Java. {_INSTEAD}")
    if request.method == "GET":
        return RestError(404, f"Unable to load requested file {path}.")
    return RestError(404, f"Not found: {path}")


_ERRORS: Final[dict[Any, Any]] = {
    404: lambda request, _: error_response(_unknown(request)),
    405: lambda request, _: error_response(_unknown(request)),
    RestError: lambda _, error: error_response(error),
    ClientDisconnect: lambda *_: Response(status_code=499),
}
