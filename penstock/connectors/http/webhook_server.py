"""The HTTP server of a WebhookSource: who may send, and how a request is answered. Needs uvicorn and starlette (`penstock[webhook]`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse

from penstock.connectors.http.webhook_settings import (
    ListenSettings,
    WebhookRequest,
    server_context,
)
from penstock.engine.hosting.network.http_access import LOOPBACK_NAMES, refusal_of_page
from penstock.engine.hosting.network.http_server import HttpServer

_BODY_S: Final = 30
_NOT_ALLOWED: Final = "the token or the signature is missing or wrong"
_HEADERS: Final = {
    405: {"Allow": "POST"},
    408: {"Connection": "close"},
    503: {"Retry-After": "1"},
}


def server_of(
    settings: ListenSettings, take: Callable[[WebhookRequest], tuple[int, str]]
) -> HttpServer:
    """Return a server of requests. `take`: gives the status and the text of an answer; it may wait. It is called on several threads."""
    return HttpServer(
        _Application(settings, take),
        server_context(settings.tls, "WebhookSource"),
        most_open=settings.connections,
        request_s=2 * _BODY_S,  # So that a late body is answered.
        idle_s=_BODY_S,
    )


class _Application:
    """ASGI."""

    def __init__(
        self, settings: ListenSettings, take: Callable[[WebhookRequest], tuple[int, str]]
    ) -> None:
        self._settings = settings
        self._take = take
        self._names = LOOPBACK_NAMES | {settings.host.lower()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status, text = await self._answer(Request(scope, receive))
        response = PlainTextResponse(f"{text}\n" if text else "", status, _HEADERS.get(status))
        await response(scope, receive, send)

    @cached_property
    def _threads(self) -> CapacityLimiter:
        return CapacityLimiter(self._settings.connections)

    async def _answer(self, request: Request) -> tuple[int, str]:
        """Return the status and the text. A request that is refused before its body is read costs neither time nor memory."""
        target = _target(request)
        refusal = self._refusal(request, target)
        if refusal is not None:
            return refusal
        try:
            async with asyncio.timeout(_BODY_S):
                body = await request.body()
        except TimeoutError:
            return 408, "the request took too long"
        except ClientDisconnect:
            return 400, "the request has no end"
        if not self._settings.is_signed(request.headers, body):
            return 401, _NOT_ALLOWED
        request.state.caller.is_proven = True
        taken = WebhookRequest(target, dict(request.headers), body)
        return await to_thread.run_sync(
            self._take, taken, abandon_on_cancel=True, limiter=self._threads
        )

    def _refusal(self, request: Request, target: str) -> tuple[int, str] | None:
        settings, headers = self._settings, request.headers
        if request.method != "POST":
            return 405, "send a POST"
        if _path_of(target) != settings.path:
            return 404, "no such path"
        refusal = self._refusal_of_sender(headers)
        if refusal is not None:
            return refusal
        if "content-length" not in headers:
            return 411, "a body has a Content-Length"
        if int(headers["content-length"]) > settings.body_bytes:
            return 413, f"a body has {settings.body_bytes} bytes at most"
        return None

    def _refusal_of_sender(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        settings = self._settings
        if settings.is_open:  # Else no page has what it must show.
            remedy = "have the source ask for a token (set_bearer_token)"
            why = refusal_of_page(headers, self._names, remedy, changes=True)
            return None if why is None else (403, why)
        if not settings.has_token(headers.get("authorization", "")):
            return 401, _NOT_ALLOWED
        return None


def _path_of(target: str) -> str:
    """Return the path; "" if the target is no address."""
    try:
        return urlsplit(target).path
    except ValueError:
        return ""


def _target(request: Request) -> str:
    """Return the path as it was sent, with its query."""
    path: str = request.scope["raw_path"].decode()
    query: str = request.scope["query_string"].decode()
    return f"{path}?{query}" if query else path
