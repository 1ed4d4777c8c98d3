"""Whose process is at the other end of a connection, as the kernel says."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from penstock.engine.hosting.os import socket_owners
from penstock.engine.hosting.os.socket_owners import is_of_this_user, owners_of_listeners

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel is asked")

CONNECTS = """
import os, socket, sys
family, user, address = int(sys.argv[1]), int(sys.argv[2]), eval(sys.argv[3])
if user != os.geteuid():
    os.setuid(user)
sock = socket.socket(family)
sock.connect(address)
print(flush=True)
sys.stdin.readline()
sock.close()
print(flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def accepted(family, address, user=None):
    """The accepted end of a connection, and the process that has dialled."""
    with socket.socket(family) as listening:
        listening.bind(address)
        listening.listen()
        user = os.geteuid() if user is None else user
        command = [
            *(sys.executable, "-c", CONNECTS, str(int(family)), str(user)),
            repr(listening.getsockname()[:2] if isinstance(address, tuple) else address),
        ]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
            assert child.stdout.readline() == "\n"
            sock, _ = listening.accept()
            with sock:
                yield sock, child
                child.kill()


ENDS = [
    pytest.param(socket.AF_INET, ("127.0.0.1", 0), id="IPv4"),
    pytest.param(socket.AF_INET6, ("::1", 0), id="IPv6"),
    pytest.param(socket.AF_UNIX, b"\0penstock-test-of-local-peers", id="Unix"),
]


@pytest.mark.parametrize(("family", "address"), ENDS)
def test_a_process_of_this_user_is_vouched_for(family, address):
    with accepted(family, address) as (sock, _):
        assert is_of_this_user(sock)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
@pytest.mark.parametrize(("family", "address"), ENDS)
def test_a_process_of_another_user_is_not(family, address):
    with accepted(family, address, user=65_533) as (sock, _):
        assert not is_of_this_user(sock)


def test_over_tcp_root_is_vouched_for_too(monkeypatch):
    """Nothing is hidden from it."""
    with accepted(socket.AF_INET, ("127.0.0.1", 0)) as (sock, _):
        monkeypatch.setattr(socket_owners, "ROOT", os.geteuid())
        monkeypatch.setattr(socket_owners.os, "geteuid", lambda: 65_533)
        assert is_of_this_user(sock)


@pytest.mark.parametrize(("family", "address"), ENDS[:2])
def test_a_socket_that_its_process_has_closed_belongs_to_nobody(family, address):
    """The kernel gives such a socket to user 0, who may be ours."""
    with accepted(family, address) as (sock, child):
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "\n"
        assert not is_of_this_user(sock)


def test_before_it_is_accepted_the_other_end_belongs_to_nobody():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as sock,
    ):
        assert not is_of_this_user(sock)
        again, _ = listening.accept()
        with again:
            assert is_of_this_user(sock)


@pytest.mark.parametrize(("family", "address"), ENDS[:2])
def test_whose_process_listens_is_known_before_anybody_dials(family, address):
    with socket.socket(family) as listening:
        listening.bind(address)
        port = listening.getsockname()[1]
        assert owners_of_listeners(address[0], port) == set()
        listening.listen()
        assert owners_of_listeners(address[0], port) == {os.geteuid()}
        assert owners_of_listeners("localhost", port) <= {os.geteuid()}
    assert owners_of_listeners(address[0], port) == set()


def test_a_listener_at_all_addresses_is_one_at_this_address_too():
    with socket.create_server(("0.0.0.0", 0)) as listening:
        assert owners_of_listeners("127.0.0.1", listening.getsockname()[1]) == {os.geteuid()}


def test_who_dialled_over_ipv4_is_seen_by_a_listener_of_both_families():
    with socket.socket(socket.AF_INET6) as listening:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(("::ffff:127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(("127.0.0.1", listening.getsockname()[1])) as sock:
            again, _ = listening.accept()
            with again:
                assert is_of_this_user(again)
                assert is_of_this_user(sock)


def test_a_user_whom_the_kernel_shows_for_strangers_is_not_vouched_for(monkeypatch):
    """Users of other user namespaces all have this number here."""
    with accepted(socket.AF_INET, ("127.0.0.1", 0)) as (sock, _):
        monkeypatch.setattr(socket_owners, "_overflow_user", os.geteuid)
        assert not is_of_this_user(sock)


def test_over_a_unix_socket_that_user_is_refused(monkeypatch):
    with accepted(socket.AF_UNIX, b"\0penstock-test-of-strangers") as (sock, _):
        assert socket_owners.refusal_of(sock) is None
        monkeypatch.setattr(socket_owners, "_overflow_user", os.geteuid)
        assert "stands for every user of other namespaces" in socket_owners.refusal_of(sock)


def test_where_the_kernel_does_not_answer_nobody_is_vouched_for(monkeypatch):
    def refused(*_):
        raise PermissionError("no netlink here")

    with accepted(socket.AF_INET, ("127.0.0.1", 0)) as (sock, _):
        monkeypatch.setattr(socket_owners.socket, "socket", refused)
        assert not is_of_this_user(sock)


def test_a_connection_that_is_gone_belongs_to_nobody():
    with socket.socket() as sock:
        assert not is_of_this_user(sock)
