"""A Spark Connect server, in a sandbox; and programs that are its clients."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import pyspark

from tests.tools.clusters.sandbox import Sandbox
from tests.tools.small_servers import only_with_the_mark
from tests.tools.waiting import wait_until

HOME = Path(pyspark.__file__).parent
START_S = 180.0
URL = "sc://localhost:15002"
STARTED = "Spark Connect server started at"
# PySpark says that it does not support pandas 3 yet.
QUIET = {"PYTHONWARNINGS": "ignore::FutureWarning"}


class ConnectServer:
    """`folder`: of its log, and of what executors leave."""

    def __init__(self, place: Sandbox, folder: Path, environment: Mapping[str, str]) -> None:
        only_with_the_mark()
        self.sandbox = place
        self.folder = folder
        self.environment = {**environment, **QUIET}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text()

    def start(self, *command: str) -> None:
        """Until it answers. `command`: without what is to be so in tests."""
        own = {
            "SPARK_HOME": str(HOME),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOG_DIR": str(self.folder / "logs"),
            "SPARK_PID_DIR": str(self.folder),
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self.folder / "server.log").open("ab") as log:
            self._process = self.sandbox.start(
                *command,
                "--conf=spark.ui.enabled=false",
                env=self.environment | own,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        wait_until(
            lambda: STARTED in self.log or self._process.poll() is not None,
            f"no Spark Connect server: {self.folder}",
            START_S,
        )
        assert self._process.poll() is None, self.log

    def run(self, *command: str, folder: Path, **environment: str):
        """Run a client there."""
        return self.sandbox.run(*_in(folder, command), env=self.environment | environment)

    def begin(self, *command: str, folder: Path) -> subprocess.Popen[bytes]:
        """Start a client, whose words go to the file `said` of the folder."""
        with (folder / "said").open("wb") as said:
            return self.sandbox.start(
                *_in(folder, command), env=self.environment, stdout=said, stderr=said
            )

    def kill(self) -> None:
        """As `kill -9`, with its executors."""
        self.sandbox.run("pkill", "-KILL", "-f", "SparkConnectServer|CoarseGrainedExecutorBackend")
        if self._process is not None:
            self._process.wait()


def _in(folder: Path, command: Sequence[str]) -> tuple[str, ...]:
    """With this working directory, which a sandbox does not keep."""
    return ("env", "--chdir", str(folder), *command)


@contextlib.contextmanager
def connect_server(
    place: Sandbox, folder: Path, *command: str, environment: Mapping[str, str] = os.environ
) -> Generator[ConnectServer]:
    running = ConnectServer(place, folder, environment)
    try:
        running.start(*command)
        yield running
    finally:
        running.kill()
