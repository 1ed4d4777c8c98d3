"""Which sockets listen for a name of this machine."""

import errno
import socket

import pytest

from penstock.engine.hosting.os.listening import listen


def addresses(sockets):
    found = [one.getsockname()[:2] for one in sockets]
    for one in sockets:
        one.close()
    return found


def test_localhost_is_both_loopbacks_at_one_port():
    (first, port), (second, same) = addresses(listen("localhost", 0))
    assert (first, second) == ("127.0.0.1", "::1")
    assert port == same > 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_is_itself_alone(host):
    ((found, _),) = addresses(listen(host, 0))
    assert found == host


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_port_that_another_has_at_one_loopback_is_taken(family, host):
    """Half of the clients would else speak to the other one."""
    with socket.create_server((host, 0), family=family) as taken:
        with pytest.raises(OSError, match="in use") as caught:
            listen("localhost", taken.getsockname()[1])
        assert caught.value.errno == errno.EADDRINUSE


def lacking(*addresses_lacking, known=socket.socket):
    class Socket(known):
        def bind(self, at):
            if at[0] in addresses_lacking:
                raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
            super().bind(at)

    return Socket


def test_a_loopback_that_the_machine_lacks_is_left_out(monkeypatch):
    monkeypatch.setattr(socket, "socket", lacking("::1"))
    assert [host for host, _ in addresses(listen("localhost", 0))] == ["127.0.0.1"]
    monkeypatch.setattr(socket, "socket", lacking("::1", "127.0.0.1"))
    with pytest.raises(OSError, match="Cannot assign"):
        listen("localhost", 0)
