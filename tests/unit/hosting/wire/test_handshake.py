"""Mutual authentication (`hosting/wire/handshake.py`): who cannot prove itself gets nothing, and nothing it sends is unpickled."""

import hmac
import pickle
import socket

import pytest

from penstock.hosting.wire import dialling
from penstock.hosting.wire import handshake as hs
from penstock.hosting.wire.sealing import Mac
from penstock.model.errors import AuthenticationError, DamagedFrame
from tests.tools.sealed import needs_gmac

GOOD = hs.Credentials(b"s" * 32, "token-1", "cluster")


def meet(client: hs.ClientHandshake, server: hs.ServerHandshake) -> None:
    to_server = client.start()
    while not (client.is_done and server.is_done):
        to_server = client.feed(server.feed(to_server))


def test_both_ends_with_the_secret_meet():
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32)
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    meet(client, server)
    assert server.role == hs.ROLE_DATA


def test_it_works_one_byte_at_a_time():
    client = hs.ClientHandshake(GOOD, hs.ROLE_TASKMANAGER, b"c" * 32)
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    to_server = client.start()
    while not (client.is_done and server.is_done):
        to_client = b"".join(server.feed(bytes([byte])) for byte in to_server)
        to_server = b"".join(client.feed(bytes([byte])) for byte in to_client)
    assert server.role == hs.ROLE_TASKMANAGER


@pytest.mark.parametrize(
    "other",
    [
        hs.Credentials(b"x" * 32, "token-1", "cluster"),
        hs.Credentials(b"s" * 32, "token-0", "cluster"),
        hs.Credentials(b"s" * 32, "token-1", "other cluster"),
    ],
    ids=["another secret", "an old fencing token", "another cluster"],
)
def test_a_stranger_is_refused(other):
    with pytest.raises(AuthenticationError):
        meet(
            hs.ClientHandshake(other, hs.ROLE_DATA, b"c" * 32), hs.ServerHandshake(GOOD, b"n" * 32)
        )


def test_a_server_without_the_secret_is_refused_by_the_client():
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32)
    with pytest.raises(AuthenticationError, match="did not prove"):
        client.feed(b"\1" + b"n" * 32 + b"p" * 32)


def test_a_reflected_challenge_proves_nothing():
    """The attacker opens a second connection and has the server answer its own challenge."""
    victim = hs.ServerHandshake(GOOD, b"n" * 32)
    hello = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32).start()
    challenge = victim.feed(hello)
    mirror = hs.ServerHandshake(GOOD, b"m" * 32)
    reflected = mirror.feed(hello.replace(b"c" * 32, challenge[1:33]))
    with pytest.raises(AuthenticationError):
        victim.feed(reflected[:1] + reflected[33:])
    second = hs.ServerHandshake(GOOD, b"n" * 32)
    answer = second.feed(hello)
    with pytest.raises(AuthenticationError):
        second.feed(answer[:1] + answer[33:])


def test_a_recorded_conversation_cannot_be_replayed():
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32)
    first = hs.ServerHandshake(GOOD, b"n" * 32)
    hello = client.start()
    proof = client.feed(first.feed(hello))
    first.feed(proof)
    assert first.is_done
    again = hs.ServerHandshake(GOOD, b"o" * 32)
    again.feed(hello)
    with pytest.raises(AuthenticationError):
        again.feed(proof)


def test_the_name_of_a_client_is_known_and_cannot_be_changed():
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32, "tm-1")
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    meet(client, server)
    assert server.name == "tm-1"
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32, "tm-1")
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    with pytest.raises(AuthenticationError):
        client.feed(server.feed(client.start().replace(b"tm-1", b"tm-2")))


def test_whoever_passes_a_handshake_on_cannot_change_what_follows():
    """A relay between two that know the secret: it sees every byte, and has no key."""
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32)
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    meet(client, server)
    tag = client.session.sending.tag(b"frame")
    server.session.receiving.check(tag, b"frame")
    with pytest.raises(DamagedFrame):
        server.session.receiving.check(client.session.sending.tag(b"frame"), b"framf")


def test_a_mac_that_was_not_offered_is_refused(monkeypatch):
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32)
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    challenge = server.feed(client.start())
    monkeypatch.setattr(hs, "offered", lambda: 0)
    with pytest.raises(AuthenticationError, match="not offered"):
        client.feed(challenge)
    with pytest.raises(AuthenticationError, match="no MAC"):
        hs.ServerHandshake(GOOD, b"n" * 32).feed(
            hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32).start()
        )


