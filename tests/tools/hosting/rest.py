"""A REST server for one test, and a client that shows no more than Flink's does."""

import contextlib
import json
import urllib.error
import urllib.request

from penstock.engine.model.config import Settings
from penstock.ops.registry.job_registry import JOB_REGISTRY
from penstock.ops.rest import server

SETTINGS = {"rest.bind-port": "0", "penstock.rest.enabled": "true"}


@contextlib.contextmanager
def rest_server(**more):
    """A server that MiniCluster jobs with SETTINGS use. Ended with the block."""
    former = server.CURRENT.server
    for job_id in list(JOB_REGISTRY.observed):
        JOB_REGISTRY.forget(job_id)  # With its metrics, which reporters would show.
    server.CURRENT.server = None
    try:
        server.address_of_server(Settings({**SETTINGS, **more}))
        yield Client(server.current_server().address)
    finally:
        server.current_server().stop()
        server.CURRENT.server = former


class Client:
    def __init__(self, address):
        self.address = address

    def ask(self, path, method="GET", body=None, **headers):
        """(status, JSON)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def get(self, path):
        status, told = self.ask(path)
        assert status == 200, told
        return told
