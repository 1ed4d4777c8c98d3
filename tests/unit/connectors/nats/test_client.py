"""A connection to a server that has stopped: what is said of it."""

import asyncio

import psutil
import pytest

from penstock.connectors.nats import client
from penstock.connectors.nats.client import NatsLink, NatsSettings, most_bytes_of
from penstock.engine.model.errors import ExternalError
from tests.tools.connectors.silent_server import silent_server
from tests.tools.small_servers import nats_server


def test_a_server_that_does_not_answer_is_named_with_the_time_and_the_next_step(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.1)
    with silent_server() as port:
        link = NatsLink(NatsSettings((f"nats://127.0.0.1:{port}",)), "here", retries=0)
        expected = rf"^here: nats://127.0.0.1:{port} does not answer: waited \d+ s\. .*firewall"
        try:
            with pytest.raises(ExternalError, match=expected):
                most_bytes_of(link)
        finally:
            link.close()


def test_a_library_that_has_no_time_to_close_leaves_no_socket(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.1)
    real = asyncio.wait_for

    async def no_time_to_close(awaited, seconds):
        is_close = getattr(awaited, "__qualname__", "") == "Client.close"
        return await real(awaited, 0 if is_close else seconds)

    monkeypatch.setattr(client.asyncio, "wait_for", no_time_to_close)
    with silent_server() as port:
        link = NatsLink(NatsSettings((f"nats://127.0.0.1:{port}",)), "here", retries=0)
        with pytest.raises(ExternalError, match="does not answer"):
            most_bytes_of(link)
        link.close()
        left = [one for one in psutil.Process().net_connections() if one.raddr]
        assert port not in {one.raddr.port for one in left}


@pytest.mark.server
def test_no_try_follows_when_the_time_for_an_answer_is_over(monkeypatch):
    monkeypatch.setattr(client, "CALL_TIMEOUT_S", 0.0)
    tries = []

    async def fails(_client):  # noqa: RUF029 - it is awaited
        tries.append(1)
        raise TimeoutError

    with nats_server() as server:
        link = NatsLink(NatsSettings((f"nats://127.0.0.1:{server.port}",)), "here")
        try:
            with pytest.raises(ExternalError, match="does not answer"):
                link.call(fails, 10.0)
        finally:
            link.close()
    assert len(tries) == 1
