"""Jobs on YARN itself, with HDFS beside it: each TaskManager in a container of YARN's."""

import re
import sys
from pathlib import Path

import pyspark
import pytest

from tests.tools.clusters.hadoop import hadoop
from tests.tools.output_files import committed_lines
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark
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


def counted(yarn, folder, *more):
    """Returns: `lines_of`, and what the driver said."""
    done = run(yarn, folder, *more)
    assert done.returncode == 0, done.stderr
    return lines_of(folder), done.stderr


def test_each_taskmanager_is_in_a_container(yarn, tmp_path):
    lines, _ = counted(yarn, tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    containers = {container for _, _, container in lines}
    assert len(containers) == 2
    assert all(one.startswith("container_") for one in containers)


def test_a_killed_executor_costs_no_row(yarn, tmp_path):
    """YARN gives another container in its place."""
    lines, said = counted(yarn, tmp_path, str(tmp_path / "sprung"), "kills")
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert "lost TaskManager" in said
    assert "restarted subtasks" in said


def test_a_container_that_is_killed_for_memory_is_reported_in_yarns_words(yarn, tmp_path):
    lines, said = counted(yarn, tmp_path, str(tmp_path / "sprung"), "hoards")
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    (lost,) = [line for line in said.splitlines() if "lost TaskManager" in line]
    assert re.search(r"executor \d has ended: .* \d.\d GB of 1.3 GB physical memory used", lost)
    assert "Consider boosting spark.executor.memoryOverhead" in lost


def test_more_memory_than_yarn_has_is_said_in_its_words_without_frames(yarn, tmp_path):
    done = run(yarn, tmp_path, **{"spark.executor.memory": "50g"})
    assert done.returncode == 1
    _, why, log = done.stderr.splitlines()
    assert why.startswith("penstock: Spark did not start: Required executor memory (51200 MB)")
    Path(log.removeprefix("Its log: ")).unlink()


def test_in_cluster_mode_the_driver_is_in_a_container_too(yarn, tmp_path):
    done = yarn.sandbox.run(*submission(tmp_path), env=yarn.environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert len({container for _, _, container in lines}) == 2
    # The first container of an application is its master's.
    assert not [container for _, _, container in lines if container.endswith("_000001")]


def test_a_killed_driver_is_started_again_and_takes_its_job_over(yarn, tmp_path):
    settings = {
        "spark.yarn.maxAppAttempts": "2",
        "spark.penstock.high-availability.type": "FILE",
        "spark.penstock.high-availability.storageDir": str(tmp_path / "ha"),
        "spark.penstock.high-availability.lease-duration": "4 s",
        "spark.penstock.high-availability.renew-interval": "500 ms",
    }
    order = submission(tmp_path, str(tmp_path / "sprung"), **settings)
    with (tmp_path / "submit.log").open("wb") as log:
        submit = yarn.sandbox.start(
            *order, env=yarn.environment, cwd=tmp_path, stdout=log, stderr=log
        )
    wait_until((tmp_path / "sprung").exists, "no task comes to the trap", LIMIT_S)
    yarn.sandbox.run("pkill", "-KILL", "-f", "org.apache.spark.deploy.yarn.ApplicationMaster ")
    assert submit.wait(LIMIT_S) == 0, (tmp_path / "submit.log").read_text()
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert {container.split("_")[-2] for _, _, container in lines} >= {"02"}


def test_a_nodemanager_that_is_killed_and_started_again_costs_no_row(yarn, tmp_path):
    """It keeps nothing of its containers: they are killed, their folders removed, and others come."""
    command = order(tmp_path, str(tmp_path / "sprung"))
    code, said = meanwhile(yarn, tmp_path, lambda: yarn.restart("nodemanager"), command)
    assert code == 0, said
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert {container.split("_")[-2] for _, _, container in lines} >= {"02"}


def test_a_resourcemanager_that_is_started_again_with_its_state_costs_nothing(yarn, tmp_path):
    over = tmp_path / "over"

    def restart():
        yarn.restart("resourcemanager")
        wait_until(yarn.has_node_again, "the node does not come back", LIMIT_S)
        over.touch()

    command = order(tmp_path, str(tmp_path / "sprung"), "waits", str(over))
    code, said = meanwhile(yarn, tmp_path, restart, command)
    assert code == 0, said
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert len({container for _, _, container in lines}) == 2
    assert "lost TaskManager" not in said


def test_a_resourcemanager_that_has_forgotten_the_application_ends_the_job_which_can_go_on(
    yarn, tmp_path
):
    forgets = "-Dyarn.resourcemanager.recovery.enabled=false"
    command = order(tmp_path, str(tmp_path / "sprung"))
    code, said = meanwhile(
        yarn, tmp_path, lambda: yarn.restart("resourcemanager", forgets), command
    )
    assert code == 1
    assert "no TaskManager can be started any more: the SparkSession was stopped" in said
    assert "a ResourceManager without recovery was started again" in said
    (kept,) = re.findall(r"its newest checkpoint is kept: (\S+)\. Begin with it by", said)
    assert (Path(kept.removeprefix("file://")) / "_metadata").exists()


def test_in_safe_mode_the_job_is_refused_in_one_sentence(yarn, tmp_path):
    admin = "org.apache.hadoop.hdfs.tools.DFSAdmin"
    yarn.tool(admin, "-safemode", "enter")
    try:
        done = run(yarn, tmp_path)
    finally:
        yarn.tool(admin, "-safemode", "leave")
    assert done.returncode == 1
    _, why, _, log = done.stderr.splitlines()
    assert why.startswith("penstock: Spark did not start: Cannot create directory ")
    assert why.endswith("Name node is in safe mode.")
    Path(log.removeprefix("Its log: ")).unlink()
