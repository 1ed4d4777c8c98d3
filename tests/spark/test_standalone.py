"""A standalone master with one worker, both processes of their own, on loopback."""

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


def started(says: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The process, and the first match of `says` in what it logs."""
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        [SPARK_CLASS, *arguments], stderr=subprocess.PIPE, text=True, env=environ
    )
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        found = re.search(says, line)
        if found is not None:
            threading.Thread(target=process.stderr.read).start()  # a full pipe would stop it
            return process, found[0]
    raise AssertionError("".join(seen))


@pytest.fixture(scope="module")
def standalone(spark_on, tmp_path_factory):
    deploy, host = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--webui-port", "0")
    folder = str(tmp_path_factory.mktemp("worker"))
    processes = []
    try:
        master, url = started(r"spark://\S+\d", f"{deploy}.master.Master", *host, "--port", "0")
        processes.append(master)
        size = ("--cores", str(CORES), "--memory", "1g", "--work-dir", folder)
        worker, _ = started("Successfully registered", f"{deploy}.worker.Worker", *host, *size, url)
        processes.append(worker)
        yield spark_on(url)
    finally:
        spark_on("local[4]")  # leave the master before it goes
        for process in reversed(processes):
            process.terminate()
            process.wait()


def test_word_count_on_a_standalone_master(standalone):
    counts = word_count(environment(2))
    with counts.execute_and_collect("on standalone") as updates:
        assert last_counts(updates) == expected_counts()


def test_more_taskmanagers_than_cores_are_refused_at_once(standalone):
    env = environment(CORES + 1)
    env.from_collection(LINES).rebalance().map(str).print()
    with pytest.raises(NoResourceAvailable, match=f"{CORES + 1}.*{CORES}"):
        env.execute("too wide")
