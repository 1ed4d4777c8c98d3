"""Where driver and TaskManagers listen and are dialled. Expectations: Flink's JobManagerOptions and TaskManagerOptions, and
NetUtils.getPortRangeFromString for what ports are written as; 127.0.0.0/8 is what every machine has.
"""

import asyncio
import contextlib
import socket

import pytest

from penstock.engine.hosting.jobmanager.control_server import ControlServer
from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.wire.addresses import (
    CONTROL_PORT,
    DATA_PORT,
    Addresses,
    Endpoint,
    addresses_of,
    data_endpoint,
    listen,
    own_address_in,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.options.option import ports_in
from tests.tools.identities import new_credentials

HOST = "127.0.0.1"
DRIVER = (HOST, 9)
CREDENTIALS = new_credentials()


@contextlib.contextmanager
def free_ports(count):
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        ports = [server.getsockname()[1] for server in servers]
    yield ports


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("0", [0]),
        ("6123", [6123]),
        ("50100-50102", [50100, 50101, 50102]),
        ("50100-50101, 50200 ,50300 - 50301", [50100, 50101, 50200, 50300, 50301]),
    ],
)
def test_ports_are_single_ones_and_ranges(text, ports):
    assert ports_in(text) == ports


@pytest.mark.parametrize("text", ["", "-1", "a", "70000", "5-3", "1,,2", "1-2-3"])
def test_what_are_no_ports_is_refused_with_the_option(text):
    with pytest.raises(ConfigurationError, match=r"'taskmanager.data.port' is .*50100-50110"):
        addresses_of(Settings({DATA_PORT: text or ","}))


def test_the_configuration_is_flinks():
    settings = Settings({
        "jobmanager.rpc.address": "driver.example",
        "jobmanager.bind-host": "0.0.0.0",
        "jobmanager.rpc.port": "6123",
        "jobmanager.rpc.bind-port": "7000-7010",
        "taskmanager.host": "10.1.0.0/16",
        "taskmanager.bind-host": "0.0.0.0",
        "taskmanager.data.port": "50100-50110",
    })
    assert addresses_of(settings) == Addresses(
        "driver.example", "0.0.0.0", "7000-7010", 6123, "10.1.0.0/16", "0.0.0.0", "50100-50110"
    )
    assert addresses_of(Settings({})) == Addresses()


@pytest.mark.parametrize("dialled", ["0", "50100-50110"])
def test_behind_a_nat_one_port_is_dialled(dialled):
    settings = Settings({"jobmanager.rpc.port": dialled, "jobmanager.rpc.bind-port": "7000"})
    with pytest.raises(ConfigurationError, match=r"rpc.bind-port is '7000'.*single port"):
        addresses_of(settings)


def test_the_first_free_port_is_taken_and_when_none_is_the_option_is_named():
    with free_ports(2) as (first, second):
        endpoint = Endpoint(HOST, f"{first},{second}")
        with listen(endpoint, CONTROL_PORT) as one, listen(endpoint, CONTROL_PORT) as other:
            assert [sock.getsockname()[1] for sock in (one, other)] == [first, second]
            with pytest.raises(ExternalError, match=rf"{first},{second}.*set jobmanager.rpc.port"):
                listen(endpoint, CONTROL_PORT)


def test_an_address_that_is_another_machines_is_told_with_the_way_out():
    with pytest.raises(ExternalError, match=r"198\.51\.100\.1.*taskmanager\.bind-host"):
        listen(Endpoint("198.51.100.1"), DATA_PORT)


@pytest.mark.parametrize(
    ("told", "bound", "dialled"),
    [
        (Addresses(), HOST, HOST),
        (Addresses(taskmanager_host="tm.example"), "tm.example", "tm.example"),
        (Addresses(taskmanager_host="127.0.0.0/8"), HOST, HOST),
        (Addresses(taskmanager_bind_host="0.0.0.0"), "0.0.0.0", HOST),
        (
            Addresses(taskmanager_host="tm.example", taskmanager_bind_host="0.0.0.0"),
            "0.0.0.0",
            "tm.example",
        ),
    ],
)
def test_a_taskmanager_is_dialled_where_it_reaches_the_driver_unless_it_is_told(
    told, bound, dialled
):
    endpoint = data_endpoint(DRIVER, told)
    assert (endpoint.bind_host, endpoint.dialled_host) == (bound, dialled)


def test_what_the_host_knows_counts_less_than_the_configuration():
    assert data_endpoint(DRIVER, bind_host="127.0.0.5").bind_host == "127.0.0.5"
    told = Addresses(taskmanager_host="tm.example")
    assert data_endpoint(DRIVER, told, bind_host="127.0.0.5").bind_host == "tm.example"


@pytest.mark.parametrize("network", ["10.300.0.0/16", "tm.example/8"])
def test_what_is_no_network_is_refused(network):
    with pytest.raises(ConfigurationError, match=r"'taskmanager.host' is .*as 10\.1\.0\.0/16"):
        own_address_in(network)


def test_a_machine_without_an_address_in_the_network_says_so():
    with pytest.raises(
        ConfigurationError, match=r"198\.51\.100\.0/24.*has no address in that network"
    ):
        own_address_in("198.51.100.0/24")


def test_a_data_plane_listens_at_one_port_and_is_dialled_at_the_other():
    with free_ports(1) as (port,):
        plane = DataPlane(
            ResourceId("tm-1"), Endpoint(HOST, str(port), "nat", 4000), CREDENTIALS
        ).start()
        try:
            assert plane.port == 4000
            socket.create_connection((HOST, port)).close()
        finally:
            plane.close()


@pytest.mark.parametrize("dialled", [None, 4000])
def test_the_control_server_listens_where_it_is_told(dialled):
    async def opened(port):
        server = ControlServer(CREDENTIALS, None)
        found = await server.open(Endpoint(HOST, str(port), port=dialled))
        socket.create_connection((HOST, port)).close()
        await server.close()
        return found

    with free_ports(1) as (port,):
        assert asyncio.run(opened(port)) == (dialled or port)


def test_whoever_is_accepted_is_sent_each_message_at_once():
    with (
        listen(Endpoint("127.0.0.1"), CONTROL_PORT) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
