"""The session on which jobs run, and what others learn of it."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.program import spark_host as host
from penstock.engine.model.config import Settings
from penstock.ops.registry.job_registry import JOB_REGISTRY


class Context:
    """Spark's, as far as its pages go."""

    def __init__(self, address):
        self.uiWebUrl = address


@pytest.mark.parametrize("address", ["http://localhost:4040", None])
def test_pages_of_spark_are_known_with_the_session(operations, monkeypatch, address):
    session = SimpleNamespace(sparkContext=Context(address))
    monkeypatch.setattr(host, "active_session", lambda: session)
    monkeypatch.setattr(JOB_REGISTRY, "spark_ui", "of another session")
    assert host.spark_session(Settings(), 1) is session
    assert JOB_REGISTRY.spark_ui == address
