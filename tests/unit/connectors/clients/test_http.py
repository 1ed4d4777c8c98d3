"""HttpClient against a server that fails in all the ways it can."""

import pytest

from penstock.connectors.clients.http import (
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    HttpClient,
    HttpLimits,
    HttpRequest,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from tests.tools.http_peer import ask, url
from tests.tools.small_servers import free_port


def test_a_connection_is_used_again_also_where_the_server_has_closed_it(peer):
    client = HttpClient("test", HttpLimits(retries=0))
    for _ in range(3):
        client.send(HttpRequest(url(peer, "/list")))
    first = client._connection
    peer.kill()
    peer.start()
    assert client.send(HttpRequest(url(peer, "/list"))).body == b"[]"
    assert client._connection is not first
    client.release()


@pytest.fixture
def slept():
    return []


@pytest.fixture
def client(slept):
    made = HttpClient("test", HttpLimits(timeout_s=0.3, retries=2), sleep_s=slept.append)
    yield made
    made.release()


@pytest.mark.parametrize(
    "fault", [408, 425, 429, 500, 502, 503, 504, "drop", "hang", "drip", "drip the head", "cut"]
)
def test_what_may_pass_is_tried_again(peer, client, slept, fault):
    ask(peer, "/faults", [fault, fault])
    assert client.send(HttpRequest(url(peer, "/list"))).body == b"[]"
    assert sum(slept) <= FIRST_DELAY_S * 3
    assert slept


def test_after_the_last_try_it_says_what_was_wrong(peer, client):
    ask(peer, "/faults", [503, 503, 503])
    with pytest.raises(ExternalError, match="GET http://127.0.0.1.*3 times.*status 503") as told:
        client.send(HttpRequest(url(peer, "/list?token=geheim")))
    assert not isinstance(told.value, RefusedForGood)
    assert "geheim" not in str(told.value)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422])
def test_what_another_try_cannot_change_ends_the_job(peer, client, slept, status):
    ask(peer, "/faults", [status])
    with pytest.raises(RefusedForGood, match=f"is refused with status {status}: .*a fault"):
        client.send(HttpRequest(url(peer, "/list")))
    assert not slept


def test_the_server_says_how_long_to_wait_in_seconds_or_as_a_date(peer, client, slept):
    ask(peer, "/faults", [[429, {"Retry-After": "2"}]])
    client.send(HttpRequest(url(peer, "/list")))
    assert sum(slept) == 2  # in slices
    slept.clear()
    ask(peer, "/faults", ["date"])
    client.send(HttpRequest(url(peer, "/list")))
    assert sum(slept) <= 1
    slept.clear()
    ask(peer, "/faults", [[503, {"Retry-After": "86400"}], [503, {"Retry-After": "soon"}]])
    client.send(HttpRequest(url(peer, "/list")))
    assert LONGEST_DELAY_S < sum(slept) <= LONGEST_DELAY_S + 2 * FIRST_DELAY_S


def test_a_server_that_is_not_there_is_told(client):
    with pytest.raises(ExternalError, match="ConnectionRefusedError"):
        client.send(HttpRequest(f"http://127.0.0.1:{free_port()}/"))


def test_a_server_that_is_killed_and_comes_back_is_asked_again(peer):
    ask(peer, "/log", ["a"])

    def comes_back(_s):
        if peer._ended():
            peer.start()

    client = HttpClient("test", HttpLimits(timeout_s=5, retries=2), sleep_s=comes_back)
    assert client.send(HttpRequest(url(peer, "/list"))).body == b'["a"]'
    peer.kill()
    assert client.send(HttpRequest(url(peer, "/list"))).body == b'["a"]'
    client.release()


def test_an_address_that_a_function_made_wrong_is_told_without_its_secrets(client):
    with pytest.raises(ConfigurationError, match="a user before its host") as told:
        client.send(HttpRequest("http://u:geheim@host/"))
    assert (
        "geheim"
        not in f"{told.value}{HttpRequest('http://h/?t=geheim', headers={'a': 'geheim'})!r}"
    )


def test_a_redirect_says_where_to_without_the_query(peer, client):
    ask(peer, "/faults", [[302, {"Location": "https://other.example:8443/v2/list?token=geheim"}]])
    with pytest.raises(
        RefusedForGood, match="a redirect to 'https://other.example:8443/v2/list'"
    ) as told:
        client.send(HttpRequest(url(peer, "/list")))
    assert "geheim" not in str(told.value)


@pytest.mark.parametrize("path", ["/a b", "/\u00e4", "/a\n"])
def test_a_url_that_cannot_be_sent_is_told_at_once(client, slept, path):
    with pytest.raises(ConfigurationError, match="to be written as %XX"):
        client.send(HttpRequest(f"http://127.0.0.1:1{path}"))
    assert not slept
