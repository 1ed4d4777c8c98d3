"""Who is let in (`engine/hosting/network/wire/handshake.py`): who cannot prove itself gets nothing, and nothing it sends is unpickled."""

import pickle
from dataclasses import replace

import pytest

from penstock.engine.hosting.network.wire import handshake as hs
from penstock.engine.hosting.network.wire.handshake import (
    ROLE_DATA,
    ROLE_REGISTRATION,
    ROLE_SUPERVISOR,
    ROLE_TASKMANAGER,
    WELCOME,
    ServerHandshake,
    Shown,
)
from penstock.engine.model.errors import AuthenticationError
from tests.tools.identities import new_credentials

GOOD = new_credentials("token-1")
OTHER = new_credentials("token-1")


def server(shown=Shown.CERTIFICATE, roles=(ROLE_DATA,)):
    return ServerHandshake(GOOD, roles, shown)


def test_a_member_is_welcomed():
    ours = server()
    assert ours.feed(hs.hello(GOOD, ROLE_DATA, "tm-1")) == WELCOME
    assert (ours.role, ours.name, ours.registers) == (ROLE_DATA, "tm-1", False)


def test_it_works_one_byte_at_a_time():
    ours = server(roles=(ROLE_TASKMANAGER, ROLE_SUPERVISOR))
    first = hs.hello(GOOD, ROLE_TASKMANAGER)
    answers = [ours.feed(bytes([byte])) for byte in first]
    assert answers == [b""] * (len(first) - 1) + [WELCOME]
    assert ours.role == ROLE_TASKMANAGER


@pytest.mark.parametrize(
    "other",
    [replace(GOOD, token="token-0"), replace(GOOD, cluster_id="other cluster")],
    ids=["an old fencing token", "another cluster"],
)
@pytest.mark.parametrize("shown", [Shown.CERTIFICATE, Shown.USER])
def test_a_stranger_is_refused(other, shown):
    ours = server(shown)
    with pytest.raises(AuthenticationError, match="another or a former master"):
        ours.feed(hs.hello(other, ROLE_DATA, is_local=shown is Shown.USER))
    assert not ours.is_done


def test_a_process_of_this_user_but_of_another_job_is_refused():
    ours = server(Shown.USER)
    with pytest.raises(AuthenticationError, match="another job"):
        ours.feed(hs.hello(OTHER, ROLE_DATA, is_local=True))
    assert not ours.is_done


def test_a_process_of_this_user_that_only_knows_what_tasks_carry_is_refused():
    with pytest.raises(AuthenticationError, match="another job"):
        server(Shown.USER).feed(hs.hello(GOOD, ROLE_DATA))


def test_a_member_on_a_unix_socket_is_welcomed():
    assert server(Shown.USER).feed(hs.hello(GOOD, ROLE_DATA, is_local=True)) == WELCOME


@pytest.mark.parametrize("role", [ROLE_DATA, ROLE_TASKMANAGER, ROLE_SUPERVISOR])
def test_who_shows_nothing_gets_no_role(role):
    with pytest.raises(AuthenticationError, match=f"role {role}; expected role 6"):
        server(Shown.NOTHING, roles=(role,)).feed(hs.hello(GOOD, role))


def test_where_nobody_registers_who_shows_nothing_is_refused():
    with pytest.raises(AuthenticationError, match="nobody registers here"):
        server(Shown.NOTHING).feed(hs.hello(GOOD, ROLE_REGISTRATION))


def test_a_member_in_another_role_is_refused():
    with pytest.raises(AuthenticationError, match="connected in role 2; expected role 3"):
        server().feed(hs.hello(GOOD, ROLE_SUPERVISOR))


def test_data_before_the_welcome_is_refused():
    with pytest.raises(AuthenticationError, match="before it was welcomed"):
        server().feed(hs.hello(GOOD, ROLE_DATA) + b"x")


def test_a_greeting_that_is_too_long_is_refused_by_its_head():
    long = hs.hello(GOOD, ROLE_DATA, "n" * hs.LIMIT_BYTES)
    with pytest.raises(AuthenticationError, match="longer than 4096 bytes"):
        server().feed(long[:50])


def test_too_many_bytes_before_the_proof_are_refused():
    ours = server()
    ours.feed(hs.hello(GOOD, ROLE_DATA)[:-1])
    with pytest.raises(AuthenticationError):
        ours.feed(b"x" * (hs.LIMIT_BYTES + 1))


def explode() -> None:
    raise AssertionError("a pickle from a stranger was loaded")


class Bomb:
    def __reduce__(self):
        return (explode, ())


@pytest.mark.parametrize(
    "first",
    [pickle.dumps(Bomb()), b"GET / HTTP/1.1\r\n\r\n", b"\0" * 8, b"PENSTOCK" + b"\xff" * 60],
    ids=["pickle", "HTTP", "zeros", "another version"],
)
@pytest.mark.parametrize("shown", list(Shown))
def test_what_is_no_greeting_is_refused_and_never_loaded(first, shown):
    with pytest.raises(AuthenticationError, match="does not use Penstock's protocol"):
        server(shown).feed(first)


def test_what_a_job_keeps_secret_is_not_shown():
    told = f"{GOOD!r} {server()!r}"
    assert "PRIVATE" not in told
    assert GOOD.membership.hex() not in told


def test_what_processes_show_locally_differs_by_job_and_purpose():
    assert GOOD.membership != OTHER.membership
    assert GOOD.local_secret("a") != GOOD.local_secret("b")
