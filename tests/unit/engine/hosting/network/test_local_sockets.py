"""Which socket two TaskManagers get, and what becomes of a name that somebody else holds."""

import logging
import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing

import pytest

from penstock.engine.hosting.network import peers
from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.model.ids import ResourceId, TaskManagerLocation
from penstock.engine.runtime.network.network_settings import NetworkSettings
from tests.tools.identities import new_credentials

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
CREDENTIALS = new_credentials()
SQUATTER = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as server:
    server.bind(bytes.fromhex(sys.argv[1]))
    server.listen()
    print("listens", flush=True)
    sys.stdin.read()
"""


def plane_of(name: str, *, is_local: bool = True) -> DataPlane:
    network = NetworkSettings(uses_local_sockets=is_local)
    return DataPlane(ResourceId(name), Endpoint("127.0.0.1"), CREDENTIALS, network).start()


def location_of(plane: DataPlane) -> TaskManagerLocation:
    return TaskManagerLocation(plane.resource_id, "127.0.0.1", plane.port)


@pytest.mark.parametrize(
    ("dials_local", "listens_local", "expected"),
    [
        (True, True, socket.AF_UNIX),
        (False, True, socket.AF_INET),
        (True, False, socket.AF_INET),
    ],
)
def test_the_unix_socket_is_used_where_both_have_it(dials_local, listens_local, expected):
    with ExitStack() as stack:
        here = stack.enter_context(closing(plane_of("tm-1", is_local=dials_local)))
        there = stack.enter_context(closing(plane_of("tm-2", is_local=listens_local)))
        connection = here.peers.connection_to(location_of(there))
        assert connection.sock.family == expected


def test_whoever_holds_the_name_but_not_the_secret_is_passed_by():
    with ExitStack() as stack:
        here = stack.enter_context(closing(plane_of("tm-1")))
        there = stack.enter_context(closing(plane_of("tm-2", is_local=False)))
        (squatter,) = peers.listen(CREDENTIALS, there.resource_id, there.port)
        stack.enter_context(squatter)

        def hang_up() -> None:
            squatter.accept()[0].close()

        hung_up = threading.Thread(target=hang_up)
        hung_up.start()
        connection = here.peers.connection_to(location_of(there))
        hung_up.join(10)
        assert connection.sock.family == socket.AF_INET


def test_a_name_in_use_is_told_and_leaves_tcp(caplog):
    port = 1  # no socket of this test listens there
    (first,) = peers.listen(CREDENTIALS, ResourceId("tm-1"), port)
    with first:
        assert peers.listen(CREDENTIALS, ResourceId("tm-1"), port) == []
        assert f"LOCAL_SOCKET_REFUSED port={port}" in caplog.text
        assert peers.connect(CREDENTIALS, ResourceId("tm-2"), port, 1.0) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_name_that_another_user_holds_is_left_and_told(caplog):
    """As whoever has learned the name and was faster: the kernel says whose process it is."""
    caplog.set_level(logging.WARNING)
    name, port = ResourceId("tm-2"), 1
    held = peers.local_name(CREDENTIALS, name, port)
    with subprocess.Popen(
        [sys.executable, "-c", SQUATTER, held.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as squatter:
        try:
            assert squatter.stdout.readline() == b"listens\n"
            assert peers.connect(CREDENTIALS, name, port, 10.0) is None
        finally:
            squatter.stdin.close()
    assert "REFUSED" in caplog.text
    assert f"is of user 65534, not of user {os.geteuid()}" in caplog.text