@needs_gmac
@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize("by_server", [True, False])
def test_sums_stand_for_columns_only_if_the_kernel_vouches_to_both(by_client, by_server):
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32, vouched=lambda: by_client)
    server = hs.ServerHandshake(GOOD, b"n" * 32, vouched=lambda: by_server)
    meet(client, server)
    for sender, receiver in ((client, server), (server, client)):
        assert sender.session.sending.takes_sums is (by_client and by_server)
        assert receiver.session.receiving.takes_sums is (by_client and by_server)
        receiver.session.receiving.check(sender.session.sending.tag(b"frame"), b"frame")


@needs_gmac
@pytest.mark.parametrize("seen", [b"", b"a c", b"b a"])
def test_the_kernels_word_counts_only_if_both_ends_see_the_same_connection(seen):
    """Else it is about somebody who passes bytes on, and not about the other end."""
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32, vouched=lambda: True, ends=b"a b")
    server = hs.ServerHandshake(GOOD, b"n" * 32, vouched=lambda: True, ends=seen)
    meet(client, server)
    assert not client.session.sending.takes_sums
    assert not server.session.sending.takes_sums


def test_the_addresses_of_a_connection_cannot_be_changed():
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32, vouched=lambda: True, ends=b"a b")
    server = hs.ServerHandshake(GOOD, b"n" * 32, vouched=lambda: True, ends=b"a c")
    challenge = server.feed(client.start().replace(b"a b", b"a c"))
    with pytest.raises(AuthenticationError):
        client.feed(challenge)


@needs_gmac
def test_a_client_asks_the_kernel_when_the_server_has_accepted_it():
    asked = []
    server = hs.ServerHandshake(GOOD, b"n" * 32, vouched=lambda: True)
    client = hs.ClientHandshake(
        GOOD, hs.ROLE_DATA, b"c" * 32, vouched=lambda: asked.append("kernel") or True
    )
    hello = client.start()
    assert not asked
    client.feed(server.feed(hello))
    assert asked == ["kernel"]


@needs_gmac
@pytest.mark.parametrize("used", [Mac.NONE, Mac.HMAC_SHA256, Mac.GMAC_LOCAL, 9])
def test_a_relay_cannot_choose_another_mac(used):
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32)
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    proof = client.feed(server.feed(client.start()))
    with pytest.raises(AuthenticationError):
        server.feed(bytes([used]) + proof[1:])


@needs_gmac
@pytest.mark.parametrize("used", [Mac.NONE, Mac.HMAC_SHA256, Mac.GMAC_LOCAL, 9])
def test_a_client_that_uses_a_mac_that_was_not_chosen_is_refused(used):
    """It knows the secret, so its proof is right."""
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32)
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    challenge = server.feed(client.start())
    transcript = client.start() + challenge[:33] + bytes([used])
    proof = hmac.digest(GOOD.secret, b"penstock client\0" + transcript, "sha256")
    with pytest.raises(AuthenticationError, match=f"uses MAC {int(used)}, which was not chosen"):
        server.feed(bytes([used]) + proof)


def test_a_role_cannot_be_changed_after_the_proof():
    client = hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32)
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    hello = bytearray(client.start())
    hello[9] = hs.ROLE_SUPERVISOR
    with pytest.raises(AuthenticationError):
        client.feed(server.feed(bytes(hello)))


def test_too_many_bytes_before_the_proof_are_refused():
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    server.feed(hs.ClientHandshake(GOOD, hs.ROLE_DATA, b"c" * 32).start()[:-1])
    with pytest.raises(AuthenticationError):
        server.feed(b"x" * (hs.LIMIT_BYTES + 1))


def explode() -> None:
    raise AssertionError("a pickle from a stranger was loaded")


class Bomb:
    def __reduce__(self):
        return (explode, ())


def test_a_pickle_as_first_bytes_is_never_loaded():
    server = hs.ServerHandshake(GOOD, b"n" * 32)
    with pytest.raises(AuthenticationError, match="does not use Penstock's protocol"):
        server.feed(pickle.dumps(Bomb()))


def test_a_silent_peer_is_given_up(monkeypatch):
    monkeypatch.setattr(dialling, "LIMIT_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(AuthenticationError, match="did not finish"):
        dialling.run_handshake(ours, hs.ServerHandshake(GOOD, b"n" * 32))


def test_credentials_do_not_show_the_secret():
    assert "sss" not in repr(GOOD)
