"""How an executor's process gets the certificate and key of its job, and nobody else does (`engine/hosting/network/wire/dialling.py`)."""

import json
import socket
import ssl
import threading
from contextlib import closing

import pytest

from penstock.engine.hosting.network.wire.acceptor import Acceptor
from penstock.engine.hosting.network.wire.dialling import Ticket, Tickets, dial, register, welcomed
from penstock.engine.hosting.network.wire.handshake import (
    ROLE_DATA,
    ROLE_REGISTRATION,
    hello,
    packed,
)
from penstock.engine.hosting.network.wire.tls import (
    TlsSocket,
    new_identity,
    registering_context,
    server_context,
)
from penstock.engine.model.errors import AuthenticationError
from tests.tools.identities import new_credentials
from tests.tools.relay import Relay, closed_by_peer, flipped

HANG_S = 60.0
JOB = new_credentials()


@pytest.fixture
def tickets():
    return Tickets(JOB)


@pytest.fixture
def address(tickets):
    server = socket.create_server(("127.0.0.1", 0))
    acceptor = Acceptor([server], JOB, ROLE_DATA, _handed_over, tickets=tickets)
    with closing(acceptor.start()):
        yield server.getsockname()


def _handed_over(_proven):
    pytest.fail("a process that registers was handed over")


def test_a_process_with_a_ticket_gets_the_credentials_and_a_listener_does_not(address, tickets):
    seen = []

    def recorded(_at, data):
        seen.append(data)
        return data

    ticket = tickets.new()
    with Relay(address, recorded, recorded) as relay:
        assert register(relay.address, ticket, HANG_S) == JOB
    wire = b"".join(seen)
    assert wire
    key = JOB.identity.pem.partition(b"PRIVATE KEY-----\n")[2].splitlines()[0]
    assert key not in wire
    assert ticket.one_time_token not in wire
    assert ticket.one_time_token.hex().encode() not in wire


def test_what_a_task_carries_has_no_key(tickets):
    ticket = tickets.new()
    carried = json.dumps(ticket.to_plain())
    assert "PRIVATE" not in carried
    assert Ticket.from_plain(json.loads(carried)) == ticket
    assert ticket.one_time_token.hex() not in repr(ticket)


def test_a_process_that_comes_second_with_a_ticket_gets_nothing(address, tickets, caplog):
    ticket = tickets.new()
    register(address, ticket, HANG_S)
    with pytest.raises(AuthenticationError, match="closed the connection"):
        register(address, ticket, HANG_S)
    assert "used before" in caplog.text
    assert "spark.network.crypto.enabled" in caplog.text


def test_a_guessed_ticket_gets_nothing(address, tickets, caplog):
    tickets.new()
    guessed = Tickets(JOB).new()
    with pytest.raises(AuthenticationError, match="closed the connection"):
        register(address, guessed, HANG_S)
    assert "not known here" in caplog.text


def test_a_ticket_is_sent_to_the_driver_only(tickets):
    """Somebody in between answers with a certificate of his own: he does not get to see the token."""
    heard = []

    def answer(server):
        sock = server.accept()[0]
        tls = TlsSocket(
            sock.detach(), server_context(new_identity(), admits_tickets=True), is_server=True
        )
        with tls:
            try:
                tls.do_handshake()
                heard.append(tls.recv(4096))
            except ssl.SSLError as error:
                heard.append(error.reason)

    with socket.create_server(("127.0.0.1", 0)) as server:
        between = threading.Thread(target=answer, args=(server,))
        between.start()
        with pytest.raises(AuthenticationError, match="did not prove that it belongs to this job"):
            register(server.getsockname(), tickets.new(), HANG_S)
        between.join()
    (heard_of,) = heard
    assert isinstance(heard_of, str)
    assert "ALERT" in heard_of


def test_a_changed_registration_gives_no_credentials(address, tickets):
    for place in range(90, 1400, 101):
        with Relay(address, back=flipped(place)) as relay:
            try:
                assert register(relay.address, tickets.new(), HANG_S) == JOB
            except (AuthenticationError, OSError):
                continue


def test_of_many_at_the_same_time_one_is_admitted(tickets):
    ticket, results = tickets.new(), []
    barrier = threading.Barrier(8)

    def use():
        barrier.wait()
        try:
            tickets.use(ticket.one_time_token)
            results.append("admitted")
        except AuthenticationError:
            results.append("refused")

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["admitted"] + ["refused"] * 7


def test_a_ticket_for_several_admits_them_until_it_is_withdrawn(address, tickets, caplog):
    ticket = tickets.new(admits=None)
    for _ in range(3):
        assert register(address, ticket, HANG_S) == JOB
    tickets.withdraw(ticket)
    with pytest.raises(AuthenticationError):
        register(address, ticket, HANG_S)
    assert "not known here" in caplog.text


def test_a_ticket_for_two_admits_two(address, tickets):
    ticket = tickets.new(admits=2)
    for _ in range(2):
        register(address, ticket, HANG_S)
    with pytest.raises(AuthenticationError):
        register(address, ticket, HANG_S)


def test_who_registers_gets_no_other_role(address, tickets, caplog):
    """And does not use up the ticket that it shows."""
    ticket = tickets.new()
    first = packed(ROLE_DATA, JOB.token, JOB.cluster_id, "tm-1", ticket.one_time_token)
    sock = socket.create_connection(address)
    with pytest.raises(AuthenticationError):
        welcomed(sock, registering_context(ticket.certificate), first)
    assert "connected in role 3; expected role 6" in caplog.text
    assert register(address, ticket, HANG_S) == JOB


def test_a_member_does_not_register_again(address, caplog):
    with pytest.raises(AuthenticationError):
        dial(address, JOB, ROLE_REGISTRATION, HANG_S)
    assert "connected in role 6; expected role 3" in caplog.text


def test_where_there_are_no_tickets_tls_asks_for_a_certificate(tickets):
    ticket = tickets.new()
    server = socket.create_server(("127.0.0.1", 0))
    with (
        closing(Acceptor([server], JOB, ROLE_DATA, _handed_over).start()),
        pytest.raises(AuthenticationError),
    ):
        register(server.getsockname(), ticket, HANG_S)


def test_a_token_that_is_sent_in_clear_is_not_read(address, tickets, caplog):
    """The ticket stays valid: only what came inside TLS counts."""
    ticket = tickets.new()
    first = packed(ROLE_REGISTRATION, ticket.token, ticket.cluster_id, "", ticket.one_time_token)
    with socket.create_connection(address) as sock:
        sock.sendall(first)
        while not closed_by_peer(sock):
            pass  # TLS's alert.
    assert hello(JOB, ROLE_REGISTRATION).startswith(b"PENSTOCK")
    assert register(address, ticket, HANG_S) == JOB
