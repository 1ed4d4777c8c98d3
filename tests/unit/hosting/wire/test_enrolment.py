"""How an executor's process gets the application's secret: from the greeter and from the JobManager's server (`hosting/wire/enrolment.py`)."""

import socket
from contextlib import closing

import pytest

from penstock.hosting.wire.dialling import dial
from penstock.hosting.wire.enrolment import enrol
from penstock.hosting.wire.greeter import Greeter
from penstock.hosting.wire.handshake import ROLE_DATA, ROLE_GUEST, Credentials
from penstock.hosting.wire.invitations import TICKET_BYTES, Invitations
from penstock.hosting.wire.tls import Identity
from penstock.model.errors import AuthenticationError
from tests.tools.relay import Relay, closed_by_peer

TICKET = b"t" * TICKET_BYTES
HANG_S = 60.0
PLAIN = Credentials(b"the secret of the application...", "token", "cluster")
WITH_TLS = Credentials(PLAIN.secret, "token", "cluster", identity=Identity(b"certificate and key"))


@pytest.fixture
def host():
    return Invitations("token", "cluster")


def greeting(credentials, host):
    server = socket.create_server(("127.0.0.1", 0))
    greeter = Greeter([server], credentials, ROLE_DATA, _handed_over, invitations=host).start()
    return closing(greeter), server.getsockname()


def _handed_over(_proven):
    pytest.fail("a guest was handed over")


@pytest.mark.parametrize("credentials", [PLAIN, WITH_TLS], ids=["plain", "with TLS"])
def test_an_invited_process_gets_the_credentials_and_a_listener_does_not(credentials, host):
    seen = []

    def recorded(_at, data):
        seen.append(data)
        return data

    greeter, address = greeting(credentials, host)
    with greeter, Relay(address, recorded, recorded) as relay:
        assert enrol(relay.address, host.new(TICKET), HANG_S) == credentials
    wire = b"".join(seen)
    assert b"Admission" in wire
    assert credentials.secret not in wire
    assert b"certificate and key" not in wire


def test_a_process_that_comes_second_with_a_ticket_gets_nothing(host, caplog):
    greeter, address = greeting(PLAIN, host)
    invitation = host.new(TICKET)
    with greeter:
        enrol(address, invitation, HANG_S)
        with pytest.raises(AuthenticationError, match="closed the connection"):
            enrol(address, invitation, HANG_S)
    assert "used before" in caplog.text


def test_a_guest_gets_no_other_role(host, caplog):
    greeter, address = greeting(PLAIN, host)
    with greeter:
        proven = dial(address, host.new(TICKET).accepted(), ROLE_DATA, HANG_S)
        with proven.sock as sock:
            assert closed_by_peer(sock)
    assert "connected in role 3; expected role 6" in caplog.text


def test_a_member_is_not_admitted_again(host, caplog):
    greeter, address = greeting(PLAIN, host)
    with greeter, dial(address, PLAIN, ROLE_GUEST, HANG_S).sock as sock:
        assert closed_by_peer(sock)
    assert "connected in role 6; expected role 3" in caplog.text
