"""The client against a server that has stopped: how often it is asked, and what is said of it."""

import pytest
import redis

from penstock.connectors.redis import client
from penstock.connectors.redis.client import RedisSettings, clear_errors, connect
from penstock.engine.model.errors import ExternalError
from tests.tools.connectors.silent_server import silent_server


def test_a_server_that_does_not_answer_is_waited_for_once(monkeypatch):
    monkeypatch.setattr(client, "SOCKET_TIMEOUT_S", 0.1)
    opened = []
    real = redis.connection.Connection._connect  # nothing public says how often it connects

    def counted(self):
        opened.append(self)
        return real(self)

    monkeypatch.setattr(redis.connection.Connection, "_connect", counted)
    with silent_server() as port:
        address = RedisSettings((f"redis://127.0.0.1:{port}/0",))
        expected = (
            rf"here: the server redis://127.0.0.1:{port}/0 does not answer.*0\.1 s.* firewall"
        )
        with (
            connect(address, "here") as made,
            pytest.raises(ExternalError, match=expected),
            clear_errors(address, "here"),
        ):
            made.ping()
    assert len(opened) == 1
