"""HTTP as a source that polls pages and as a sink that sends batches. Needs the standard library only."""

from penstock.datastream.connectors.http.client import HttpRequest, HttpResponse
from penstock.datastream.connectors.http.sink import HttpSink
from penstock.datastream.connectors.http.source import HttpPage, HttpSource

__all__ = ["HttpPage", "HttpRequest", "HttpResponse", "HttpSink", "HttpSource"]
