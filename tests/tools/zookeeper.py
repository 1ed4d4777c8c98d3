"""A ZooKeeper server of the tests' own: in a temporary directory, on a loopback port, ended with them."""

import contextlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

from tests.tools.small_servers import ServerMissing, free_port, only_with_the_mark
from tests.tools.waiting import wait_until

DEBIAN = "/usr/share/java/zookeeper.jar"
START_S = 30.0


def _classpath() -> str:
    only_with_the_mark()
    found = os.environ.get("ZOOKEEPER_CLASSPATH") or (DEBIAN if Path(DEBIAN).exists() else None)
    if found is None:
        raise ServerMissing(
            f"{DEBIAN} is not there and ZOOKEEPER_CLASSPATH is not set. Run `make zookeeper`, or install it: "
            "`apt-get install libzookeeper-java` on Debian."
        )
    return found


class ZookeeperServer:
    """`quorum`: where it listens. `stop` and `start` again keep its data."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._port = free_port()
        self.quorum = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = self._folder / "zoo.cfg"
        config.write_text(
            f"tickTime=500\ndataDir={self._folder}/data\nclientPort={self._port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        log = (self._folder / "log").open("ab")
        with log:
            # Without waiting for the disk, which other tests keep busy: only the process dies here, never the machine.
            options = ["-Xmx128m", "-Dzookeeper.forceSync=no"]
            command = ["java", *options, "-cp", _classpath(), main, str(config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: self._answers() or self._ended(), "it does not answer", START_S)
        except AssertionError as error:
            raise ServerMissing((self._folder / "log").read_text()) from error
        if self._ended():
            raise ServerMissing((self._folder / "log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def _answers(self) -> bool:
        """Whether it serves: it listens before that, and says so."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port), 1) as sock,
        ):
            sock.sendall(b"srvr")
            return b"Zookeeper version" in b"".join(iter(lambda: sock.recv(4096), b""))
        return False


@contextlib.contextmanager
def zookeeper_server() -> Generator[ZookeeperServer]:
    """Running."""
    with tempfile.TemporaryDirectory(prefix="penstock-zk-") as folder:
        server = ZookeeperServer(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
