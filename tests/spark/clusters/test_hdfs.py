"""Checkpoints, sources and sinks on HDFS itself, without Hadoop's own client. Programs run beside the NameNode, in its sandbox."""

import sys
from pathlib import Path

import pytest

from tests.tools.clusters.hadoop import FILES, OF_FILES, hadoop
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark
LIMIT_S = 180
ROOT = Path(__file__).parents[3]
FIRST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pyarrow import fs
from penstock.engine.hosting.os.file_systems import *
FILES = {FILES!r}

def write(system, path, text):
    with system.open_output_stream(path, compression=None) as file:
        file.write(text.encode())

def said(call):
    try:
        return call()
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
"""
# A keyed count of the numbers in files. From number 500 on it goes slowly until the file `go` is there.
COUNTS = """
import sys, time
from pathlib import Path
from penstock.common import Encoder, WatermarkStrategy
from penstock.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream import StreamExecutionEnvironment

numbers, out, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])

def slow(number):
    if number >= 500 and not (folder / "go").exists():
        (folder / "slow").touch()
        time.sleep(0.02)
    return number

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
env.enable_checkpointing(300)
source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), numbers).build()
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder()).build()
lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
pairs = lines.map(int).map(slow).map(lambda number: (number % 97, 1)).key_by(lambda pair: pair[0])
counts = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]))
counts.map(lambda pair: f"{pair[0]} {pair[1]}").sink_to(sink)
job = env.execute_async("counts")
if sys.argv[4:]:
    while not (folder / "slow").exists():
        time.sleep(0.01)
    print(job.stop_with_savepoint(False, sys.argv[4]).result())
else:
    job.get_job_execution_result().result()
"""
NUMBERS = """
system, _ = arrow_system(FILES)
for half in range(2):
    write(system, f"/numbers/{half}", "".join(f"{2 * one + half}\\n" for one in range(1000)))
"""
COMMITTED = """
system, path = arrow_system(f"{FILES}{sys.argv[1]}")
for info in system.get_file_info(fs.FileSelector(path, recursive=True)):
    if info.is_file:
        assert not info.base_name.startswith("."), info
        with system.open_input_stream(info.path, compression=None) as file:
            print(file.read().decode(), end="")
"""
FEW_TRIES = "?dfs.client.failover.max.attempts=2"
EXPECTED = sorted((number % 97, number // 97 + 1) for number in range(2000))


@pytest.fixture(scope="module")
def hdfs():
    with hadoop(OF_FILES) as running:
        printed(running, NUMBERS)
        yield running


def printed(hdfs, program, *arguments):
    """What the program prints, which runs beside the NameNode."""
    order = (sys.executable, "-c", FIRST + program, *arguments)
    done = hdfs.sandbox.run(*order, env=hdfs.environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def order_of(folder, *more, **settings):
    """The command that runs a job with all its files on HDFS, in a folder of this name."""
    program, place = folder / "program.py", f"{FILES}/{folder.name}"
    program.write_text(COUNTS)
    settings["execution.checkpointing.dir"] = f"{place}/checkpoints{FEW_TRIES}"
    arguments = (f"{FILES}/numbers{FEW_TRIES}", f"{place}/out{FEW_TRIES}", str(folder), *more)
    return (*run_order(program, settings), *arguments)


def run_order(program, settings):
    penstock = (str(Path(sys.executable).with_name("penstock")), "run", "--master", "local[4]")
    conf = [f"-D{key}={value}" for key, value in settings.items()]
    return (*penstock, *conf, str(program), "--")


def start_again(hdfs):
    hdfs.start_one("namenode")
    wait_until(lambda: hdfs.administer("-safemode", "wait"), "no NameNode", LIMIT_S)


def counted(hdfs, folder):
    lines = printed(hdfs, COMMITTED, f"/{folder.name}/out").splitlines()
    return sorted(tuple(map(int, line.split())) for line in lines)


def test_files_are_private_and_no_name_is_given_twice(hdfs):
    done = printed(
        hdfs,
        """
from hdfs_native import Client
files, path = open_files(f"{FILES}/private/chk-1")
files.put_new(f"{path}/state", b"first")
print(said(lambda: files.put_new(f"{path}/state", b"second")))
files.create(f"{path}/other").close()
system, _ = arrow_system(FILES)
print(said(lambda: system.move(f"{path}/other", f"{path}/state")))
print(files.read(f"{path}/state"), sorted(files.list(path)), list(files.list("/nowhere")))
print([oct(Client(FILES).get_file_info(one).permission) for one in (path, f"{path}/state")])
files.remove("/private")
print(list(files.list("/private")))
""",
    )
    path = "/private/chk-1"
    first, second, *rest = done.splitlines()
    assert first.endswith(f"/state: {path}/state exists")
    assert second == f"FileExistsError: rename destination {path}/state already exists"
    assert rest == [
        "b'first' [('other', False), ('state', False)] []",
        "['0o700', '0o600']",
        "[]",
    ]


def test_nothing_looks_missing_while_the_namenode_is_away(hdfs, tmp_path):
    """And its client tries again in vain before it says so."""
    program = """
