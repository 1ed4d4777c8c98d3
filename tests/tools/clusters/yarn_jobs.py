"""A keyed job on YARN, what it is started with, and what it has written."""

import sys
from pathlib import Path

import pyspark
import pytest

from tests.tools.clusters.hadoop import hadoop
from tests.tools.output_files import committed_lines
from tests.tools.waiting import wait_until

LIMIT_S = 180
JARS = Path(pyspark.__file__).parent / "jars"
SETTINGS = {
    "spark.yarn.jars": f"local:{JARS}/*",  # Else each start uploads them.
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "768m",
    "spark.driver.memory": "512m",
    "spark.driver.memoryOverhead": "768m",
    "spark.pyspark.python": sys.executable,
}
# A keyed count; each result ends with the container that it was made in. Where a file is named, the
# first task that comes to number 5,000 makes it, and kills the first Java program above it, which is
# the executor, or takes more and more memory; and waits for its own end, or for another file.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from penstock.common import Encoder
from penstock.connectors.file_system import FileSink
from penstock.datastream import StreamExecutionEnvironment

out, *sprung = sys.argv[1:]

def above(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def trap(pair):
    if pair[2] == 5000 and sprung:
        try:
            os.close(os.open(sprung[0], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return pair
        pid = os.getpid() if sprung[1:] == ["kills"] else 0
        while pid and Path(f"/proc/{pid}/comm").read_text() != "java\\n":
            pid = above(pid)
        if pid:
            os.kill(pid, signal.SIGKILL)
        hoard = []
        while not (sprung[2:] and Path(sprung[2]).exists()):
            if sprung[1:] == ["hoards"]:
                hoard.append(b"x" * (32 << 20))
            time.sleep(0.05)
        return pair
    return pair

def paced(pair):
    if sprung:
        time.sleep(0.0005)  # Checkpoints are completed before the trap.
    return pair

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
env.enable_checkpointing(500)
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder()).build()
pairs = env.from_collection([(number % 97, 1, number) for number in range(10_000)])
keyed = pairs.map(paced).rebalance().map(trap).key_by(lambda pair: pair[0])
counts = keyed.reduce(lambda a, b: (a[0], a[1] + b[1]))
texts = counts.map(lambda pair: f"{pair[0]} {pair[1]} {os.environ.get('CONTAINER_ID')}")
texts.sink_to(sink)
env.execute("counts")
"""
EXPECTED = sorted((number % 97, number // 97 + 1) for number in range(10_000))


@pytest.fixture(scope="module")
def yarn():
    with hadoop() as running:
        yield running


def order(folder, *more, **settings):
    program = folder / "counts.py"
    program.write_text(PROGRAM)
    conf = [f"--conf={key}={value}" for key, value in (SETTINGS | settings).items()]
    conf.append(f"-Dexecution.checkpointing.dir=file://{folder}/checkpoints")
    penstock = (str(Path(sys.executable).with_name("penstock")), "run", "--master", "yarn", *conf)
    return (*penstock, str(program), "--", str(folder / "out"), *more)


def run(yarn, folder, *more, **settings):
    command = order(folder, *more, **settings)
    return yarn.sandbox.run(*command, env=yarn.environment, cwd=folder)


def meanwhile(yarn, folder, what, command):
    """Do `what` when a task has come to the trap. Returns: how the command ends, and what it said."""
    with (folder / "said").open("wb") as log:
        driver = yarn.sandbox.start(
            *command, env=yarn.environment, cwd=folder, stdout=log, stderr=log
        )
    try:
        wait_until((folder / "sprung").exists, "no task comes to the trap", LIMIT_S)
        what()
        return driver.wait(LIMIT_S), (folder / "said").read_text()
    finally:
        driver.kill()


def submission(folder, *more, **settings):
    """The command that has YARN start the driver, too."""
    program = folder / "counts.py"
    program.write_text(PROGRAM)
    own = {"spark.penstock.execution.checkpointing.dir": f"file://{folder}/checkpoints"}
    conf = [f"--conf={key}={value}" for key, value in (SETTINGS | own | settings).items()]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    cluster = ("--master", "yarn", "--deploy-mode", "cluster", *conf)
    return (str(submit), *cluster, str(program), str(folder / "out"), *more)


def lines_of(folder):
    """(key, count, container) of each line that is committed."""
    lines = [line.split() for line in committed_lines(folder / "out")]
    return [(int(key), int(count), container) for key, count, container in lines]


def counted(yarn, folder, *more, **settings):
    """Returns: `lines_of`, and what the driver said."""
    done = run(yarn, folder, *more, **settings)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    return lines_of(folder), done.stderr
