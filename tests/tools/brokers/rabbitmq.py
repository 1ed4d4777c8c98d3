"""A RabbitMQ server of the tests' own, with TLS: in a temporary directory, on loopback ports, ended with them."""

import contextlib
import glob
import os
import socket
import subprocess

from tests.tools.small_servers import free_pair, program, running

PLACES = ("/usr/lib/rabbitmq/bin", "/usr/lib/rabbitmq/lib/*/sbin", "/opt/homebrew/sbin")
READY = b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"
"""A client's first bytes, and how connection.start begins."""


def _server():
    """Not the one on PATH: on Debian it changes the user, and forgets the environment."""
    for place in PLACES:
        for found in sorted(glob.glob(f"{place}/rabbitmq-server"), reverse=True):
            return found
    return program("rabbitmq-server", target="rabbitmq")


def _ports():
    """The server's, and those by which Erlang's nodes find each other: each the first of two."""
    first = free_pair()
    with contextlib.ExitStack() as taken:
        for one in (first, first + 1):
            taken.enter_context(socket.create_server(("127.0.0.1", one)))
        return first, free_pair()


@contextlib.contextmanager
def _names(port):
    """Erlang's server of names, of our own: the node would start one that stays."""
    names = subprocess.Popen([
        program("epmd", target="rabbitmq"), "-port", str(port), "-address", "127.0.0.1",
    ])  # fmt: skip
    try:
        yield
    finally:
        names.kill()
        names.wait()


@contextlib.contextmanager
def rabbitmq_server(tls=None):
    """`tls`: a `tls_cases.Tls`; then it listens on its `tls_port` too, where clients have to show a certificate.

    The user guest has the password guest.
    """
    port, names = _ports()

    def command(server):
        server.port, server.tls_port = port, port + 1
        config = server.folder / "rabbitmq.conf"
        lines = [f"listeners.tcp.1 = 127.0.0.1:{port}", "log.console = true", "log.file = false"]
        if tls is not None:
            lines += [
                f"listeners.ssl.1 = 127.0.0.1:{port + 1}",
                f"ssl_options.cacertfile = {tls.ca}",
                f"ssl_options.certfile = {tls.server[0]}",
                f"ssl_options.keyfile = {tls.server[1]}",
                "ssl_options.verify = verify_peer",
                "ssl_options.fail_if_no_peer_cert = true",
            ]
        config.write_text("\n".join([*lines, ""]))
        (server.folder / "plugins").write_text("[].")
        variables = {
            "HOME": str(server.folder),
            "ERL_EPMD_PORT": str(names),
            "RUNNING_UNDER_SYSTEMD": "yes",  # the script becomes the server
            "RABBITMQ_NODENAME": f"tests{os.getpid()}@localhost",
            "RABBITMQ_DIST_PORT": str(names + 1),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(server.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(server.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(server.folder),
            "RABBITMQ_PID_FILE": str(server.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false "
            "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        return ["env", *(f"{name}={value}" for name, value in variables.items()), _server()]

    with _names(names), running("rabbitmq", command, READY) as server:
        yield server
