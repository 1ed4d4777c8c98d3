"""HTTP as a source that polls pages, as a source that takes requests, and as a sink that sends batches.

Needs the standard library only; WebhookSource needs uvicorn and starlette (`penstock[webhook]`) where a job runs.
"""

from penstock.connectors.clients.http import HttpRequest, HttpResponse
from penstock.connectors.http.sink import HttpSink
from penstock.connectors.http.source import HttpPage, HttpSource
from penstock.connectors.http.webhook import WebhookSource
from penstock.connectors.http.webhook_settings import WebhookRequest

__all__ = [
    "HttpPage",
    "HttpRequest",
    "HttpResponse",
    "HttpSink",
    "HttpSource",
    "WebhookRequest",
    "WebhookSource",
]
