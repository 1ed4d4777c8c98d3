"""A collector of OpenTelemetry that keeps what it gets: the protocol's own messages, by HTTP and by gRPC, on loopback ports."""

import contextlib
import gzip
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

from tests.tools.waiting import wait_until

_BY_PATH = {
    "/v1/metrics": (metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse),
    "/v1/traces": (trace.ExportTraceServiceRequest, trace.ExportTraceServiceResponse),
    "/v1/logs": (logs.ExportLogsServiceRequest, logs.ExportLogsServiceResponse),
}


class Collector:
    """`address`: where it listens. `requests`: what it got, oldest first. `headers`: of each. `refuses`: answers of status 503."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list = []
        self.headers: list[dict[str, str]] = []
        self.refuses = False
        self.answer = None
        self._lock = threading.Lock()

    def take(self, request, headers) -> None:
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)

    def first(self, is_wanted=bool):
        """The first request that is so, when it has come."""
        return wait_until(
            lambda: next((one for one in list(self.requests) if is_wanted(one)), None),
            "the collector does not get it",
        )


@contextlib.contextmanager
def http_collector():
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request, response = _BY_PATH[self.path]
            if kept.refuses:
                self.send_error(503, "too busy")
                return
            kept.take(request.FromString(body), {k.lower(): v for k, v in self.headers.items()})
            told = (kept.answer or response()).SerializeToString()
            self.send_response(200)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    kept.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def grpc_collector():
    kept = Collector()

    class Service(
        metrics_grpc.MetricsServiceServicer,
        trace_grpc.TraceServiceServicer,
        logs_grpc.LogsServiceServicer,
    ):
        def Export(self, request, context):
            if kept.refuses:
                context.abort(grpc.StatusCode.UNAVAILABLE, "too busy")
            kept.take(request, dict(context.invocation_metadata()))
            return next(
                response() for kind, response in _BY_PATH.values() if isinstance(request, kind)
            )

    server = grpc.server(ThreadPoolExecutor(2))
    metrics_grpc.add_MetricsServiceServicer_to_server(Service(), server)
    trace_grpc.add_TraceServiceServicer_to_server(Service(), server)
    logs_grpc.add_LogsServiceServicer_to_server(Service(), server)
    kept.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield kept
    finally:
        server.stop(None).wait()


def attributes(of) -> dict[str, str | int | float]:
    """The attributes of a point, a span or a resource."""
    found = ((one.key, one.value) for one in of.attributes)
    return {name: getattr(value, value.WhichOneof("value")) for name, value in found}
