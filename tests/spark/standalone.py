"""A standalone master with workers, each a process of its own."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

import pyspark

from audit.jvm import SHORT_LIVED_JVM

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"


class Daemon:
    """One of Spark's own processes; `found`: the first match of `says` in what it logs."""

    def __init__(self, says: str, host: str, *arguments: str, inside: Sequence[str] = ()) -> None:
        """`inside`: the command that starts it elsewhere."""
        environ = {
            **os.environ,
            "SPARK_LOCAL_IP": host,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_JVM,
        }
        places = ("--host", host, "--webui-port", "0")
        self._process = subprocess.Popen(
            [*inside, SPARK_CLASS, *arguments[:1], *places, *arguments[1:]],
            stderr=subprocess.PIPE, text=True, env=environ,
        )  # fmt: skip
        self._log = self._process.stderr
        self.found = self._wait_for(says)
        self._reader = threading.Thread(target=self._log.read)  # a full pipe would stop it
        self._reader.start()

    def _wait_for(self, says: str) -> str:
        said = []
        for line in self._log:
            said.append(line)
            if (match := re.search(says, line)) is not None:
                return match[0]
        self._process.wait()
        self._log.close()
        raise AssertionError(
            f"{self._process.args} ended before it said {says!r}:\n{''.join(said)}"
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        self._log.close()


@contextlib.contextmanager
def standalone(
    folder: Path,
    hosts: Sequence[str],
    cores: int,
    *,
    master: str = "127.0.0.1",
    inside: Sequence[Sequence[str]] = ((),),
) -> Generator[str, None, None]:
    """URL of a master with a worker for each of `hosts`. `inside`: for each, as for Daemon."""
    with contextlib.ExitStack() as stack:
        leader = Daemon(r"spark://\S+\d", master, f"{DEPLOY}.master.Master", "--port", "0")
        stack.callback(leader.stop)
        size = ("--cores", str(cores), "--memory", "1g")
        for place, host in enumerate(hosts):
            work = ("--work-dir", str(folder / f"worker-{place}"), leader.found)
            command = inside[place % len(inside)]
            worker = Daemon(
                "registered with", host, f"{DEPLOY}.worker.Worker", *size, *work, inside=command
            )
            stack.callback(worker.stop)
        yield leader.found
