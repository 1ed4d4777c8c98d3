"""Real servers for tests, and those that are one program: Redis, Mosquitto, NATS. In a temporary directory, on a loopback port, ended with
the tests."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

from tests.tools.waiting import wait_until

PLACES = (os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")
START_S = 120
"""RabbitMQ takes ten seconds of CPU, and shares two cores with other tests."""


class ServerMissing(AssertionError):
    """There is no such server to test with. A failure, for a test that quietly does not run proves nothing."""


class Guard:
    """Holds real servers to the tests of `make test-servers`. `forbids`: set by pytest, for each test."""

    forbids = False


def only_with_the_mark() -> None:
    """Raises AssertionError: the test starts a real server, and has no mark."""
    assert not Guard.forbids, (
        "This test starts a real server. Mark it with pytest.mark.server, or name its fixture in "
        "tests/conftest.py: it belongs to `make test-servers`."
    )


def program(*names: str, target: str, places: tuple[str, ...] = PLACES) -> str:
    """The path of the first that is there. `target`: of make, which installs it."""
    only_with_the_mark()
    for name in names:
        if found := shutil.which(name, path=os.pathsep.join(places)):
            return found
    raise ServerMissing(f"{' or '.join(names)} is not in {places}. Run `make {target}`.")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def free_pair() -> int:
    """The first of two ports that follow each other, where no other process of tests looks: the system gives none of them away."""
    first = 20_000 + os.getpid() % 5_000 * 2
    for port in range(first, 32_000, 2):
        with contextlib.suppress(OSError), contextlib.ExitStack() as taken:
            for one in (port, port + 1):
                taken.enter_context(socket.create_server(("127.0.0.1", one)))
            return port
    raise AssertionError(f"no two ports from {first} on are free")


class SmallServer:
    """`port`: where it listens. `kill`, then `start`: it is there again, with what is on its disk."""

    def __init__(
        self,
        folder: str,
        command: Callable[["SmallServer"], list[str]],
        hello: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        """`hello`: what to say, and what is in the answer of one that is ready. By default it is when it listens."""
        self.folder = Path(folder)
        self.port = self.tls_port = free_port()
        self._command = command
        self._hello = hello
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = self.folder / "log"
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                self._command(self), stdout=file, stderr=file, cwd=self.folder
            )
        wait_until(
            lambda: self._answers() or self._ended(), f"it does not answer, see {log}", START_S
        )
        if self._ended():
            raise ServerMissing(log.read_text())

    def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """It may write what it has."""
        self._process.terminate()
        self._process.wait(30)

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def _answers(self) -> bool:
        say, expected = self._hello
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 1) as sock,
        ):
            sock.sendall(say)
            return not expected or expected in sock.recv(4096)
        return False


@contextlib.contextmanager
def running(
    name: str,
    command: Callable[[SmallServer], list[str]],
    hello: tuple[bytes, bytes] = (b"", b""),
) -> Generator[SmallServer]:
    with tempfile.TemporaryDirectory(prefix=f"penstock-{name}-") as folder:
        server = SmallServer(folder, command, hello)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def redis_server(*settings: str, has_tls: bool = False) -> Generator[SmallServer]:
    """It keeps every write that it has acknowledged, also when it is killed: only the process dies here, never the machine.

    `settings`: more of its command line. `has_tls`: it listens on its `tls_port` too.
    """
    tls_port = free_port()

    def command(server: SmallServer) -> list[str]:
        found = program("redis-server", "valkey-server", target="redis")
        return [
            found, "--port", str(server.port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "yes", "--appendfsync", "no", *settings,
            *(("--tls-port", str(tls_port)) if has_tls else ()),
        ]  # fmt: skip

    # It has read its file when it answers at all; -NOAUTH is an answer.
    with running("redis", command, (b"PING\r\n", b"PONG" if not settings else b"\r\n")) as server:
        server.tls_port = tls_port
        yield server


@contextlib.contextmanager
def mosquitto(*settings: str, keeps: bool = False) -> Generator[SmallServer]:
    """A broker of MQTT. `settings`: more lines of its configuration. `keeps`: it saves all messages and sessions when one changes."""

    def command(server: SmallServer) -> list[str]:
        config = server.folder / "mosquitto.conf"
        config.write_text(
            "\n".join([
                f"listener {server.port} 127.0.0.1", "user root", "max_queued_messages 0",
                f"persistence {str(keeps).lower()}", f"persistence_location {server.folder}/",
                "autosave_on_changes true", "autosave_interval 1",
                *([] if settings else ["allow_anonymous true", "max_inflight_messages 0"]),
                *(one.replace("{folder}", str(server.folder)) for one in settings), "",
            ])
        )  # fmt: skip
        return [program("mosquitto", target="mosquitto"), "-c", str(config)]

    with running("mosquitto", command) as server:
        yield server


@contextlib.contextmanager
def nats_server(*settings: str) -> Generator[SmallServer]:
    """A server of NATS with JetStream, whose streams are on its disk. `settings`: more lines of its configuration."""

    def command(server: SmallServer) -> list[str]:
        config = server.folder / "nats.conf"
        config.write_text(
            "\n".join([
                f"listen: 127.0.0.1:{server.port}", f'jetstream {{ store_dir: "{server.folder}" }}',
                *(one.replace("{folder}", str(server.folder)) for one in settings), "",
            ])
        )  # fmt: skip
        return [program("nats-server", target="nats"), "-c", str(config)]

    # It tells of JetStream when it has read its streams.
    with running("nats", command, (b"", b'"jetstream":true')) as server:
        yield server
