"""A schema registry of the tests: paths, bodies and error codes as Confluent documents them for Schema Registry 7.

It keeps schemas in memory, writes down each request, and meets faults as it is told. What is compatible it does not judge.
"""

import contextlib
import itertools
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

TYPE = "application/vnd.schemaregistry.v1+json"
UNAUTHORIZED = (401, {"error_code": 401, "message": "Unauthorized"})
INCOMPATIBLE = (
    409,
    {
        "error_code": 409,
        "message": "Schema being registered is incompatible with an earlier schema",
    },
)
INVALID = (422, {"error_code": 42201, "message": "Invalid schema"})
NO_SUBJECT = (404, {"error_code": 40401, "message": "Subject not found."})
NO_VERSION = (404, {"error_code": 40402, "message": "Version not found."})
NO_SCHEMA = (404, {"error_code": 40403, "message": "Schema not found"})
STORE_ERROR = (500, {"error_code": 50001, "message": "Error in the backend data store"})


class Asked(NamedTuple):
    method: str
    path: str
    query: dict
    headers: dict
    body: dict | None


class Registry(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.schemas = {}
        """The body of each schema, by id."""
        self.subjects = {}
        """Ids, version by version."""
        self.serialized = {}
        """What `format=serialized` gives, by id; by default the schema itself."""
        self.asked = []
        self.faults = []
        """(status, body) of the next answers, instead of the right one."""
        self.scheme = "http"

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def paths(self):
        return [f"{one.method} {one.path}" for one in self.asked]

    def add(self, subject, schema, kind="AVRO", references=(), schema_id=None):
        """The id of a schema that somebody has registered."""
        body = {"schema": schema}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            body["references"] = list(references)
        return self._registered(subject, body, schema_id)

    def _registered(self, subject, body, schema_id=None):
        known = [one for one, schema in self.schemas.items() if schema == body]
        free = itertools.count(max(self.schemas, default=0) + 1)
        found = schema_id or (known[0] if known else next(free))
        self.schemas[found] = body
        versions = self.subjects.setdefault(subject, [])
        if found not in versions:
            versions.append(found)
        return found

    def answer(self, asked):
        match [asked.method, *asked.path.strip("/").split("/")]:
            case ["POST", "subjects", subject, "versions"]:
                return 200, {"id": self._registered(unquote(subject), _schema_of(asked.body))}
            case ["POST", "subjects", subject]:
                return self._looked_up(unquote(subject), _schema_of(asked.body))
            case ["GET", "schemas", "ids", number]:
                if int(number) not in self.schemas:
                    return NO_SCHEMA
                return 200, self._shown(int(number), asked)
            case ["GET", "subjects", subject, "versions", version]:
                ids = self.subjects.get(unquote(subject))
                if ids is None:
                    return NO_SUBJECT
                place = len(ids) if version == "latest" else int(version)
                if place > len(ids):
                    return NO_VERSION
                found = ids[place - 1]
                more = {"subject": unquote(subject), "id": found, "version": place}
                return 200, self._shown(found, asked) | more
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _looked_up(self, subject, body):
        if subject not in self.subjects:
            return NO_SUBJECT
        for version, found in enumerate(self.subjects[subject], 1):
            if self.schemas[found] == body:
                return 200, {"subject": subject, "id": found, "version": version, **body}
        return NO_SCHEMA

    def _shown(self, number, asked):
        body = dict(self.schemas[number])
        if asked.query.get("format") == "serialized" and number in self.serialized:
            body["schema"] = self.serialized[number]
        return body


def _schema_of(body):
    """What makes a schema the same."""
    found = {"schema": body["schema"]}
    if body.get("schemaType") not in {None, "AVRO"}:
        found["schemaType"] = body["schemaType"]
    if body.get("references"):
        found["references"] = body["references"]
    return found


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        """Nothing."""

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def _serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        parts = urlsplit(self.path)
        asked = Asked(
            self.command, parts.path, dict(parse_qsl(parts.query)), dict(self.headers), body
        )
        with self.server.lock:
            self.server.asked.append(asked)
            faults = self.server.faults
            status, value = faults.pop(0) if faults else self.server.answer(asked)
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def schema_registry(certificate=None, ca=None):
    """`certificate`: its file and that of its key: it speaks TLS. `ca`: clients must show a certificate of this authority."""
    with Registry() as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            if ca is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(ca)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.scheme = "https"
            server.handle_error = lambda *_: None  # clients that do not trust it
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