from penstock.formats.file_format import list_remote
files, path = open_files(f"{FILES}/numbers?dfs.client.failover.max.attempts=1")
system, _ = arrow_system(f"{FILES}/numbers?dfs.client.failover.max.attempts=1")
print(said(lambda: files.read(f"{path}/0")))
print(said(lambda: list(files.list(path))))
print(said(lambda: system.get_file_info(f"{path}/0")))
print(said(lambda: list_remote(f"{FILES}/n?dfs.client.failover.max.attempts=1", may_be_empty=True)))
"""
    hdfs.kill("namenode")
    try:
        done = printed(hdfs, program)
    finally:
        start_again(hdfs)
    away = f"{FILES}: Connection refused (os error 111)"
    assert done.splitlines() == [
        f"CheckpointIoError: cannot read /numbers/0: {away}",
        f"CheckpointIoError: cannot list /numbers: {away}",
        f"OSError: {away}",
        f"ConfigurationError: FileSource: cannot list '{FILES}/n': {away}.",
    ]


def test_safe_mode_is_said(hdfs):
    assert hdfs.administer("-safemode", "enter")
    try:
        done = printed(
            hdfs,
            """
files, path = open_files(f"{FILES}/safe?dfs.client.failover.max.attempts=1")
print(said(lambda: files.create(f"{path}/state")))
""",
        )
    finally:
        assert hdfs.administer("-safemode", "leave")
    assert done.startswith("CheckpointIoError: cannot create /safe/state: hdfs://127.0.0.1:9000: ")
    assert "Name node is in safe mode." in done


def test_a_job_goes_on_from_a_savepoint_and_outlives_its_namenode(hdfs, tmp_path):
    """All its files are there: what it reads, its checkpoints, its savepoint and its output."""
    order = order_of(tmp_path, f"{FILES}/{tmp_path.name}/savepoints")
    stopped = hdfs.sandbox.run(*order, env=hdfs.environment)
    assert stopped.returncode == 0, stopped.stderr
    (tmp_path / "slow").unlink()
    log = tmp_path / "log"
    restored = {"execution.state-recovery.path": stopped.stdout.strip()}
    with (
        log.open("wb") as file,
        hdfs.sandbox.start(
            *order_of(tmp_path, **restored), env=hdfs.environment, stdout=file, stderr=file
        ) as job,
    ):
        wait_until((tmp_path / "slow").exists, "no task comes so far", LIMIT_S)
        hdfs.kill("namenode")
        wait_until(lambda: "Connection refused" in log.read_text(), log.read_text(), LIMIT_S)
        start_again(hdfs)
        (tmp_path / "go").touch()
        assert job.wait(LIMIT_S) == 0, log.read_text()
    assert counted(hdfs, tmp_path) == EXPECTED
    assert f"restarting after: OSError: {FILES}: Connection refused" in log.read_text()


def test_doctor_says_that_checkpoints_cannot_be_written(hdfs):
    at = "hdfs://127.0.0.1:9001/x?dfs.client.failover.max.attempts=1"
    penstock = str(Path(sys.executable).with_name("penstock"))
    order = (penstock, "doctor", "--master", "local[2]", f"-Dexecution.checkpointing.dir={at}")
    done = hdfs.sandbox.run(*order, env=hdfs.environment)
    assert done.returncode == 1
    assert "cannot be used on the driver" in done.stdout
    assert "hdfs://127.0.0.1:9001: Connection refused" in done.stdout
    assert "STREAMING jobs cannot run." in done.stdout


# Rows of a table; the process of the task that comes first to number 1,000 is killed there.
TABLE = """
import os, signal, sys
from penstock.common import Row, Types
from penstock.connectors.lakehouse import DeltaSink
from penstock.datastream import StreamExecutionEnvironment

table, trap = sys.argv[1:]

def kill_once(number):
    if number == 1000:
        try:
            os.close(os.open(trap, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
    return Row(number=number, half=number % 2)

row_type = Types.ROW_NAMED(["number", "half"], [Types.LONG(), Types.LONG()])
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
env.enable_checkpointing(300)
rows = env.from_collection(range(2000)).rebalance().map(kill_once, output_type=row_type)
rows.sink_to(DeltaSink.for_row_data(table, row_type).with_partition_columns("half").build())
env.execute("table")
"""


def test_a_delta_table_has_each_row_once_after_a_killed_task(hdfs, tmp_path):
    place = f"{FILES}/{tmp_path.name}"
    program = tmp_path / "program.py"
    program.write_text(TABLE)
    order = run_order(program, {"execution.checkpointing.dir": f"{place}/checkpoints"})
    arguments = (f"{place}/table", str(tmp_path / "trap"))
    done = hdfs.sandbox.run(*order, *arguments, env=hdfs.environment)
    assert done.returncode == 0, done.stderr
    assert "restarted subtasks" in done.stderr
    read = """
import deltalake
table = deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table()
print(*sorted(zip(table["number"].to_pylist(), table["half"].to_pylist())), sep="\\n")
"""
    rows = printed(hdfs, read, f"{place}/table").splitlines()
    assert rows == [str((number, number % 2)) for number in range(2000)]
