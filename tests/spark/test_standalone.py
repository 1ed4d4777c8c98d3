"""A standalone master with one worker, both processes of their own, on loopback."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
import pytest

from penstock.model.errors import NoResourceAvailable
from tests.spark.programs import LINES, environment, expected_counts, last_counts, word_count

pytestmark = pytest.mark.spark
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
CORES = 3


class Daemon:
    """One of Spark's own processes; `found`: the first match of `says` in what it logs."""

    def __init__(self, says: str, *arguments: str) -> None:
        environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            [SPARK_CLASS, *arguments], stderr=subprocess.PIPE, text=True, env=environ
        )
        self._log = self._process.stderr
        matches = (re.search(says, line) for line in self._log)
        self.found = next(match[0] for match in matches if match is not None)
        self._reader = threading.Thread(target=self._log.read)  # a full pipe would stop it
        self._reader.start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        self._log.close()


@pytest.fixture(scope="module")
def standalone(spark_on, tmp_path_factory):
    deploy, host = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--webui-port", "0")
    folder = str(tmp_path_factory.mktemp("worker"))
    with contextlib.ExitStack() as stack:
        master = Daemon(r"spark://\S+\d", f"{deploy}.master.Master", *host, "--port", "0")
        stack.callback(master.stop)
        size = ("--cores", str(CORES), "--memory", "1g", "--work-dir", folder)
        worker = Daemon("registered with", f"{deploy}.worker.Worker", *host, *size, master.found)
        stack.callback(worker.stop)
        stack.callback(spark_on, "local[4]")  # first: leave the master before it goes
        yield spark_on(master.found)


def test_word_count_on_a_standalone_master(standalone):
    counts = word_count(environment(2))
    with counts.execute_and_collect("on standalone") as updates:
        assert last_counts(updates) == expected_counts()


def test_more_taskmanagers_than_cores_are_refused_at_once(standalone):
    env = environment(CORES + 1)
    env.from_collection(LINES).rebalance().map(str).print()
    with pytest.raises(NoResourceAvailable, match=f"{CORES + 1}.*{CORES}"):
        env.execute("too wide")
