"""Who comes with an invitation gets a connection of its own, and who only listened gets none (`hosting/wire/invitations.py`)."""

import json

import pytest

from penstock.hosting.wire import handshake as hs
from penstock.hosting.wire.agreement import KeyPair
from penstock.hosting.wire.invitations import TICKET_BYTES, Invitation, Invitations
from penstock.model.errors import AuthenticationError, DamagedFrame
from tests.unit.hosting.wire.test_handshake import GOOD, meet

TICKET = b"t" * TICKET_BYTES
KNOWN_AS = (GOOD.token, GOOD.cluster_id)


@pytest.fixture
def host():
    return Invitations(*KNOWN_AS)


def guest(invitation: Invitation) -> hs.ClientHandshake:
    return hs.ClientHandshake(invitation.accepted(), hs.ROLE_GUEST, b"c" * 32)


def server(host: Invitations | None) -> hs.ServerHandshake:
    return hs.ServerHandshake(GOOD, b"n" * 32, host)


def test_a_guest_and_its_host_meet_and_seal_what_they_send(host):
    theirs, ours = guest(host.new(TICKET)), server(host)
    meet(theirs, ours)
    assert ours.is_guest
    assert ours.role == hs.ROLE_GUEST
    theirs.session.receiving.check(ours.session.sending.tag(b"hello"), b"hello")


def test_a_member_is_no_guest(host):
    ours = server(host)
    meet(hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32), ours)
    assert not ours.is_guest


def test_the_secret_is_in_nothing_that_a_task_carries(host):
    carried = json.dumps(host.new(TICKET).to_plain())
    assert GOOD.secret.hex() not in carried
    assert Invitation.from_plain(json.loads(carried)) == host.new(TICKET)


def test_who_saw_everything_cannot_read_what_is_under_the_veil(host):
    """It knows the ticket, both public values, and all of the handshake, but no exponent."""
    invitation = host.new(TICKET)
    theirs, ours = guest(invitation), server(host)
    meet(theirs, ours)
    hidden = ours.session.hiding.over(b"secret of the application")
    assert theirs.session.showing.over(hidden) == b"secret of the application"
    listener = guest(invitation)
    with pytest.raises(AuthenticationError):
        meet(listener, server(Invitations(*KNOWN_AS, KeyPair())))


def test_a_ticket_admits_once(host):
    invitation = host.new(TICKET)
    meet(guest(invitation), server(host))
    with pytest.raises(AuthenticationError, match=r"used before.*spark\.network\.crypto\.enabled"):
        meet(guest(invitation), server(host))


def test_of_two_at_the_same_time_one_is_admitted(host):
    invitation = host.new(TICKET)
    first, second = (guest(invitation), server(host)), (guest(invitation), server(host))
    proofs = [theirs.feed(ours.feed(theirs.start())) for theirs, ours in (first, second)]
    first[1].feed(proofs[0])
    with pytest.raises(AuthenticationError, match="same time"):
        second[1].feed(proofs[1])


def test_an_invitation_for_several_admits_them_until_it_is_withdrawn(host):
    invitation = host.new(TICKET, admits=None)
    for _ in range(3):
        meet(guest(invitation), server(host))
    host.withdraw(invitation)
    with pytest.raises(AuthenticationError, match="not known"):
        meet(guest(invitation), server(host))


def test_two_connections_of_one_invitation_have_different_keys(host):
    invitation = host.new(TICKET, admits=2)
    sessions = []
    for _ in range(2):
        theirs = guest(invitation)
        meet(theirs, server(host))
        sessions.append(theirs.session)
    with pytest.raises(DamagedFrame):
        sessions[1].receiving.check(sessions[0].sending.tag(b"x"), b"x")


def test_who_guesses_a_ticket_is_refused_before_any_costly_step(host, monkeypatch):
    host.new(TICKET)
    other = Invitations(*KNOWN_AS).new(b"g" * TICKET_BYTES)
    stranger = guest(other)
    monkeypatch.setattr(KeyPair, "shared_with", lambda *_: pytest.fail("a costly step"))
    with pytest.raises(AuthenticationError, match="not known"):
        meet(stranger, server(host))


def test_a_guest_notices_a_host_that_did_not_invite_it(host):
    """A relay that knows the ticket answers in the host's place, with a public value of its own."""
    relay = Invitations(*KNOWN_AS)
    relay.new(TICKET)
    with pytest.raises(AuthenticationError, match="did not prove"):
        meet(guest(host.new(TICKET)), server(relay))


def test_where_nobody_is_invited_a_guest_is_refused(host):
    with pytest.raises(AuthenticationError, match="none is given out"):
        meet(guest(host.new(TICKET)), server(None))


def test_a_ticket_of_another_length_is_an_error(host):
    with pytest.raises(ValueError, match="32 bytes, got 3"):
        host.new(b"abc")
