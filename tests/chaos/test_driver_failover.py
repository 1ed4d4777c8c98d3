"""A driver is killed or stopped in mid-job; another one with the same cluster-id runs the job to its end, once.

Real processes and embedded Spark. Nothing is waited for by the clock but leases.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.common import Encoder
from penstock.connectors.file_system import FileSink
from penstock.engine.hosting.jobmanager.ha.store import FileJobStore
from penstock.engine.hosting.taskmanager.child import PROCESS_NAME
from penstock.engine.model.errors import JobCancelledError, JobExecutionError
from tests.chaos.test_killed_taskmanager import Trap
from tests.spark.processes import command_of
from tests.spark.programs import environment
from tests.tools.output_files import committed_lines, files_below
from tests.tools.zookeeper import zookeeper_server

pytestmark = [pytest.mark.spark, pytest.mark.chaos]
ROOT = str(Path(penstock.__file__).parents[1])
LIMIT_S = 90
VALUES = 2000
CLUSTER = "nightly"
SETTINGS = {
    "high-availability.type": "FILE",
    "high-availability.cluster-id": CLUSTER,
    "penstock.high-availability.lease-duration": "4 s",
    "penstock.high-availability.renew-interval": "500 ms",
}
# A module of the user's own, which the committer in the driver needs: `recover` must bring it along.
BUCKETS = """
from penstock.connectors.file_system import BucketAssigner

class Even(BucketAssigner):
    def bucket_at(self, epoch_s):
        return "only"
"""
# The first task that comes to value 777 tells so, and goes on when it is told to; later attempts pass.
PROGRAM = f"""
import json, os, sys
from pathlib import Path
from buckets import Even
from penstock.common import Configuration, Encoder
from penstock.datastream import StreamExecutionEnvironment
from penstock.connectors.file_system import FileSink

folder = Path(sys.argv[1])

