"""Jobs of clients of a Spark Connect server, which has two executors of two cores; with the commands of the guide."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.tools.clusters.connect_server import HOME, URL, connect_server
from tests.tools.clusters.sandbox import sandbox
from tests.tools.guides import commands_of, program_of
from tests.tools.output_files import committed_lines
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark
SERVER, INSTALL, RUN = commands_of("spark-connect.md", "A program")
MASTER = "local-cluster[2,2,1024]"
LIMIT_S = 180
# A keyed count; each result ends with the executor of its task. Where a file is named, the first task that comes to number 5,000 makes
# it, and kills its executor or waits for its own end.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from penstock.common import Encoder
from penstock.connectors.file_system import FileSink
from penstock.datastream import StreamExecutionEnvironment
from texts import text_of

out, *sprung = sys.argv[1:]

def executor():
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text() != "java\\n":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    order = Path(f"/proc/{pid}/cmdline").read_text().split("\\0")
    return pid, order[order.index("--executor-id") + 1]

def trap(pair):
    if pair[2] == 5000 and sprung:
        try:
            os.close(os.open(sprung[0], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return pair
        if sprung[1:] == ["kills"]:
            os.kill(executor()[0], signal.SIGKILL)
        while True:
            time.sleep(0.05)
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
counts.map(lambda pair: text_of(pair, executor()[1])).sink_to(sink)
env.execute("counts")
"""
# A module of the program's own, and one of an archive.
TEXTS = """
def text_of(pair, executor):
    return f"{pair[0]} {pair[1]} {executor}"
"""
EXPECTED = sorted((number % 97, number // 97 + 1) for number in range(10_000))
FIRST = """
import json, sys
from pyspark.sql import SparkSession, functions as F
from penstock.common import Configuration, Types
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

spark = SparkSession.builder.remote("sc://localhost:15002").getOrCreate()
settings = Configuration()
if sys.argv[1:]:
    settings.set_string("execution.checkpointing.dir", sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
"""
SIZED = """
from penstock.datastream import SlotSharingGroup

LARGE = SlotSharingGroup.builder("g").set_cpu_cores(2).set_task_heap_memory_mb(64).build()
"""


@pytest.fixture(scope="module")
def connect(tmp_path_factory):
    folder = tmp_path_factory.mktemp("connect")
    command, *options = SERVER
    assert command == "$SPARK_HOME/sbin/start-connect-server.sh"
    assert options == ["--master", "yarn"]
    own = (f"{HOME}/sbin/start-connect-server.sh", "--master", MASTER, "--driver-memory=700m")
    with sandbox() as place, connect_server(place, folder, *own) as running:
        yield running


def order(folder, *more):
    """The guide's command, for this folder."""
    (folder / "counts.py").write_text(PROGRAM)
    (folder / "texts.py").write_text(TEXTS)
    name, *words = (word.replace("file:///shared", f"file://{folder}") for word in RUN)
    assert name == "penstock"
    return (str(Path(sys.executable).with_name(name)), *words, "--", str(folder / "out"), *more)


def lines_of(folder):
    """(key, count, executor) of each line that is committed."""
    lines = [line.split() for line in committed_lines(folder / "out")]
    return [(int(key), int(count), executor) for key, count, executor in lines]


def client(connect, folder, program, *arguments):
    """Run a program that begins as `FIRST`."""
    (folder / "client.py").write_text(FIRST + program)
    return connect.run(sys.executable, "client.py", *arguments, folder=folder)


def answer_of(done):
    """What a client has printed last."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def refusal_of(done):
    """The last line of a client that has failed."""
    assert done.returncode == 1, done.stdout
    return done.stderr.splitlines()[-1]


def test_the_guides_program_runs_on_the_executors(connect, tmp_path):
    assert INSTALL == ["pip", "install", "penstock[connect]"]
    done = connect.run(*order(tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert {executor for _, _, executor in lines} <= {"0", "1"}
    assert f"through the Spark Connect server {URL}" in done.stderr


def test_a_killed_executor_costs_no_row(connect, tmp_path):
    """The environment names the server."""
    penstock, run, program, master, url, *rest = order(tmp_path, str(tmp_path / "sprung"), "kills")
    assert (master, url) == ("--master", URL)
    done = connect.run(penstock, run, program, *rest, folder=tmp_path, SPARK_REMOTE=url)
    assert done.returncode == 0, done.stderr
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert "lost TaskManager" in done.stderr
    assert "restarted subtasks" in done.stderr


def test_clients_that_are_killed_leave_their_slots_to_the_next_one(connect, tmp_path):
    """Four slots are there, and each job takes two of them."""
    folders = [tmp_path / "first", tmp_path / "second"]
    stuck = []
    for folder in folders:
        folder.mkdir()
        command = order(folder, str(folder / "sprung"), "waits")
        stuck.append(connect.begin(*command, folder=folder))
    for folder in folders:
        wait_until((folder / "sprung").exists, "no task comes to the trap", LIMIT_S)
        connect.sandbox.run("pkill", "-KILL", "-f", str(folder / "sprung"))
    for one in stuck:
        one.wait()
    done = connect.run(*order(tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted((key, count) for key, count, _ in lines_of(tmp_path)) == EXPECTED


def test_another_client_takes_the_job_of_a_killed_one_over(connect, tmp_path):
    kept = {
        "high-availability.type": "FILE",
        "high-availability.storageDir": f"{tmp_path}/ha",
        "high-availability.cluster-id": "counts",
        "penstock.high-availability.lease-duration": "4 s",
        "penstock.high-availability.renew-interval": "500 ms",
    }
    options = [f"-D{key}={value}" for key, value in kept.items()]
    penstock, run, *rest = order(tmp_path, str(tmp_path / "sprung"), "waits")
    first = connect.begin(penstock, run, *options, *rest, folder=tmp_path)
    wait_until((tmp_path / "sprung").exists, "no task comes to the trap", LIMIT_S)
    connect.sandbox.run("pkill", "-KILL", "-f", str(tmp_path / "sprung"))
    first.wait()
    stored = ("--cluster-id", "counts", "--storage-dir", f"{tmp_path}/ha")
    done = connect.run(penstock, "recover", "--master", URL, *stored, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted((key, count) for key, count, _ in lines_of(tmp_path)) == EXPECTED


def test_a_dataframe_goes_in_and_comes_out_as_spark_has_it(connect, tmp_path):
    """Five partitions, one of which is empty; each type that Spark and Penstock share."""
    done = client(
        connect,
        tmp_path,
        """
day = F.expr("timestamp'2024-02-29 12:30:15.123456'")
frame = spark.range(0, 40_000, 1, 5).where("id < 8000 or id >= 16000").select(
    "id", (F.col("id") % 7).alias("k"), F.expr("cast(id / 4 as decimal(12, 3))").alias("dec"),
    F.concat(F.lit("Straße "), "id").alias("s"),
    F.when(F.col("id") % 3 > 0, F.col("id")).alias("n"),
    F.timestamp_add("SECOND", "id", day).alias("ts"), F.array("id", F.lit(None)).alias("a"),
    F.struct(F.lit(b"\\0x").alias("x"), F.lit(1.5).alias("d")).alias("st"),
)
back = env.from_spark(frame).map(lambda row: row, env.from_spark(frame).get_type()).to_spark()
assert back.schema.simpleString() == frame.schema.simpleString(), back.schema
both = (back.count(), back.exceptAll(frame).count(), frame.exceptAll(back).count())
print(json.dumps(both))
""",
        f"file://{tmp_path}/checkpoints",
    )
    assert answer_of(done) == [32_000, 0, 0]


def test_the_guides_session_reads_and_makes_dataframes_and_leaves_no_file(connect, tmp_path):
    program = program_of("spark-connect.md", "A session of the program's own")
    (tmp_path / "client.py").write_text(program.replace("file:///shared", f"file://{tmp_path}"))
    done = connect.run(sys.executable, "client.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, re.findall(r"\d+", done.stdout))) == [one * 7 for one in range(10)]
    assert list(tmp_path.rglob("part*")) == []


@pytest.mark.parametrize(
    "program, reason",
    [
        (
            "env.set_runtime_mode(RuntimeExecutionMode.BATCH).from_collection([1]).print()",
            "runtime mode BATCH .* a Spark Connect client lacks .* STREAMING mode, too",
        ),
        (
            "env.from_spark(spark.range(9)).print()",
            "Spark writes a DataFrame to files .* execution.checkpointing.dir is not set",
        ),
        (
            "env.set_parallelism(9).from_collection([1]).print()",
            "needs 9 slots.* only 4 can be started: .* gives 4 task slots",
        ),
        (
            "env.from_collection([1]).slot_sharing_group(LARGE).print()",
            "slots of a size .* a Spark Connect client cannot ask for tasks of a size",
        ),
    ],
)
def test_what_a_client_cannot_do_is_refused_with_the_way_out(connect, tmp_path, program, reason):
    done = client(connect, tmp_path, f"{SIZED}{program}\nenv.execute()")
    assert re.search(reason, refusal_of(done))


def test_executors_that_do_not_reach_the_client_are_named(connect, tmp_path):
    # An address for documentation, which no machine has.
    elsewhere = ("-D", "jobmanager.rpc.address=192.0.2.1", "-D", "jobmanager.bind-host=127.0.0.1")
    penstock, run, program, *rest = order(tmp_path)
    done = connect.run(penstock, run, *elsewhere, program, *rest, folder=tmp_path)
    refusal = refusal_of(done)
    assert re.search(r"executor on \S+ cannot reach this program at 192\.0\.2\.1: ", refusal)
    assert "jobmanager.rpc.address" in refusal


def test_a_server_that_does_not_answer_is_named(connect, tmp_path):
    command = [word.replace("15002", "15003") for word in order(tmp_path)]
    refusal = refusal_of(connect.run(*command, folder=tmp_path))
    assert "no Spark Connect server answers at sc://localhost:15003" in refusal


@pytest.mark.server
def test_a_job_whose_server_is_killed_fails_and_says_so(tmp_path):
    own = (
        f"{HOME}/sbin/start-connect-server.sh",
        "--master",
        "local-cluster[1,2,1024]",
        "--driver-memory=700m",
    )
    with sandbox() as place, connect_server(place, tmp_path, *own) as running:
        command = order(tmp_path, str(tmp_path / "sprung"), "waits")
        job = running.begin(*command, folder=tmp_path)
        wait_until((tmp_path / "sprung").exists, "no task comes to the trap", LIMIT_S)
        running.kill()
        assert job.wait(LIMIT_S) == 1
    said = (tmp_path / "said").read_text()
    assert f"the Spark Connect server {URL} does not answer any more" in said
    shutil.rmtree(tmp_path / "checkpoints")
