"""The session on which jobs run, and what others learn of it."""

from types import SimpleNamespace

import pytest

from penstock.hosting.observation.observatory import OBSERVATORY
from penstock.hosting.spark import host
from penstock.model.config import Settings


class Context:
    """Spark's, as far as its pages go."""

    def __init__(self, address):
        self.uiWebUrl = address


@pytest.mark.parametrize("address", ["http://localhost:4040", None])
def test_pages_of_spark_are_known_with_the_session(monkeypatch, address):
    session = SimpleNamespace(sparkContext=Context(address))
    monkeypatch.setattr(host, "active_session", lambda: session)
    monkeypatch.setattr(OBSERVATORY, "spark_ui", "of another session")
    assert host.spark_session(Settings(), 1) is session
    assert OBSERVATORY.spark_ui == address