def trap(value):
    if value == 777:
        try:
            os.close(os.open(folder / "sprung", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return value
        (folder / "reached").write_text("reached")
        (folder / "go").read_text()
        if (folder / "report").exists():
            (folder / "report").write_text("passed")
    return value

configuration = Configuration()
configuration.set_string("high-availability.storageDir", str(folder / "ha"))
for key, value in json.loads((folder / "settings").read_text()).items():
    configuration.set_string(key, value)
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder())
numbers = env.from_collection(list(range({VALUES}))).rebalance().map(trap)
numbers.key_by(lambda v: v % 7).map(str).sink_to(sink.with_bucket_assigner(Even()).build())
print("result", env.execute("numbers").get_job_id(), flush=True)
"""
RECOVER = "import sys; from penstock.ops.cli.cli import main; sys.exit(main(sys.argv[1:]))"


class Driver:
    """A driver process with all that it starts, in a directory of its own."""

    def __init__(self, folder: Path, *command: str) -> None:
        folder.mkdir()
        self._lines: list[str] = []
        self._heard = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": ROOT},
            start_new_session=True,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stderr:
            with self._heard:
                self._lines.append(line)
                self._heard.notify()

    @property
    def said(self) -> str:
        with self._heard:
            return "".join(self._lines)

    def hears(self, text: str) -> bool:
        """Wait for a line on its stderr."""
        with self._heard:
            return self._heard.wait_for(lambda: any(text in line for line in self._lines), LIMIT_S)

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        return self.process.wait(LIMIT_S)

    def result(self) -> str:
        """What it wrote to stdout, once it has ended."""
        return self.process.stdout.read()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> None:
        family = self.family() if self.process.poll() is None else []
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.kill()
        self.process.wait()
        self._listener.join()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def drivers(tmp_path):
    """Starts a driver: `drivers("name", *command)`; none of them, nor anything of theirs, outlives the test."""
    (tmp_path / "buckets.py").write_text(BUCKETS)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "settings").write_text(json.dumps(SETTINGS))
    for name in ("reached", "go"):
        os.mkfifo(tmp_path / name)
    started: list[Driver] = []

    def start(name: str, *command: str) -> Driver:
        program = (str(tmp_path / "program.py"), str(tmp_path))
        started.append(Driver(tmp_path / name, *(command or program)))
        return started[-1]

    try:
        yield start
    finally:
        for driver in started:
            driver.end()


@pytest.fixture
def zookeeper():
    with zookeeper_server() as running:
        yield running


def store_of(folder: Path) -> FileJobStore:
    return FileJobStore(folder / "ha" / CLUSTER)


def check_output(folder: Path) -> None:
    """Each value once; nothing in progress."""
    values = [int(line) for line in committed_lines(folder / "out")]
    assert sorted(values) == list(range(VALUES))


def check_result(folder: Path) -> None:
    """And nothing is left in the store."""
    check_output(folder)
    assert store_of(folder).job_keys() == []


@pytest.mark.long  # with state: test_checkpoints
def test_a_killed_drivers_job_is_run_to_its_end_by_the_same_program(drivers, tmp_path):
    first = drivers("first")
    (tmp_path / "reached").read_text()
    (key,) = store_of(tmp_path).job_keys()
    lease = store_of(tmp_path).lease(store_of(tmp_path).find(key))
    family = first.family()
    first.send(signal.SIGKILL)
    first.wait()
    second = drivers("second")
    assert second.wait() == 0, second.said
    assert second.result() == f"result {lease.job_id}\n"
    assert f"of driver {lease.owner} is taken over" in second.said
    assert "begins at the start of its sources" in second.said
    check_result(tmp_path)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


@pytest.mark.long  # the audit has a standby
def test_a_killed_drivers_job_is_run_to_its_end_without_its_program(drivers, tmp_path):
    first = drivers("first")
    (tmp_path / "reached").read_text()
    first.send(signal.SIGKILL)
    first.wait()
    (tmp_path / "program.py").unlink()
    (tmp_path / "buckets.py").unlink()
    recover = ("recover", "--cluster-id", CLUSTER, "--storage-dir", str(tmp_path / "ha"))
    second = drivers("second", "-c", RECOVER, *recover)
    assert second.wait() == 0, second.said
    assert "job 'numbers'" in second.said
    check_result(tmp_path)
    third = drivers("third", "-c", RECOVER, *recover)
    assert third.wait() == 1
    assert "no job of 'nightly'" in third.said


@pytest.mark.long  # with state: test_checkpoints
def test_a_stopped_driver_that_goes_on_is_fenced_and_commits_nothing(drivers, tmp_path):
    """Its own tasks finish while it is stopped: all that keeps it from committing is the lease."""
    os.mkfifo(tmp_path / "report")
    first = drivers("first")
    (tmp_path / "reached").read_text()
    taskmanagers = [p for p in first.family() if PROCESS_NAME in command_of(p)]
    assert len(taskmanagers) == 2
    first.send(signal.SIGSTOP)
    (tmp_path / "go").write_text("go")
    assert (tmp_path / "report").read_text() == "passed"
    _, alive = psutil.wait_procs(taskmanagers, timeout=LIMIT_S)
    assert not alive, "they act for a driver that leads no more"
    second = drivers("second")
    assert second.wait() == 0, second.said
    check_result(tmp_path)
    first.send(signal.SIGCONT)
    assert first.wait() == 1
    assert "JobSuspendedError" in first.said
    assert "has taken it over" in first.said
    assert not first.result()
    check_result(tmp_path)


@pytest.mark.long
def test_a_driver_whose_jvm_is_killed_leaves_its_job_to_the_next_one(drivers, tmp_path):
    """Had the job failed, its entry would be gone, and the next driver would begin anew."""
    first = drivers("first")
    (tmp_path / "reached").read_text()
    (jvm,) = [child for child in first.family() if child.name() == "java"]
    jvm.kill()
    assert first.wait() == 1
    assert "JobSuspendedError" in first.said
    assert "the SparkSession was stopped" in first.said
    assert len(store_of(tmp_path).job_keys()) == 1
    second = drivers("second")
    assert second.wait() == 0, second.said
    assert "is taken over" in second.said
    check_result(tmp_path)


@pytest.mark.long  # the audit has a standby, too
def test_a_standby_waits_and_takes_over_when_the_driver_is_killed(drivers, tmp_path):
    first = drivers("first")
    (tmp_path / "reached").read_text()
    second = drivers("second")
    assert second.hears("waiting for its end"), second.said
    first.send(signal.SIGKILL)
    assert second.wait() == 0, second.said
    assert "is taken over" in second.said
    assert "lost TaskManager" not in first.said, "a driver's beats keep its TaskManagers"
    check_result(tmp_path)


def test_of_two_standbys_on_zookeeper_one_takes_over_and_both_get_the_result(
    drivers, tmp_path, zookeeper
):
    settings = SETTINGS | {
        "high-availability.type": "ZOOKEEPER",
        "high-availability.zookeeper.quorum": zookeeper.quorum,
    }
    (tmp_path / "settings").write_text(json.dumps(settings))
    first = drivers("first")
    (tmp_path / "reached").read_text()
    standbys = [drivers("second"), drivers("third")]
    for one in standbys:
        assert one.hears("waiting for its end"), one.said
    first.send(signal.SIGKILL)
    for one in standbys:
        assert one.wait() == 0, one.said
    assert sum("is taken over" in one.said for one in standbys) == 1
    (result,) = {one.result() for one in standbys}
    assert result.startswith("result ")
    check_output(tmp_path)


def test_a_stopped_driver_whose_job_is_in_a_bucket_is_fenced_and_one_of_two_standbys_takes_over(
    drivers, tmp_path, object_store
):
    settings = SETTINGS | {"high-availability.storageDir": object_store.uri("ha")}
    (tmp_path / "settings").write_text(json.dumps(settings))
    first = drivers("first")
    (tmp_path / "reached").read_text()
    standbys = [drivers("second"), drivers("third")]
    for one in standbys:
        assert one.hears("waiting for its end"), one.said
    first.send(signal.SIGSTOP)
    for one in standbys:
        assert one.wait() == 0, one.said
    assert sum("is taken over" in one.said for one in standbys) == 1
    (result,) = {one.result() for one in standbys}
    assert result.startswith("result ")
    check_output(tmp_path)
    first.send(signal.SIGCONT)
    assert first.wait() == 1
    assert "JobSuspendedError" in first.said
    assert "has taken it over" in first.said
    assert not first.result()
    check_output(tmp_path)
    (left,) = object_store.objects()
    assert left.startswith(f"ha/{CLUSTER}/jobs/"), "how it has ended, for those who waited"
    assert not (tmp_path / "ha").exists()


# ------------------------------------------------------------------ how a job ends


def with_store(folder: Path, function):
    env = environment(2, **SETTINGS, **{"high-availability.storageDir": str(folder / "ha")})
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    env.from_collection(list(range(VALUES))).map(function).map(str).sink_to(sink)
    return env


def test_a_finished_job_leaves_no_entry(spark, tmp_path):
    with_store(tmp_path, lambda v: v).execute("finishes")
    check_result(tmp_path)


@pytest.mark.long  # as a cancelled one
def test_a_failed_job_leaves_no_entry(spark, tmp_path):
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        with_store(tmp_path, lambda v: v // (v - 777)).execute("fails")
    assert store_of(tmp_path).job_keys() == []
    assert not files_below(tmp_path / "out")


def test_a_cancelled_job_leaves_no_entry(spark, tmp_path):
    trap = Trap(tmp_path, lambda v: v == 777)
    client = with_store(tmp_path, trap).execute_async("is cancelled")
    trap.wait()
    assert len(store_of(tmp_path).job_keys()) == 1
    client.cancel()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()
    assert store_of(tmp_path).job_keys() == []
    assert not files_below(tmp_path / "out")
